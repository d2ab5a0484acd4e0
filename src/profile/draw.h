/*
 * Chance: which blocks are samples, and how many blocks a sample stands for.
 *
 * Each block's size is subtracted from a countdown of bytes. The block at which it crosses 0 is a sample. The countdown
 * is then drawn anew from the exponential distribution with the profile's mean. This distribution has no memory, so any
 * block of a size is a sample with the probability 1 - exp(-size / mean). A thread has a countdown for each size class,
 * whose calls its cache counts many at a time, and one for all other calls. With a mean of 1 byte every block is one.
 */
#ifndef HAK_PROFILE_DRAW_H
#define HAK_PROFILE_DRAW_H

#include "config/classes.h"

/* Weights count units of 1 / WEIGHT_ONE block, so that their sums are exact. */
#define WEIGHT_ONE UINT64_C(65536)

struct draw {
    int64_t countdown;   /* until the next sample */
    uint64_t random;     /* xorshift's state; 0: not seeded */
    uint32_t generation; /* of the profile whose mean the countdown was drawn with */
    uint32_t calls;      /* that the thread made for blocks, while such calls were counted; it wraps */
};

/* A thread's countdowns by class. */
struct countdowns {
    int64_t left[CLASS_COUNT];  /* bytes until the class's next sample; below 0: not drawn yet */
    uint32_t held[CLASS_COUNT]; /* blocks in use when the class was last counted for the peak (front/live.h) */
    uint8_t alone[CLASS_COUNT]; /* calls in a row, without a run, before which no block came back; up to RUN_ALONE */
    bool full[CLASS_COUNT];     /* more blocks came back while the run lasted than the bin can hold */
    uint8_t owed[CLASS_COUNT];  /* runs since the heap last filled one, up to RUN_BUILDS - 1; or RUN_BUILDS */
};
/* owed: hardly a block came back while the last run lasted, so the program needs the heap's blocks. */
enum { RUN_BUILDS = 255 };
/* After so many such calls in a row a class of large blocks begins a run. */
enum { RUN_ALONE = 3 };

/* Marks all countdowns as not drawn, or as without an end. */
HAK_INLINE void countdowns_begin(struct countdowns *countdowns, bool drawing)
{
    for (unsigned class = 0; class < CLASS_COUNT; class++)
        countdowns->left[class] = drawing ? -1 : INT64_MAX / 2; /* room for sums */
}

/* How many calls for the class may pass before the next one that is a sample; at most `most`. */
HAK_INLINE unsigned countdowns_may_pass(const struct countdowns *countdowns, unsigned class, unsigned most)
{
    int64_t left = countdowns->left[class], size = (int64_t)class_size(class);

    return HAK_LIKELY(left >= size * most) ? most : (unsigned)(left / size);
}

/* Subtracts `count` calls that have passed. */
HAK_INLINE void countdowns_pass(struct countdowns *countdowns, unsigned class, unsigned count)
{
    countdowns->left[class] -= (int64_t)class_size(class) * count;
}

/* Draws the length of a countdown. The draw is seeded. */
HAK_HIDDEN int64_t draw_countdown(struct draw *draw, uint64_t mean);

/* Begins the countdown anew for the generation, with its mean (at least 1, below 2^56). */
HAK_HIDDEN void draw_begin(struct draw *draw, uint32_t generation, uint64_t mean);

/* In the child of a fork: draws that are seeded from now on differ from those of other children. */
HAK_HIDDEN void draw_reset_in_child(void);

/* Draws for one block: whether it is a sample. */
HAK_HIDDEN bool draw_one(struct draw *draw, uint64_t mean, size_t size);

/* True with the probability part / whole. */
HAK_HIDDEN bool draw_part(struct draw *draw, uint64_t part, uint64_t whole);

/* The number of blocks that a sample of the size stands for, 1 / (1 - exp(-size / mean)), times WEIGHT_ONE. */
HAK_HIDDEN uint64_t draw_weight(uint64_t mean, size_t size);

#endif
