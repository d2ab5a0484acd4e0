/*
 * The cycle profile: how long single calls of malloc and free take, and the slow paths inside them. Builds with
 * HAKMEM_CYCLES have it, and HAKMEM_TINY_PROFILE turns it on. In other builds the hooks are empty.
 *
 * Each thread counts into its own log-linear histograms: ticks below 64 are exact, and above that each doubling has 32
 * buckets.
 *
 * Y1: a thread's record is written by that thread alone, with plain stores that anyone may read meanwhile. Threads
 *     before their first cache and after their end count into one record for all, with atomic additions.
 * Y2: a record is never freed. The next thread that gets it counts on, so the sum over all records includes threads
 *     that ended.
 * Y3: a call counts once, under the kind that it turned out to be. Parts count in addition, inside calls and outside.
 */
#ifndef HAK_OS_CYCLES_H
#define HAK_OS_CYCLES_H

#include "os/os.h"

#if defined(HAKMEM_BUILD_CYCLES) && HAKMEM_BUILD_CYCLES
enum { HAK_CYCLES = 1 };
#else
enum { HAK_CYCLES = 0 };
#endif

enum cycles_kind {
    /* Calls: hits are the fast path's, of any size that is cached; large: spans that it did not serve. */
    CYCLES_MALLOC_HIT,
    CYCLES_MALLOC_MISS,
    CYCLES_MALLOC_LARGE,
    CYCLES_MALLOC_HUGE,
    CYCLES_FREE_HIT,
    CYCLES_FREE_MISS,
    CYCLES_FREE_LARGE,
    CYCLES_FREE_HUGE,
    CYCLES_FREE_NULL,
    CYCLES_HEAP_MALLOC,  /* of a first-class heap, of any size */
    CYCLES_REALLOC_STAY, /* the block is where it was, or realloc failed */
    CYCLES_REALLOC_MOVE,
    CYCLES_MALLOC_BATCH, /* a call each, however many blocks */
    CYCLES_FREE_BATCH,
    /* Parts: a flush has the remote frees that end it, a refill the drain and the flushes that precede it. */
    CYCLES_REFILL,
    CYCLES_FLUSH,
    CYCLES_REMOTE, /* a batch of blocks sent to slabs of other heaps */
    CYCLES_DRAIN,  /* other threads' frees are collected */
    CYCLES_KINDS
};

enum {
    CYCLES_EXACT = 64,    /* ticks below it have a bucket each */
    CYCLES_PER_OCTAVE = 32,
    CYCLES_BITS = 40,     /* values of more bits count in the last bucket; the maximum stays exact */
    CYCLES_BUCKETS = CYCLES_EXACT + (CYCLES_BITS - 6) * CYCLES_PER_OCTAVE,
};

struct cycles_histogram {
    uint64_t sum, most; /* ticks */
    uint64_t buckets[CYCLES_BUCKETS];
};

HAK_INLINE unsigned cycles_bucket(uint64_t ticks)
{
    unsigned high;

    if (ticks < CYCLES_EXACT)
        return (unsigned)ticks;
    high = base_high_bit(ticks);
    if (high >= CYCLES_BITS)
        return CYCLES_BUCKETS - 1;
    return CYCLES_EXACT + (high - 6) * CYCLES_PER_OCTAVE + (unsigned)(ticks >> (high - 5)) - CYCLES_PER_OCTAVE;
}

/* The lowest value that counts in the bucket. For CYCLES_BUCKETS: the first value that only the last bucket counts. */
HAK_INLINE uint64_t cycles_bucket_low(unsigned bucket)
{
    unsigned above = bucket - CYCLES_EXACT;

    if (bucket < CYCLES_EXACT)
        return bucket;
    return (uint64_t)(CYCLES_PER_OCTAVE + above % CYCLES_PER_OCTAVE) << (above / CYCLES_PER_OCTAVE + 1);
}

/* The processor's counter, which runs at a fixed rate. Everything before the read is finished, and nothing after it has
 * begun. */
HAK_INLINE uint64_t cycles_now(void)
{
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
    uint64_t now;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(now) : : "memory");
    return now;
#elif defined(__riscv)
    uint64_t now;
    __asm__ volatile("fence\n\trdtime %0\n\tfence" : "=r"(now) : : "memory");
    return now;
#else
    return os_now();
#endif
}

/* ---- The life of the process and its threads. While the profile is off, these do nothing ---- */

