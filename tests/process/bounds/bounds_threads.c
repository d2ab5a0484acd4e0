/* Memory bounds of processes with several threads. */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>
#include <string.h>

#include "bounds.h"

/* Size ranges for the rounds: freed memory must serve other classes than before. */
static const struct {
    size_t low, high;
} ranges[] = { { 16, 128 }, { 128, KIB }, { KIB, 8 * KIB }, { 8 * KIB, 32 * KIB }, { 32 * KIB, 512 * KIB },
               { 16, 32 * KIB } };
enum { RANGES = sizeof ranges / sizeof ranges[0] };

/* ---- A thread that only frees ---- */

/* Allocating threads hand one chain at a time to the thread that frees. */
struct hand {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct chains *chains; /* NULL: the freeing thread has finished the last one */
    bool ended;
};
static struct hand hand = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void *run_only_frees(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&hand.lock);
    for (;;) {
        while (hand.chains == NULL && !hand.ended)
            pthread_cond_wait(&hand.changed, &hand.lock);
        if (hand.chains == NULL)
            break;
        chains_free(hand.chains);
        hand.chains = NULL;
        pthread_cond_broadcast(&hand.changed);
    }
    pthread_mutex_unlock(&hand.lock);
    return NULL;
}

static void hand_over(struct chains *chains)
{
    pthread_mutex_lock(&hand.lock);
    hand.chains = chains;
    pthread_cond_broadcast(&hand.changed);
    while (hand.chains != NULL)
        pthread_cond_wait(&hand.changed, &hand.lock);
    pthread_mutex_unlock(&hand.lock);
}

static void hand_end(pthread_t freer)
{
    pthread_mutex_lock(&hand.lock);
    hand.ended = true;
    pthread_cond_broadcast(&hand.changed);
    pthread_mutex_unlock(&hand.lock);
    support_join(freer);
}

/* One mix of sizes: 1.2 x the live peak and the freer's cache. Shifting sizes: what the footprint's rule (N2) lets
 * wait, as in bounds_change.c, and both threads' caches. They run without huge pages, with which the peak moves by
 * whole huge pages from run to run. */
static void judge_peak(bool shifting, size_t start, size_t live_peak, size_t asked_peak)
{
    size_t aim = live_peak + live_peak / 5 + CACHE_BYTES;

    bounds_note("live peak, bytes asked for", asked_peak);
    bounds_note("live peak, usable bytes", live_peak);
    bounds_note("1.2 x live peak and the freer's cache", aim);
    bounds_figure("peak above the start", bounds_above(bounds_peak(), start),
                  shifting ? live_peak + live_peak * 27 / 100 + 10 * MIB + 2 * CACHE_BYTES : aim);
}

/* The size range of a turn. The last range holds all sizes that are not spans. */
static unsigned range_of(bool shifting, unsigned turn)
{
    return shifting ? turn % RANGES : RANGES - 1;
}

/* A moving window of live blocks: the other thread frees the oldest sixteenth, this thread allocates a new one. */
static void only_frees_window(bool shifting)
{
    enum { PARTS = 16, TURNS = 12 };
    const size_t window = 96 * MIB;
    static struct chains parts[PARTS];
    struct chance chance;
    pthread_t freer = support_thread(run_only_frees, NULL);
    size_t start = bounds_start();
    size_t live_peak = 0;
    size_t asked_peak = 0;

    chance_start(&chance, 1);
    bounds_peak_reset();
    for (unsigned turn = 0; turn < TURNS; turn++) {
        for (unsigned part = 0; part < PARTS; part++) {
            size_t live = 0;
            size_t asked = 0;

            if (parts[part].usable != 0)
                hand_over(&parts[part]);
            chains_fill(&parts[part], &chance, window / PARTS, ranges[range_of(shifting, turn)].low,
                        ranges[range_of(shifting, turn)].high, bounds_malloc, NULL);
            for (unsigned i = 0; i < PARTS; i++) {
                live += parts[i].usable;
                asked += parts[i].asked;
            }
            live_peak = live > live_peak ? live : live_peak;
            asked_peak = asked > asked_peak ? asked : asked_peak;
        }
    }
    judge_peak(shifting, start, live_peak, asked_peak);
    for (unsigned part = 0; part < PARTS; part++)
        hand_over(&parts[part]);
    hand_end(freer);
}

