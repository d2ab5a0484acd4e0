/*
 * The heap profiler: which blocks are samples, whose they are, and where they were allocated.
 *
 * The fast paths are the same machine code with the profile on or off. While it is on, a thread's malloc takes blocks
 * from *runs* (T8), onto which free does not push, so that each call takes another block. A run is at most as long as
 * calls may pass before the next sample, and the slow call after it knows its length. The call at which the class's
 * countdown ends gets a *sampled block*: a block of the class from the profile's own heap. Slabs of that heap have
 * page-map byte 0 (W2), so that the block's free takes the slow path, too.
 *
 * Z1: a call for a block is a sample with p = 1 - exp(-size / mean), or 1 if the mean is 1 byte, independently of all
 *     other calls (draw.h), and a sample stands for 1 / p calls.
 * Z2: a sampled block's record is inserted before the program gets the block and removed before anybody else can (R2).
 * Z3: a call is counted with the mean of the profile that its thread's cache follows, and is a sample of that profile
 *     only: a start or stop makes every cache flush first.
 * Z4: a thread inside the profiler draws no samples: the unwinder's allocations are served as without a profile.
 * Z9: a span that is a sample lies where it would lie without the profile, because no other block shares its page-map
 *     byte. The byte is 0 until the block's free, so that the free takes the slow path. Its record is foreign and has
 *     the span's class.
 */
#ifndef HAK_PROFILE_PROFILE_H
#define HAK_PROFILE_PROFILE_H

#include "config/classes.h"
#include "profile/draw.h"
#include "profile/table.h"

struct stack_memory;

#define PROFILE_MEAN_MOST (UINT64_C(1) << 40) /* bytes */

struct profile {
    /* Order: any; a call may see a change late. */
    _Atomic bool on;              /* the heap profile is on */
    _Atomic bool drawing;         /* samples are drawn for the heap profile, for guards (guard.h), or for both */
    _Atomic uint8_t guard_class;  /* the largest class whose blocks fit a guarded page; CLASS_NONE: guards are off */
    _Atomic bool wanted;          /* a file was requested: the next slow call writes it (outside_want) */
    _Atomic uint32_t generation;  /* rises with starts and stops. Order: release by set_means, acquire: the means */
    uint64_t mean;                /* bytes; a stop keeps it for the samples already taken */
    uint64_t record_mean, guard_mean; /* as requested for the heap profile and for guards; 0: off */
    uint64_t draw_mean;           /* the lesser of these two, or the one that is on */
    uint64_t weights[CLASS_COUNT]; /* draw_weight(draw_mean, a class's size) */
    struct heap *heap;            /* of sampled blocks */
    uint64_t started_ns;          /* os_now() at the first start; 0: it was never on */
    bool by_tables;               /* stacks are found by unwind tables, not by frame pointers */
    _Atomic bool by_readers;      /* on because a tracer reads the probes (os/outside.h); off with the last tracer */
};
HAK_DATA struct profile profile;

/* The outermost of the profile's locks: held while the profile is started, stopped or written. */
HAK_DATA struct lock profile_control;

HAK_INLINE bool profile_on(void) { return atomic_load_explicit(&profile.on, memory_order_relaxed); }

/* Whether samples are drawn, for the heap profile or for guards. */
HAK_INLINE bool profile_drawing(void) { return atomic_load_explicit(&profile.drawing, memory_order_relaxed); }

/* Whether calls for the class can be samples while samples are drawn. */
HAK_INLINE bool profile_draws(unsigned class)
{
    return profile_on() || class <= atomic_load_explicit(&profile.guard_class, memory_order_relaxed);
}

HAK_INLINE uint32_t profile_generation(void) { return atomic_load_explicit(&profile.generation, memory_order_relaxed); }

/* Turns the profile on with the mean (bytes), or off (0). False: no heap for it. The caller makes the caches flush. */
HAK_HIDDEN bool profile_set(uint64_t mean);
/* Turns samples for guards on or off in the same way. They are drawn for blocks of classes up to `class`. */
HAK_HIDDEN void profile_set_guards(uint64_t mean, unsigned class);

/* In the child of a fork, whose one thread has `draw`: draws anew, which calls are samples. */
HAK_HIDDEN void profile_reset_in_child(struct draw *draw);

/* Whether a sample that was drawn is a sample for guards, too. */
HAK_HIDDEN bool profile_draw_guard(struct draw *draw);
/* Draws, for guards alone, for a block of `size` bytes that no thread cache holds. */
HAK_HIDDEN bool profile_draw_guard_call(struct draw *draw, size_t size);

/* Counts a call for a block of the class in the usual case: it is no sample. Else false. */
HAK_INLINE bool profile_call_passes(struct countdowns *countdowns, unsigned class)
{
    int64_t left = countdowns->left[class] - (int64_t)class_size(class);

    if (HAK_UNLIKELY(left < 0))
        return false;
    countdowns->left[class] = left;
    return true;
}

/* Counts a call for a block of the class. True: the call is a sample, and *weight is its weight. draw: the thread's. */
HAK_HIDDEN bool profile_count_call(struct countdowns *countdowns, struct draw *draw, unsigned class, uint64_t *weight);

/* Draws for `count` blocks at once. True, nearly always: none is a sample. False: the caller draws for each. */
HAK_INLINE bool profile_draw_passes(struct draw *draw, size_t size, size_t count)
{
    int64_t bytes = (int64_t)(size * count);

    if (HAK_UNLIKELY(draw->generation != profile_generation() || draw->countdown < bytes))
        return false;
    draw->countdown -= bytes;
    draw->calls += (uint32_t)count;
    return true;
}

/* Draws for a block of `size` bytes that no cache holds: its weight as a sample, or 0. draw: the thread's, or NULL. */
HAK_HIDDEN uint64_t profile_draw_call(struct draw *draw, size_t size);

/* Whether the calling thread is inside the profiler (Z4). */
HAK_HIDDEN bool profile_busy(void);
HAK_HIDDEN void profile_set_busy(bool is_busy);

/* Records a block as a sample with the calling thread's stack. The caller has set the record's address, size, weight,
 * class, heap and foreign. stacks, labels: the thread's; stacks, *stacks and labels may be NULL. False: memory is out,
 * and there is no record. Holding no lock. */
HAK_HIDDEN bool profile_note(struct record *record, struct stack_memory **stacks, const struct label_set *labels);

/* Removes the block's record; `by` is the freeing thread. False: the block is no sample. Holding no lock. */
HAK_HIDDEN bool profile_forget(const void *block, struct caller by, struct record *record);
HAK_HIDDEN void profile_forget_heap(struct heap *heap);

/* Milliseconds of the clock that lifetimes are measured with. */
HAK_HIDDEN uint64_t profile_now_ms(void);

/* An address that the calling thread's next sample gets as its leaf, in front of the stack; NULL: none. */
HAK_DATA _Thread_local const void *profile_site __attribute__((tls_model("initial-exec")));

#endif
