/*
 * Atomic instructions of the processor at hand, on aarch64: gcc's and clang's -moutline-atomics calls a helper of
 * libgcc's for each atomic operation, which takes the ARMv8.1 instruction (LSE) or a loop, as this variable says.
 * libgcc would set it by a function that musl before 1.2.4 lacks; the variable defined here keeps that part of libgcc
 * out.
 *
 * The two ways may meet on one word, so it does not matter that calls before the constructor loop.
 */
#if defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

#include "base/base.h"

#define HARDWARE_ATOMICS (1ul << 8) /* HWCAP_ATOMICS */

HAK_IN_ASSEMBLY bool __aarch64_have_lse_atomics;
bool __aarch64_have_lse_atomics;

__attribute__((constructor(101))) static void find_atomics(void)
{
    __aarch64_have_lse_atomics = (getauxval(AT_HWCAP) & HARDWARE_ATOMICS) != 0;
}

#else

typedef int lse_unused; /* ISO C wants a declaration */

#endif
