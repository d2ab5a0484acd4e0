/*
 * Hardening: the checks of libhakmem-secure, which is compiled with HAK_SECURE. The other libraries have none of them.
 * docs/hardening.md tells what each mechanism stops.
 *
 * V3: the secret is drawn once, before the process's first block, and is read-only memory after that.
 */
#ifndef HAK_HARDEN_H
#define HAK_HARDEN_H

#include "config/classes.h"

struct __attribute__((aligned(HAK_PAGE_MOST))) harden {
    uint64_t secret[2]; /* the second one is odd */
};
HAK_DATA struct harden harden;

/* Draws the secret; under process_lock. */
HAK_HIDDEN void harden_begin(void);

/* Makes memory inaccessible. False: the kernel refused, which is said once in a process. */
HAK_HIDDEN bool harden_close(void *address, size_t size);

/* A random number below `most` (at most 2^24) from a state that is odd: upper bits of a multiplicative generator; fast,
 * not cryptographic. */
HAK_INLINE unsigned harden_chance(uint64_t *chance, unsigned most)
{
    uint64_t x = *chance * UINT64_C(0x59071d65);

    *chance = x;
    return (unsigned)(((x >> 40) * most) >> 24);
}

#endif
