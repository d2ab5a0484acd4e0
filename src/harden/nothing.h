/*
 * Blocks of 0 bytes: addresses 16 bytes apart in inaccessible memory. Each is given to one caller at a time, and again
 * as late as possible.
 */
#ifndef HAK_HARDEN_NOTHING_H
#define HAK_HARDEN_NOTHING_H

#include "base/base.h"

/* A block of 0 bytes. NULL: take an ordinary block. Any thread that holds no lock, as for the next functions. */
HAK_HIDDEN void *nothing_allocate(void);

enum nothing_state {
    NOTHING_ELSEWHERE, /* not one of these addresses */
    NOTHING_LIVE,
    NOTHING_FREE,    /* nobody has it */
    NOTHING_NO_BLOCK /* between two */
};
HAK_HIDDEN enum nothing_state nothing_look(const void *address);

/* Frees a live block of 0 bytes. False: another thread did. */
HAK_HIDDEN bool nothing_free(const void *address);

#endif