/* Measures the cost of measuring, and starts the profile. The thread that initialises the process calls it once. */
HAK_HIDDEN void cycles_start(void);
/* Gives the calling thread its own record, if there is memory for one; and takes it back. */
HAK_HIDDEN void cycles_thread_begin(void);
HAK_HIDDEN void cycles_thread_end(void);
/* In the child of a fork: clears all counts; the other threads are gone. */
HAK_HIDDEN void cycles_reset_after_fork(void);

/* ---- Hooks ---- */

HAK_DATA bool cycles_on;
/* the kind of the call under way, as far as it is known */
HAK_DATA _Thread_local uint8_t cycles_call __attribute__((tls_model("initial-exec")));

struct cycles_scope {
    uint64_t start; /* 0: not timed */
    uint8_t kind;   /* of a part */
    uint8_t outer;  /* of a call: the kind of the call around it, if there is one */
};

/* Counts in the thread's histograms. */
HAK_HIDDEN void cycles_add(enum cycles_kind kind, uint64_t ticks);

HAK_INLINE struct cycles_scope cycles_call_begin(enum cycles_kind kind)
{
    struct cycles_scope scope = { 0, (uint8_t)kind, cycles_call };
    cycles_call = (uint8_t)kind;
    scope.start = cycles_now();
    return scope;
}

HAK_INLINE void cycles_call_end(struct cycles_scope *scope)
{
    uint64_t ticks = cycles_now() - scope->start;
    cycles_add((enum cycles_kind)cycles_call, ticks);
    cycles_call = scope->outer;
}

HAK_INLINE struct cycles_scope cycles_part_begin(enum cycles_kind kind)
{
    return (struct cycles_scope){ HAK_UNLIKELY(cycles_on) ? cycles_now() : 0, (uint8_t)kind, 0 };
}

HAK_INLINE void cycles_part_end(struct cycles_scope *scope)
{
    if (HAK_UNLIKELY(scope->start != 0))
        cycles_add((enum cycles_kind)scope->kind, cycles_now() - scope->start);
}

/* CYCLES_CALL(kind, statement...): runs the statements, which leave the function; while the profile is on, as a timed
 * call. CYCLES_CALL_IS(kind): the call under way is of that kind. CYCLES_PART(kind): the rest of the block is a
 * part. */
#if defined(HAKMEM_BUILD_CYCLES) && HAKMEM_BUILD_CYCLES
#define CYCLES_CALL(kind, ...)                                                                      \
    do {                                                                                            \
        if (HAK_UNLIKELY(cycles_on)) {                                                              \
            struct cycles_scope cycles_scope_                                                       \
                __attribute__((cleanup(cycles_call_end), unused)) = cycles_call_begin(kind);        \
            __VA_ARGS__;                                                                            \
        }                                                                                           \
        __VA_ARGS__;                                                                                \
    } while (0)
#define CYCLES_CALL_IS(kind) ((void)(cycles_call = (uint8_t)(kind)))
#define CYCLES_PART(kind) \
    struct cycles_scope cycles_scope_ __attribute__((cleanup(cycles_part_end), unused)) = cycles_part_begin(kind)
#else
#define CYCLES_CALL(kind, ...) do { __VA_ARGS__; } while (0)
#define CYCLES_CALL_IS(kind) ((void)0)
#define CYCLES_PART(kind) ((void)0)
#endif

/* ---- For reports ---- */

/* Adds up all records. While other threads run, the sum is of nearly one moment. */
HAK_HIDDEN void cycles_merge(enum cycles_kind kind, struct cycles_histogram *sum);
/* The same, added to what is in *sum already. */
HAK_HIDDEN void cycles_merge_more(enum cycles_kind kind, struct cycles_histogram *sum);

HAK_HIDDEN uint64_t cycles_count(const struct cycles_histogram *histogram);
/* The value that `percent` of the counts do not exceed: the middle of its bucket, at most the maximum. 0 if there are
 * no counts. */
HAK_HIDDEN uint64_t cycles_quantile(const struct cycles_histogram *histogram, unsigned percent);

struct cycles_overhead {
    uint64_t empty_least, empty_median; /* ticks that timing nothing reads; the least is taken off every figure */
    uint64_t call_median;               /* ticks that timing and counting a call costs the thread */
};
HAK_DATA struct cycles_overhead cycles_overhead;

/* Ticks of the counter in a second. The first call may wait until 10 ms after the start, when the rate is known. */
HAK_HIDDEN uint64_t cycles_frequency(void);

#endif
