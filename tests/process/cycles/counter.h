/* Reads the cycle profile's counter in the test itself, as an independent measure. */
#ifndef TESTS_CYCLES_COUNTER_H
#define TESTS_CYCLES_COUNTER_H

#include <stdint.h>

static inline uint64_t read_counter(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    uint64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#endif
}

#endif
