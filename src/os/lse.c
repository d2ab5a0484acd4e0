/*
 * Atomic instructions on aarch64. With -moutline-atomics, gcc and clang call a helper of libgcc for each atomic
 * operation. The variable below tells the helper whether the processor has the ARMv8.1 instructions (LSE). If not, the
 * helper runs a loop. libgcc would set the variable by a function that musl before 1.2.4 lacks. Because this file
 * defines the variable, the linker leaves that part of libgcc out.
 *
 * Calls before the constructor use the loop. That is safe: instruction and loop may work on the same word.
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
