/*
 * Hardening: the checks of libhakmem-secure, which is compiled with HAK_SECURE. The other libraries have none of them.
 * docs/hardening.md tells what each mechanism stops.
 *
 * V3: the secret is drawn once, before the process's first block, and is read-only memory after that.
 * V4: a thread's cache has no entry and no capacity in any class (front/thread_cache.h, T1): the rings have its blocks.
 */
#ifndef HAK_HARDEN_H
#define HAK_HARDEN_H

#include "config/classes.h"

enum {
    HARDEN_QUARANTINE_BYTES = 64 << 10, /* most bytes of freed blocks of one class that a thread holds back */
    HARDEN_PATROL = 64,                 /* most blocks that bins_patrol looks at when blocks move (harden/bins.c) */
};

struct __attribute__((aligned(HAK_SEALED_PAGE))) harden {
    uint64_t secret[2]; /* the second one is odd */
};
HAK_DATA struct harden harden;

/* How many reasons there are to leave front/quick.h's fast paths at once. Reasons: the heap profile is on; each sample
 * among ordinary blocks. A write here turns no check off. */
HAK_DATA _Atomic size_t harden_detours; /* Order: relaxed; the free of a sample comes after its count */

HAK_INLINE void harden_detour(bool begins)
{
    if (HAK_SECURE)
        atomic_fetch_add_explicit(&harden_detours, begins ? 1 : (size_t)-1, memory_order_relaxed);
}

/* Draws the secret; under process_lock. */
HAK_HIDDEN void harden_begin(void);

/* Makes memory inaccessible. False: the kernel refused, which is said once in a process. */
HAK_HIDDEN bool harden_close(void *address, size_t size);

/* Most blocks of the class in a thread's quarantine. */
HAK_INLINE unsigned harden_keep_most(unsigned class)
{
    return (unsigned)base_max(base_min(HARDEN_QUARANTINE_BYTES / class_size(class), UINT8_MAX), 1);
}

#endif
