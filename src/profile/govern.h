/*
 * The governor: what samples may take of a thread's time.
 *
 * What a sample costs does not depend on the block, but a block may cost next to nothing: a program that takes and frees blocks of
 * 64 KiB without a touch would spend a tenth of its time here. So each size class has a *shift*: its blocks are samples with the
 * chance of blocks 2^shift times smaller, and stand for as many more. A thread whose samples took more than their part of its time,
 * and what credit it had, raises the shift of the class it is at; every second all shifts fall by one, so that the first chance comes back.
 *
 * Z5: a sample has the weight that belongs to the chance it was drawn with, whatever the shift is by then. So the sums stay without
 *     bias; a shift only makes them spread more.
 */
#ifndef HAK_PROFILE_GOVERN_H
#define HAK_PROFILE_GOVERN_H

#include "config/classes.h"

#define SHIFT_MOST 14u /* a block of 16 bytes is then 1/1024 byte's chance, the least there is */

struct governor {
    uint64_t since;  /* when the window began, in ns of os_now; 0: none did yet */
    uint64_t spent;  /* ns of it on samples */
    uint64_t debt;   /* ns that samples took of the thread's credit */
    uint32_t events; /* samples taken or freed in the window */
};

/* How often the class's chance is halved; of CLASS_NONE: of blocks that no thread cache holds. */
HAK_DATA _Atomic uint8_t govern_shifts[CLASS_COUNT];
HAK_INLINE unsigned govern_shift(unsigned class) { return atomic_load_explicit(&govern_shifts[class], memory_order_relaxed); }

/* The profile begins with the mean (bytes). */
HAK_HIDDEN void govern_begin(uint64_t mean);

/* The thread was busy with a sample of the class since `began` (of os_now). */
HAK_HIDDEN void govern_note(struct governor *governor, unsigned class, uint64_t began);

/* Lets the shifts fall if it is time. */
HAK_HIDDEN void govern_relax_due(uint64_t now_ms);

#endif
