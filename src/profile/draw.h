/*
 * Chance: which blocks are samples, and how many blocks a sample stands for.
 *
 * Each block takes its size off a countdown of bytes. The block at which it crosses 0 is a sample, and the countdown is drawn anew from
 * the exponential distribution with the profile's mean. That has no memory, so every block of a size is a sample with the same
 * probability 1 - exp(-size / mean), whatever came before it, and an entry whose draw comes to nothing changes no other's. Sizes and
 * means are in one unit, whichever it is.
 */
#ifndef HAK_PROFILE_DRAW_H
#define HAK_PROFILE_DRAW_H

#include "base/base.h"

/* A sample's weight is in this part of a block, so that sums of weights are exact. */
#define WEIGHT_ONE UINT64_C(65536)

struct draw {
    int64_t countdown;   /* until the next sample */
    uint64_t random;     /* xorshift's state; 0: not seeded */
    uint32_t generation; /* of the profile whose mean the countdown was drawn with */
};

/* Makes the countdown one of the generation, with the mean (at least 1, below 2^56). */
HAK_HIDDEN void draw_begin(struct draw *draw, uint32_t generation, uint64_t mean);

/* Draws for `count` (at most 128) blocks of the size; bit i of marks is set iff block i is a sample. Returns how many are. */
HAK_HIDDEN unsigned draw_entries(struct draw *draw, uint64_t mean, size_t size, unsigned count, uint64_t marks[2]);

/* Draws for one block. */
HAK_HIDDEN bool draw_one(struct draw *draw, uint64_t mean, size_t size);

/* True with the probability part / whole. */
HAK_HIDDEN bool draw_part(struct draw *draw, uint64_t part, uint64_t whole);

/* The blocks that a sample of the size stands for, times WEIGHT_ONE: 1 / (1 - exp(-size / mean)). */
HAK_HIDDEN uint64_t draw_weight(uint64_t mean, size_t size);

#endif
