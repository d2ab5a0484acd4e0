/*
 * The governor limits the part of a thread's time that samples take.
 *
 * A sample's cost does not depend on its block, but a block may cost next to nothing: a program that allocates and
 * frees blocks of 64 KiB without touching them would spend a tenth of its time on samples. So each size class has a
 * *shift*: its blocks are samples with the chance of blocks 2^shift times smaller. A thread whose samples have used up
 * their part of its time, and its credit, raises the shift of its present class. Every second all shifts fall by one.
 *
 * Z5: a sample has the weight that belongs to the chance it was drawn with, whatever the shift is by then. So the sums
 *     stay without bias; a shift only makes them spread more.
 */
#ifndef HAK_PROFILE_GOVERN_H
#define HAK_PROFILE_GOVERN_H

#include "config/classes.h"

#define SHIFT_MOST 14u /* a block of 16 bytes then has the chance of 1/1024 byte, the least there is */

struct governor {
    uint64_t since;  /* when the window began, by os_now; 0: none has yet */
    uint64_t spent;  /* ns that samples took in the window */
    uint64_t debt;   /* ns of the thread's credit that samples have used */
    uint32_t events; /* samples taken or freed in the window */
    uint32_t unseen; /* those since the last whose time was taken */
};

/* How often each class's chance is halved. CLASS_NONE: blocks that no thread cache holds. Order: any; a hint. */
HAK_DATA _Atomic uint8_t govern_shifts[CLASS_COUNT];
HAK_INLINE unsigned govern_shift(unsigned class)
{
    return atomic_load_explicit(&govern_shifts[class], memory_order_relaxed);
}

/* Sampling begins with the mean (bytes). may_spend: of a thread's time, in 1000, at the usual mean or above; 0: all. */
HAK_HIDDEN void govern_begin(uint64_t mean, uint64_t may_spend);

/* Call when work on a sample begins. Returns the time (os_now), or 0 if this work is not timed. Only every third piece
 * of work is, because each reading of the clock takes 50 instructions. So if a thread takes and frees samples in turn,
 * some of each are timed. governor: the thread's, or NULL. */
HAK_HIDDEN uint64_t govern_start(const struct governor *governor);

/* Accounts for a sample of the class, on which the thread has been busy since `began`, and for those before it that
 * were not timed. 0: this one is not. */
HAK_HIDDEN void govern_note(struct governor *governor, unsigned class, uint64_t began);

/* Lowers all shifts by one if a second has passed since the last time. */
HAK_HIDDEN void govern_relax_due(uint64_t now_ms);

#endif
