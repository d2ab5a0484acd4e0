/* What gcc's -fsanitize=thread calls in place of, or before, each access to memory. Only one of the runtime's threads
 * runs at a time, but the library may have others: the atomic operations are real. */
#include "coherence.h"

#define CODE __builtin_return_address(0)

static inline void access_at(const volatile void *address, size_t size, enum access access, const void *code)
{
    if (current)
        model_access((uintptr_t)address, size, access, code);
}

void __tsan_init(void) {}
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **place, void *value)
{
    (void)value;
    access_at(place, sizeof *place, ACCESS_WRITE, CODE);
}
void __tsan_vptr_read(void **place) { access_at(place, sizeof *place, ACCESS_READ, CODE); }
void __tsan_read_range(void *address, unsigned long size) { access_at(address, size, ACCESS_READ, CODE); }
void __tsan_write_range(void *address, unsigned long size) { access_at(address, size, ACCESS_WRITE, CODE); }

#define PLAIN(size) \
    void __tsan_read##size(void *address) { access_at(address, size, ACCESS_READ, CODE); } \
    void __tsan_write##size(void *address) { access_at(address, size, ACCESS_WRITE, CODE); } \
    void __tsan_unaligned_read##size(void *address) { access_at(address, size, ACCESS_READ, CODE); } \
    void __tsan_unaligned_write##size(void *address) { access_at(address, size, ACCESS_WRITE, CODE); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

/* A word that one thread changes from 0 with acquire, and later back to 0 with release, is taken for a lock. */
static inline void changed(volatile void *address, bool was_zero, bool is_zero, int order)
{
    if (!current || was_zero == is_zero)
        return;
    if (was_zero && order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE)
        model_lock_taken((uintptr_t)address);
    else if (is_zero && order != __ATOMIC_RELAXED && order != __ATOMIC_ACQUIRE)
        model_lock_left((uintptr_t)address);
}

#define FETCH(bits, name, builtin, after) \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *address, uint##bits##_t value, int order) \
    { \
        access_at(address, sizeof *address, ACCESS_UPDATE, CODE); \
        uint##bits##_t before = builtin(address, value, __ATOMIC_SEQ_CST); \
        changed(address, before == 0, (uint##bits##_t)(after) == 0, order); \
        return before; \
    }

#define COMPARE(bits, name) \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile uint##bits##_t *address, uint##bits##_t *expected, \
                                                      uint##bits##_t desired, int order, int failure) \
    { \
        (void)failure; \
        access_at(address, sizeof *address, ACCESS_UPDATE, CODE); \
        bool done = __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_SEQ_CST, \
                                                __ATOMIC_SEQ_CST); \
        if (done) \
            changed(address, *expected == 0, desired == 0, order); \
        else if (current) \
            model_failed(); \
        return done; \
    }

#define ATOMIC(bits) \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *address, int order) \
    { \
        (void)order; \
        access_at(address, sizeof *address, ACCESS_READ, CODE); \
        return __atomic_load_n(address, __ATOMIC_SEQ_CST); \
    } \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *address, uint##bits##_t value, int order) \
    { \
        access_at(address, sizeof *address, ACCESS_WRITE, CODE); \
        uint##bits##_t before = __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST); \
        changed(address, before == 0, value == 0, order); \
    } \
    FETCH(bits, exchange, __atomic_exchange_n, value) \
    FETCH(bits, fetch_add, __atomic_fetch_add, before + value) \
    FETCH(bits, fetch_sub, __atomic_fetch_sub, before - value) \
    FETCH(bits, fetch_and, __atomic_fetch_and, before & value) \
    FETCH(bits, fetch_or, __atomic_fetch_or, before | value) \
    FETCH(bits, fetch_xor, __atomic_fetch_xor, before ^ value) \
    FETCH(bits, fetch_nand, __atomic_fetch_nand, ~(before & value)) \
    COMPARE(bits, strong) \
    COMPARE(bits, weak)
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (current)
        schedule_spend(COST_ATOMIC);
}
void __tsan_atomic_signal_fence(int order) { (void)order; }
