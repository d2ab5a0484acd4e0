/*
 * Entry points: what one call takes, other than malloc and free too.
 *
 *   bench_entries ENTRY SIZE [CALLS] [LIVE]
 *
 * ENTRY is a NAME in bench/drivers/entries.h. An operation is that row's CALL, with what stands BEFORE and AFTER it.
 * The program makes LIVE of them before it undoes them: with 1, a thread's cache serves each call; with more blocks
 * than a cache holds, most calls go beyond it. The first two rounds are not timed. An allocator that lacks the
 * function has 0 operations.
 */
#define _GNU_SOURCE
#include "common.h"
#include "entries.h"

enum { LIVE_MOST = 100000, UNTIMED_ROUNDS = 2, SIZE_LEAST = 8 };

static struct entry_place places[LIVE_MOST];

/* Makes `rounds` rounds of `live` operations. Returns false without the function. */
#define DEFINE(name, there, before, call, after)                                                                       \
    static bool run_##name(size_t size, uint64_t rounds, size_t live)                                                  \
    {                                                                                                                  \
        struct entry_place *at, *end = places + live;                                                                  \
        (void)size;                                                                                                    \
        if (!(there))                                                                                                  \
            return false;                                                                                              \
        for (; rounds > 0; rounds--) {                                                                                 \
            for (at = places; at < end; at++) {                                                                        \
                before;                                                                                                \
                call;                                                                                                  \
            }                                                                                                          \
            for (at = places; at < end; at++) {                                                                        \
                after;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        return true;                                                                                                   \
    }
ENTRIES(DEFINE)

#define NAME(name, there, before, call, after) #name,
static const char *const names[] = {ENTRIES(NAME) NULL};
#define RUN(name, there, before, call, after) run_##name,
static bool (*const runs[])(size_t, uint64_t, size_t) = {ENTRIES(RUN)};

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 4, "ENTRY SIZE [CALLS] [LIVE], as bench/drivers/entries.c explains them");
    unsigned which = bench_choice(argc, argv, 1, "ENTRY", 0, names);
    size_t size = bench_argument(argc, argv, 2, "SIZE", 64, SIZE_LEAST, (size_t)1 << 30);
    uint64_t calls = bench_argument(argc, argv, 3, "CALLS", 500000, 1, UINT64_C(1) << 40);
    size_t live = bench_argument(argc, argv, 4, "LIVE", 1, 1, LIVE_MOST);
    uint64_t rounds = (calls + live - 1) / live;
    struct bench_run run;

    /* The C++ library's operators, for an allocator that has none of its own. Without the library they are missing. */
    dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL);
    entries_find();
    for (size_t i = 0; i < live; i++) {
        places[i].block = malloc(size);
        if (places[i].block == NULL)
            bench_fail("malloc(%zu) failed", size);
    }
    bool there = runs[which](size, UNTIMED_ROUNDS, live);
    bench_begin(&run, names[which]);
    if (there)
        runs[which](size, rounds, live);
    bench_end(&run, there ? rounds * live : 0);
    for (size_t i = 0; i < live; i++)
        free(places[i].block);
    bench_report(&run);
    return 0;
}