/* This thread allocates everything and the other frees it, repeatedly. */
static void only_frees_rounds(bool shifting)
{
    enum { TURNS = 18 };
    struct chains chains = { .usable = 0 };
    struct chance chance;
    pthread_t freer = support_thread(run_only_frees, NULL);
    size_t start = bounds_start();
    size_t live_peak = 0;
    size_t asked_peak = 0;

    chance_start(&chance, 2);
    bounds_peak_reset();
    for (unsigned turn = 0; turn < TURNS; turn++) {
        chains_fill(&chains, &chance, 96 * MIB, ranges[range_of(shifting, turn)].low,
                    ranges[range_of(shifting, turn)].high, bounds_malloc, NULL);
        live_peak = chains.usable > live_peak ? chains.usable : live_peak;
        asked_peak = chains.asked > asked_peak ? chains.asked : asked_peak;
        hand_over(&chains);
    }
    judge_peak(shifting, start, live_peak, asked_peak);
    hand_end(freer);
}

void case_only_frees_window(void)
{
    only_frees_window(false);
}

void case_only_frees_window_shifting(void)
{
    only_frees_window(true);
}

void case_only_frees_rounds(void)
{
    only_frees_rounds(false);
}

void case_only_frees_rounds_shifting(void)
{
    only_frees_rounds(true);
}

/* ---- Threads that allocate and die ---- */

enum { DYING_THREADS = 1000, DYING_AT_ONCE = 8 };

struct mortal {
    struct chance chance;
    struct chains freed_here;
    struct chains left;
    bool leaves;
    bool warms_up;
};

static void *run_mortal(void *argument)
{
    struct mortal *self = argument;
    char stack[16 * KIB];

    /* Touches the stack that libc keeps for the next thread. */
    memset(stack, (int)(uintptr_t)self, sizeof stack);
    __asm__ volatile("" : : "r"(stack) : "memory");
    if (self->warms_up)
        return NULL;
    chains_fill(&self->freed_here, &self->chance, 2 * MIB, 16, 32 * KIB, bounds_malloc, NULL);
    chains_fill(&self->freed_here, &self->chance, 3 * MIB, 32 * KIB, 600 * KIB, bounds_malloc, NULL);
    if (self->leaves)
        chains_fill(&self->left, &self->chance, 512 * KIB, 16, 32 * KIB, bounds_malloc, NULL);
    chains_free(&self->freed_here);
    return NULL;
}

static void run_mortals(bool leaves, bool warms_up, unsigned count)
{
    static struct mortal mortals[DYING_AT_ONCE];
    pthread_t threads[DYING_AT_ONCE];

    for (unsigned done = 0; done < count; done += DYING_AT_ONCE) {
        for (unsigned i = 0; i < DYING_AT_ONCE; i++) {
            mortals[i] = (struct mortal){ .leaves = leaves, .warms_up = warms_up };
            chance_start(&mortals[i].chance, done + i);
            threads[i] = support_thread(run_mortal, &mortals[i]);
        }
        for (unsigned i = 0; i < DYING_AT_ONCE; i++)
            support_join(threads[i]);
        for (unsigned i = 0; i < DYING_AT_ONCE; i++)
            chains_free(&mortals[i].left);
    }
}

static void threads_die(bool leaves)
{
    size_t start;

    run_mortals(leaves, true, DYING_AT_ONCE);
    start = bounds_start();
    bounds_peak_reset();
    run_mortals(leaves, false, DYING_THREADS);
    bounds_note("peak above the start", bounds_above(bounds_peak(), start));
    bounds_note("left at once by 1,000 threads", bounds_above(support_rss(), start));
    bounds_idle();
    bounds_handful();
    /* This thread's cache may hold 1 MiB. */
    bounds_figure("left by 1,000 threads after twice the purge delay", bounds_above(support_rss(), start),
                  MIB + 3 * MIB / 2);
}

void case_threads_die(void)
{
    threads_die(false);
}

/* The main thread frees a part of each thread's blocks after its death. */
void case_threads_die_remote(void)
{
    threads_die(true);
}

/* ---- Threads that sleep ---- */

enum {
    SLEEPERS = 8,
    PURGE_LOOKS = 2400, /* half a second apart: a purge thread that has done nothing by then never will */
};
#define SLEEPER_BYTES (32 * MIB)

