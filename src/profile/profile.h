/*
 * The heap profiler: which blocks are samples, whose they are, and where they were allocated.
 *
 * The fast paths know nothing of it. A *token* is a NULL in a thread cache's stack, in the place of a block: popping it misses, as
 * popping an empty stack does, and the slow path hands out a *sampled block* instead, a block of the class from the profile's own
 * heap, whose slabs have page-map byte 0 (W2). So its free misses too, and there the token goes back onto the freeing thread's
 * stack. Tokens circulate exactly as blocks do: a malloc draws one with the probability with which an entry of the stack is one,
 * whatever site it comes from, and a draw stands for 1 / p blocks.
 *
 * Z1: an entry that a refill brings is a token with p = 1 - exp(-size / mean / 2^shift), independently of all others (draw.h). The
 *     shift is the cache's, and the same for all tokens of a bin (T6); it follows the governor's (govern.h).
 * Z2: a sampled block's record is inserted before the program gets the block and removed before anybody else can (R2).
 * Z3: tokens of one generation are never drawn in another: a start or stop of the profile makes every cache flush first.
 * Z4: a thread that is busy in here draws no samples: what the unwinder allocates is served as without a profile.
 */
#ifndef HAK_PROFILE_PROFILE_H
#define HAK_PROFILE_PROFILE_H

#include "config/classes.h"
#include "profile/draw.h"
#include "profile/govern.h"
#include "profile/table.h"

struct stack_memory;

#define PROFILE_MEAN_MOST (UINT64_C(1) << 40) /* bytes */

struct profile {
    _Atomic bool on;              /* samples are drawn */
    _Atomic bool wanted;          /* somebody asked for a file: the next slow path writes it */
    _Atomic uint32_t generation;  /* number of starts and stops */
    uint64_t mean;                /* bytes */
    struct heap *heap;            /* of sampled blocks */
    uint64_t started_ns;          /* os_now() at the first start; 0: it was never on */
    bool by_tables;               /* stacks are found by unwind tables, not by frame pointers */
};
HAK_DATA struct profile profile;

/* Outermost but for nothing: held while the profile is started, stopped or written. */
HAK_DATA struct lock profile_control;

HAK_INLINE bool profile_on(void) { return atomic_load_explicit(&profile.on, memory_order_relaxed); }

HAK_INLINE uint32_t profile_generation(void) { return atomic_load_explicit(&profile.generation, memory_order_relaxed); }

/* Turns the profile on with the mean (bytes, at least 1) or off (0). False when its heap cannot be made. The caller makes the caches flush. */
HAK_HIDDEN bool profile_set(uint64_t mean);

/* Draws for the entries of a refill; see draw_entries. */
HAK_HIDDEN unsigned profile_draw_entries(struct draw *draw, unsigned class, unsigned shift, unsigned count, uint64_t marks[2]);

/* The least chance is that of a part of a byte, so that sizes and the mean are taken in such parts. */
enum { PARTS_SHIFT = 10 };
_Static_assert((16u << PARTS_SHIFT) >> SHIFT_MOST >= 1, "every block has a chance");

HAK_INLINE uint64_t profile_parts(size_t size, unsigned shift) { return ((uint64_t)size << PARTS_SHIFT) >> shift; }

/* Whether the draws for so many blocks come to nothing, as they nearly always do; if false, they are yet to be drawn for. */
HAK_INLINE bool profile_draw_passes(struct draw *draw, size_t size, unsigned shift, size_t count)
{
    int64_t parts = (int64_t)(profile_parts(size, shift) * count);

    if (HAK_UNLIKELY(draw->generation != profile_generation() || draw->countdown < parts))
        return false;
    draw->countdown -= parts;
    return true;
}

/* Draws for one block of so many bytes that no cache holds: the weight of the sample that it is, or 0. draw NULL: the thread has no cache. */
HAK_HIDDEN uint64_t profile_draw_call(struct draw *draw, size_t size);

/* What a token of the class stands for that was drawn with the shift. */
HAK_HIDDEN uint64_t profile_weight(unsigned class, unsigned shift);

/* Whether a token that was drawn with one shift stays one in a bin of another. */
HAK_HIDDEN bool profile_keep_token(struct draw *draw, unsigned class, unsigned shift, unsigned new_shift);

/* The thread is inside the profiler (Z4), or allocates for itself meanwhile. */
HAK_HIDDEN bool profile_busy(void);

/* Records a block as a sample, with the caller's stack; of the record, address, size, weight, class, shift, heap and foreign are set. stacks:
 * the thread's (may point to NULL), or NULL. Holding no lock. */
HAK_HIDDEN void profile_note(struct record *record, struct stack_memory **stacks);

/* Forgets the block; false if it was no sample. Holding no lock. */
HAK_HIDDEN bool profile_forget(const void *block, struct record *record);
HAK_HIDDEN void profile_forget_heap(struct heap *heap);

/* Milliseconds of the clock that lifetimes are measured with. */
HAK_HIDDEN uint64_t profile_now_ms(void);

/* The site that the calling thread's next sample gets as its leaf, or NULL. */
HAK_DATA _Thread_local const void *profile_site __attribute__((tls_model("initial-exec")));

#endif
