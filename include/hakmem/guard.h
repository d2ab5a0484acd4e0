/*
 * Sampled guards: a few blocks lie alone between pages that nobody can touch, and are closed for a time after their
 * free. HAKMEM reports an access beyond their end or after their free at once. docs/misuse.md explains them.
 *
 * Any thread may call every function at any time, but not from a signal handler.
 */
#ifndef HAKMEM_GUARD_H
#define HAKMEM_GUARD_H

#include <hakmem/hakmem.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts to guard blocks, on average one every `mean` bytes of allocation; 0: HAKMEM_GUARD_RATE. Puts HAKMEM's SIGSEGV
 * handler in front of the one in force, also when guards are on: call it again after the program has installed a
 * handler. A thread takes part from its next call that its cache cannot serve. Returns 0, or an errno (ENOMEM). */
HAK_API int hak_guard_start(size_t mean) HAK_NOEXCEPT;

/* Stops guarding new blocks. Guarded blocks stay guarded, and HAKMEM still reports errors at them. */
HAK_API void hak_guard_stop(void) HAK_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