struct sleeper {
    struct chains chains;
    struct chance chance;
    bool frees_itself;
    bool says_idle;
};
static pthread_barrier_t sleepers_barrier; /* for the sleepers and main */
static pthread_mutex_t sleepers_night = PTHREAD_MUTEX_INITIALIZER;

static void *run_sleeper(void *argument)
{
    struct sleeper *self = argument;

    pthread_barrier_wait(&sleepers_barrier); /* main measures the start */
    pthread_barrier_wait(&sleepers_barrier);
    chains_fill(&self->chains, &self->chance, SLEEPER_BYTES / 2, 16, 32 * KIB, bounds_malloc, NULL);
    chains_fill(&self->chains, &self->chance, SLEEPER_BYTES, 16, 600 * KIB, bounds_malloc, NULL);
    if (self->frees_itself)
        chains_free(&self->chains);
    if (self->says_idle)
        hak_thread_idle();
    pthread_barrier_wait(&sleepers_barrier);
    pthread_mutex_lock(&sleepers_night); /* until main releases it */
    pthread_mutex_unlock(&sleepers_night);
    return NULL;
}

struct night {
    bool frees_itself; /* otherwise main frees all blocks */
    bool says_idle;
    bool main_is_active;
    size_t bound;
};

static void sleep_through(struct night night)
{
    static struct sleeper sleepers[SLEEPERS];
    pthread_t threads[SLEEPERS];
    size_t start;

    pthread_barrier_init(&sleepers_barrier, NULL, SLEEPERS + 1);
    pthread_mutex_lock(&sleepers_night);
    for (unsigned i = 0; i < SLEEPERS; i++) {
        sleepers[i] = (struct sleeper){ .frees_itself = night.frees_itself, .says_idle = night.says_idle };
        chance_start(&sleepers[i].chance, i);
        threads[i] = support_thread(run_sleeper, &sleepers[i]);
    }
    pthread_barrier_wait(&sleepers_barrier);
    start = bounds_start();
    pthread_barrier_wait(&sleepers_barrier);
    pthread_barrier_wait(&sleepers_barrier); /* the sleepers have finished their work and fall asleep */
    if (!night.frees_itself) {
        bounds_note("held while all blocks live", bounds_above(support_rss(), start));
        for (unsigned i = 0; i < SLEEPERS; i++)
            chains_free(&sleepers[i].chains);
    }
    bounds_note("held when all blocks are freed", bounds_above(support_rss(), start));
    if (night.main_is_active) {
        bounds_idle();
        bounds_handful();
        bounds_figure("held by 8 sleepers when another thread is active", bounds_above(support_rss(), start),
                      night.bound);
    } else {
        size_t held;
        unsigned looks = 0;

        do /* The purge thread comes without a call. On a loaded machine it may run later. */
            support_sleep_ms(PURGE_DELAY_MS);
        while ((held = bounds_above(support_rss(), start)) > night.bound && ++looks < PURGE_LOOKS);
        bounds_figure("held by 8 sleepers when nobody is active", held, night.bound);
    }
    pthread_mutex_unlock(&sleepers_night);
    for (unsigned i = 0; i < SLEEPERS; i++)
        support_join(threads[i]);
}

/* A sleeper may keep its cache, and the slabs that its cached blocks pin. */
#define SLEEPERS_BOUND (SLEEPERS * 4 * CACHE_BYTES)

void case_sleepers(void)
{
    sleep_through((struct night){ .frees_itself = true, .main_is_active = true, .bound = SLEEPERS_BOUND });
}

void case_sleepers_remote(void)
{
    sleep_through((struct night){ .frees_itself = false, .main_is_active = true, .bound = SLEEPERS_BOUND });
}

void case_sleepers_idle(void)
{
    sleep_through((struct night){ .frees_itself = true, .says_idle = true, .main_is_active = true,
                                  .bound = 2 * MIB });
}

/* By default, without any call: the purge thread comes and goes by itself. */
void case_quiet(void)
{
    sleep_through((struct night){ .frees_itself = true, .main_is_active = false, .bound = SLEEPERS_BOUND });
}

void case_purge_thread(void)
{
    sleep_through((struct night){ .frees_itself = true, .main_is_active = false, .bound = SLEEPERS_BOUND });
}
