/* The kernel, without the C library: the runtime may answer its calls itself. */
#ifndef COHERENCE_SYSTEM_H
#define COHERENCE_SYSTEM_H

#include <stdatomic.h>
#include <stdint.h>

/* Returns -errno on failure. */
static inline long system_call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

/* Takes the word, and leaves 0. */
static inline uint32_t atomic_exchange_word(_Atomic uint32_t *word)
{
    return atomic_exchange(word, 0);
}

#endif
