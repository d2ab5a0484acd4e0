/*
 * Atomic operations on bytes, which riscv64's processors lack. gcc before version 14 calls libatomic for them, which a
 * program may lack. So the functions that it calls are here. They change the byte's word, in the strongest order
 * whatever the caller asks for. Weak: a static program may contain libatomic too.
 */
#if defined(__riscv) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 14

#include "base/base.h"

/* Keeps these bits of the byte and sets those, if it is *only or `only` is NULL. Returns what it was. */
static uint8_t byte_change(volatile void *byte, unsigned keep, unsigned set, const uint8_t *only)
{
    uint32_t *word = (uint32_t *)((uintptr_t)byte & ~(uintptr_t)3); /* Order: any */
    unsigned shift = (unsigned)((uintptr_t)byte & 3) * 8;
    uint32_t mask = (uint32_t)UINT8_MAX << shift, old = __atomic_load_n(word, __ATOMIC_SEQ_CST);

    while (only == NULL || (uint8_t)(old >> shift) == *only)
        if (__atomic_compare_exchange_n(word, &old, (old & (~mask | keep << shift)) | set << shift, true,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            break;
    return (uint8_t)(old >> shift);
}

#define BYTE_FUNCTION(type, name, arguments)                                                                \
    type hak_##name arguments __asm__("__atomic_" #name) __attribute__((weak, visibility("hidden"), used)); \
    type hak_##name arguments

BYTE_FUNCTION(uint8_t, fetch_or_1, (volatile void *byte, uint8_t value, int order))
{
    (void)order;
    return byte_change(byte, UINT8_MAX, value, NULL);
}

BYTE_FUNCTION(uint8_t, fetch_and_1, (volatile void *byte, uint8_t value, int order))
{
    (void)order;
    return byte_change(byte, value, 0, NULL);
}

BYTE_FUNCTION(uint8_t, exchange_1, (volatile void *byte, uint8_t value, int order))
{
    (void)order;
    return byte_change(byte, 0, value, NULL);
}

BYTE_FUNCTION(bool, compare_exchange_1, (volatile void *byte, uint8_t *expected, uint8_t value, bool weak, int success,
                                         int failure))
{
    uint8_t wanted = *expected;

    (void)weak;
    (void)success;
    (void)failure;
    *expected = byte_change(byte, 0, value, &wanted);
    return *expected == wanted;
}

#else

typedef int byte_atomics_unused; /* ISO C wants a declaration */

#endif
