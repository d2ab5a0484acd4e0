/* The functions that code compiled with -fsanitize=thread calls: the interface of ThreadSanitizer's runtime, of which
 * the model takes the place. */
#include <stdatomic.h>
#include <string.h>

#include "memory.h"

/* The compiler knows these names, and wants no other prototypes. */
void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void) {}

#define HOOK_PLAIN(name, size, write)                                                                                  \
    void name(void *address);                                                                                          \
    void name(void *address) { memory_plain(address, size, write); }

#define HOOK_PLAIN_SIZE(size)                                                                                          \
    HOOK_PLAIN(__tsan_read##size, size, false)                                                                         \
    HOOK_PLAIN(__tsan_write##size, size, true)                                                                         \
    HOOK_PLAIN(__tsan_unaligned_read##size, size, false)                                                               \
    HOOK_PLAIN(__tsan_unaligned_write##size, size, true)

HOOK_PLAIN_SIZE(1)
HOOK_PLAIN_SIZE(2)
HOOK_PLAIN_SIZE(4)
HOOK_PLAIN_SIZE(8)
HOOK_PLAIN_SIZE(16)

void __tsan_read_range(void *address, size_t size);
void __tsan_write_range(void *address, size_t size);
void *__tsan_memset(void *to, int byte, size_t size);
void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);
void __tsan_read_range(void *address, size_t size) { memory_plain(address, size, false); }
void __tsan_write_range(void *address, size_t size) { memory_plain(address, size, true); }

void *__tsan_memset(void *to, int byte, size_t size)
{
    memory_plain(to, size, true);
    return memset(to, byte, size);
}

void *__tsan_memcpy(void *to, const void *from, size_t size)
{
    memory_plain(from, size, false);
    memory_plain(to, size, true);
    return memcpy(to, from, size);
}

void *__tsan_memmove(void *to, const void *from, size_t size)
{
    memory_plain(from, size, false);
    memory_plain(to, size, true);
    return memmove(to, from, size);
}

#define HOOK_UPDATE(bits, name, operation)                                                                             \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *address, uint##bits##_t operand, int order);            \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *address, uint##bits##_t operand, int order)             \
    {                                                                                                                  \
        return (uint##bits##_t)memory_atomic((void *)(uintptr_t)address, (bits) / 8, operation, operand, NULL, order,  \
                                             order);                                                                   \
    }

#define HOOK_COMPARE(bits, name)                                                                                       \
    int __tsan_atomic##bits##_##name(volatile void *address, uint##bits##_t *expected, uint##bits##_t desired,         \
                                     int order, int failed_order);                                                     \
    int __tsan_atomic##bits##_##name(volatile void *address, uint##bits##_t *expected, uint##bits##_t desired,         \
                                     int order, int failed_order)                                                      \
    {                                                                                                                  \
        uint64_t wanted = *expected, read = memory_atomic((void *)(uintptr_t)address, (bits) / 8, MEMORY_COMPARE,      \
                                                          desired, &wanted, order, failed_order);                      \
        bool equal = read == wanted;                                                                                   \
        *expected = (uint##bits##_t)read;                                                                              \
        return equal;                                                                                                  \
    }

#define HOOK_ATOMIC(bits)                                                                                              \
    HOOK_UPDATE(bits, exchange, MEMORY_EXCHANGE)                                                                       \
    HOOK_UPDATE(bits, fetch_add, MEMORY_ADD)                                                                           \
    HOOK_UPDATE(bits, fetch_sub, MEMORY_SUB)                                                                           \
    HOOK_UPDATE(bits, fetch_and, MEMORY_AND)                                                                           \
    HOOK_UPDATE(bits, fetch_or, MEMORY_OR)                                                                             \
    HOOK_COMPARE(bits, compare_exchange_strong)                                                                        \
    HOOK_COMPARE(bits, compare_exchange_weak)                                                                          \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *address, int order);                                \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *address, int order)                                 \
    {                                                                                                                  \
        return (uint##bits##_t)memory_atomic((void *)(uintptr_t)address, (bits) / 8, MEMORY_LOAD, 0, NULL, order,      \
                                             order);                                                                   \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile void *address, uint##bits##_t value, int order);                         \
    void __tsan_atomic##bits##_store(volatile void *address, uint##bits##_t value, int order)                          \
    {                                                                                                                  \
        memory_atomic((void *)(uintptr_t)address, (bits) / 8, MEMORY_STORE, value, NULL, order, order);                \
    }                                                                                                                  \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile void *address, uint##bits##_t expected,         \
                                                              uint##bits##_t desired, int order, int failed_order);    \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile void *address, uint##bits##_t expected,         \
                                                              uint##bits##_t desired, int order, int failed_order)     \
    {                                                                                                                  \
        uint64_t wanted = expected;                                                                                    \
        return (uint##bits##_t)memory_atomic((void *)(uintptr_t)address, (bits) / 8, MEMORY_COMPARE, desired, &wanted, \
                                             order, failed_order);                                                     \
    }

HOOK_ATOMIC(8)
HOOK_ATOMIC(16)
HOOK_ATOMIC(32)
HOOK_ATOMIC(64)
