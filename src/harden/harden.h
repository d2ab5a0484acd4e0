/*
 * Hardening: checks that the fast paths do without. It is always on in libhakmem-secure (HAK_SECURE), and elsewhere
 * with HAKMEM_HARDENED=1. docs/hardening.md tells what each mechanism stops.
 *
 * V3: the switches and the secret are set once, before the process's first block, and are read-only memory after that.
 * V4: a thread's cache has no entry and no capacity in any class (front/thread_cache.h, T1). In the ordinary library
 *     the page map says class 0 of every slab, so malloc, free and realloc leave their fast paths.
 */
#ifndef HAK_HARDEN_H
#define HAK_HARDEN_H

#include "config/classes.h"

enum harden_state { HARDEN_UNKNOWN = 0 /* the process is not initialised */, HARDEN_OFF, HARDEN_ON };

struct __attribute__((aligned(HAK_SEALED_PAGE))) harden {
    _Atomic uint32_t state; /* enum harden_state. Order: any; threads come after process_init, which publishes it */
    bool canary, zero, random, neighbours, nothing, protect, operators;
    uint8_t patrol;                  /* most blocks that bins_patrol looks at when blocks move (harden/bins.c) */
    uint8_t protect_time;            /* percent of a thread's time that closing spans may take; 100: no bound */
    uint8_t keep_most[CLASS_COUNT];  /* most blocks of the quarantine (harden/bins.h) */
    uint64_t secret[2];              /* the second one is odd */
};
HAK_DATA struct harden harden;

/* In libhakmem-secure: how many reasons there are to leave front/quick.h's fast paths at once. Reasons: a mechanism of
 * these paths is off; the heap profile is on; each sample among ordinary blocks. A write here turns no check off. */
HAK_DATA _Atomic size_t harden_detours; /* Order: relaxed; the free of a sample comes after its count */

HAK_INLINE void harden_detour(bool begins)
{
    if (HAK_SECURE)
        atomic_fetch_add_explicit(&harden_detours, begins ? 1 : (size_t)-1, memory_order_relaxed);
}

/* Reads the switches; after options_read, under process_lock. */
HAK_HIDDEN void harden_begin(void);

/* Makes memory inaccessible. False: the kernel refused, which is said once in a process. */
HAK_HIDDEN bool harden_close(void *address, size_t size);

HAK_INLINE bool harden_on(void)
{
    return HAK_SECURE || HAK_UNLIKELY(atomic_load_explicit(&harden.state, memory_order_relaxed) == HARDEN_ON);
}

#endif
