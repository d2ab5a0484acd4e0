/*
 * Part of every binary of the flavor coverage. The allocator serves calls, and reads its options, before llvm's run-time
 * has mapped the file of the counters; what was counted until then is added to the file.
 */
#include <stddef.h>
#include <stdint.h>

extern intptr_t __llvm_profile_counter_bias __attribute__((weak)); /* from a counter to its place in the file */
void __llvm_profile_initialize_file(void);
uint64_t *__llvm_profile_begin_counters(void);
uint64_t *__llvm_profile_end_counters(void);

__attribute__((constructor(101))) static void counting_begin(void)
{
    __llvm_profile_initialize_file();
    if (&__llvm_profile_counter_bias == NULL || __llvm_profile_counter_bias == 0)
        return; /* the file cannot be written */
    for (uint64_t *counter = __llvm_profile_begin_counters(); counter < __llvm_profile_end_counters(); counter++)
        *(uint64_t *)((uintptr_t)counter + (uintptr_t)__llvm_profile_counter_bias) += *counter;
}
