/*
 * Memory: what is resident where a program writes little of its blocks, changes its sizes, or has freed most of them.
 *
 *   sparse BLOCKS SIZE WRITTEN       BLOCKS of SIZE bytes, the first WRITTEN of each written
 *   zeroed BLOCKS SIZE WRITTEN       the same with calloc, freed and taken four times; each must read as zero there
 *   payload SIZE MIB                 MIB of blocks of SIZE bytes, all written
 *   random THREADS BLOCKS MOST       each thread holds BLOCKS of 4 KiB to MOST bytes, a byte of each written
 *   cache THREADS SIZE MIB           a cache of MIB, whose oldest entry (SIZE bytes and a header) makes place for a new
 *                                    one, until each place was taken eight times
 *   phases MIB                       MIB of blocks of 1000 bytes, all freed; then of another size; nine sizes
 *   shifting MIB ROUNDS              MIB live; in each round a random half makes place for blocks of other sizes
 *   spike OTHERS SIZE MIB            MIB of blocks of SIZE bytes, written and freed, beside OTHERS threads that wait
 *   scattered OTHERS MIB             the same with blocks of 16 to 1,024 bytes, freed in random order
 *   tenth BLOCKS SIZE                BLOCKS of SIZE bytes, written; all but each tenth freed
 *
 * `full_kib` says what the pattern added to RSS when it was highest, `live_kib` what it had written in live blocks
 * then, `freed_kib` what stays when it has freed what it frees, `held_kib` the same after IDLE_MS without a call, or
 * after BENCH_IDLE_MS if that is set.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

enum { TABLE_MOST = 1 << 23, IDLE_MS = 1500, HEADER = 64, TURNS = 8, ROUNDS = 4, KIB = 1024, MIB = 1024 * 1024 };

static void *table[TABLE_MOST];
static size_t sizes[TABLE_MOST];
static struct bench_run run;
static long start_kib, full_kib;
static uint64_t operations, live_bytes, live_at_full;

/* ---- Blocks ---- */

static void take(size_t place, size_t size, size_t written)
{
    char *block = malloc(size);
    if (block == NULL)
        bench_fail("malloc(%zu) failed", size);
    memset(block, 1, written);
    table[place] = block;
    sizes[place] = size;
}

static void drop(size_t place)
{
    free(table[place]);
    table[place] = NULL;
}

static void note_full(void)
{
    long now = bench_rss_kib() - start_kib;
    if (now > full_kib) {
        full_kib = now;
        live_at_full = live_bytes;
    }
}

/* Touches what of the table will be used, so that it is no part of the figures. */
static void begin(const char *pattern, size_t places)
{
    if (places > TABLE_MOST)
        bench_fail("%zu blocks are more than %d", places, (int)TABLE_MOST);
    memset(table, 0, places * sizeof *table);
    memset(sizes, 1, places * sizeof *sizes);
    /* The first use of stdio and of an allocator is no part of them, either. */
    free(malloc(100));
    start_kib = bench_rss_kib();
    bench_begin(&run, pattern);
}

/* Ends the run: of `places`, all but those of which `kept` is a divisor are freed; 0: all. */
static void end(size_t places, size_t kept)
{
    note_full();
    for (size_t i = 0; i < places; i++)
        if (table[i] && (kept == 0 || i % kept != 0)) {
            drop(i);
            operations++;
        }
    bench_end(&run, operations);
    long freed_kib = bench_rss_kib() - start_kib;
    const char *idle = getenv("BENCH_IDLE_MS");
    usleep((useconds_t)(idle ? strtoul(idle, NULL, 10) : IDLE_MS) * 1000);
    long held_kib = bench_rss_kib() - start_kib;
    bench_extra(&run, "full_kib", full_kib > 0 ? (uint64_t)full_kib : 0);
    bench_extra(&run, "live_kib", live_at_full / KIB);
    bench_extra(&run, "freed_kib", freed_kib > 0 ? (uint64_t)freed_kib : 0);
    bench_extra(&run, "held_kib", held_kib > 0 ? (uint64_t)held_kib : 0);
    bench_report(&run);
}

/* ---- Patterns of one thread ---- */

static void hold(const char *pattern, size_t count, size_t size, size_t written, size_t kept)
{
    begin(pattern, count);
    for (size_t i = 0; i < count; i++)
        take(i, size, written);
    operations = count;
    live_bytes = (uint64_t)count * written;
    end(count, kept);
}

static void zeroed(size_t count, size_t size, size_t written)
{
    begin("zeroed", count);
    live_bytes = (uint64_t)count * written;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < count; i++) {
            char *block = calloc(1, size);
            if (block == NULL)
                bench_fail("calloc(1, %zu) failed", size);
            for (size_t byte = 0; byte < written; byte++)
                if (block[byte] != 0)
                    bench_fail("calloc(1, %zu): byte %zu is not 0", size, byte);
            memset(block, 1, written);
            table[i] = block;
        }
        note_full();
        for (size_t i = 0; i < count; i++)
            drop(i);
        operations += 2 * count;
    }
    end(0, 0);
}

static void phases(size_t mib)
{
    static const size_t each[] = {1000, 50000, 200, 150000, 3000, 700000, 40, 20000, 5000};
    size_t most = mib * MIB / 40;
    begin("phases", most);
    for (unsigned phase = 0; phase < sizeof each / sizeof *each; phase++) {
        size_t count = mib * MIB / each[phase];
        for (size_t i = 0; i < count; i++)
            take(i, each[phase], each[phase]);
        live_bytes = count * each[phase];
        note_full();
        for (size_t i = 0; i < count; i++)
            drop(i);
        operations += 2 * count;
    }
    live_bytes = 0;
    end(0, 0);
}

static void shifting(size_t mib, uint64_t rounds)
{
    uint64_t random = bench_seed(42, 0), most = mib * MIB;
    size_t places = 0;
    begin("shifting", mib * MIB / 16);
    for (uint64_t round = 0; round < rounds; round++) {
        /* From 16 to 64 KiB, each power of two as likely. */
        size_t least = (size_t)16 << bench_scale((uint32_t)(bench_random(&random) >> 32), 13);
        for (size_t i = 0; i < places; i++)
            if (table[i] && bench_random(&random) >> 63) {
                live_bytes -= sizes[i];
                drop(i);
                operations++;
            }
        for (size_t i = 0; live_bytes < most && i < mib * MIB / 16; i++)
            if (table[i] == NULL) {
                size_t size = least + bench_scale((uint32_t)(bench_random(&random) >> 32), (uint32_t)least);
                take(i, size, size);
                live_bytes += size;
                operations++;
                if (i >= places)
                    places = i + 1;
            }
        note_full();
    }
    end(places, 0);
}

/* ---- Patterns of threads ---- */

struct worker {
    unsigned number;
};
static struct worker workers[BENCH_THREADS_MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t held, looked_at;
static size_t blocks_each, size_most, places_all, hand, turns_left, value_size;

static void random_main(void *argument)
{
    const struct worker *worker = argument;
    uint64_t random = bench_seed(42, worker->number);
    size_t first = worker->number * blocks_each;
    for (size_t i = 0; i < blocks_each; i++) {
        uint32_t bits = (uint32_t)(bench_random(&random) >> 32);
        take(first + i, 4 * KIB + bench_scale(bits, (uint32_t)size_most - 4 * KIB + 1), 1);
    }
    pthread_barrier_wait(&held);
    pthread_barrier_wait(&looked_at);
    for (size_t i = 0; i < blocks_each; i++)
        drop(first + i);
}

/* The table's even places hold headers, the odd ones values. */
static void cache_main(void *argument)
{
    (void)argument;
    for (;;) {
        char *header = malloc(HEADER), *value = malloc(value_size);
        if (header == NULL || value == NULL)
            bench_fail("malloc(%zu) failed", value_size);
        memset(header, 1, HEADER);
        memset(value, 1, value_size);
        pthread_mutex_lock(&lock);
        bool done = turns_left == 0;
        if (!done) {
            turns_left--;
            size_t place = 2 * hand;
            void *old_header = table[place], *old_value = table[place + 1];
            table[place] = header;
            table[place + 1] = value;
            hand = hand + 1 == places_all ? 0 : hand + 1;
            pthread_mutex_unlock(&lock);
            header = old_header;
            value = old_value;
        } else {
            pthread_mutex_unlock(&lock);
        }
        free(header);
        free(value);
        if (done)
            return;
    }
}

static void start(const char *pattern, size_t places, unsigned threads, void (*body)(void *))
{
    for (unsigned i = 0; i < threads; i++)
        workers[i].number = i;
    begin(pattern, places);
    bench_begin_threads(&run, pattern, threads, body, workers, sizeof *workers);
}

static void random_sizes(unsigned threads)
{
    pthread_barrier_init(&held, NULL, threads + 1);
    pthread_barrier_init(&looked_at, NULL, threads + 1);
    operations = 2 * threads * blocks_each;
    live_bytes = threads * blocks_each;
    start("random", threads * blocks_each, threads, random_main);
    pthread_barrier_wait(&held);
    note_full();
    pthread_barrier_wait(&looked_at);
    bench_join_threads();
    end(0, 0);
}

static void cache(unsigned threads, size_t mib)
{
    places_all = mib * MIB / value_size;
    turns_left = TURNS * places_all;
    operations = 4 * turns_left;
    live_bytes = places_all * (value_size + HEADER);
    start("cache", 2 * places_all, threads, cache_main);
    bench_join_threads();
    /* Between the turns RSS is the same as after the last. */
    end(2 * places_all, 0);
}

static void *waiting_main(void *unused)
{
    pause();
    return unused;
}

static void start_waiting(unsigned others)
{
    for (unsigned i = 0; i < others; i++) {
        pthread_t thread;
        int error = pthread_create(&thread, NULL, waiting_main, NULL);
        if (error != 0)
            bench_fail("pthread_create: %s", strerror(error));
    }
    if (others > 0)
        usleep(IDLE_MS * 1000); /* until what an allocator starts at a thread's beginning has settled */
}

static void scattered(size_t mib)
{
    enum { LEAST = 16, MOST = 1024 };
    uint64_t random = bench_seed(42, 0), most = mib * MIB;
    size_t count = 0;
    begin("scattered", mib * MIB / LEAST);
    for (; live_bytes < most; count++) {
        size_t size = LEAST + bench_scale((uint32_t)bench_random(&random), MOST - LEAST + 1);
        take(count, size, size);
        live_bytes += size;
    }
    operations = count;
    note_full();
    for (size_t i = count - 1; i > 0; i--) {
        size_t other = bench_scale((uint32_t)bench_random(&random), (uint32_t)i + 1);
        void *block = table[i];
        table[i] = table[other];
        table[other] = block;
    }
    end(count, 0);
}

/* ---- The command ---- */

static uint64_t number(int argc, char **argv, int index, const char *name, uint64_t lowest, uint64_t highest)
{
    if (index >= argc)
        bench_fail("%s is missing", name);
    return bench_argument(argc, argv, index, name, lowest, lowest, highest);
}

int main(int argc, char **argv)
{
    static const char *const patterns[] = {"sparse", "zeroed", "payload", "random", "cache", "phases",
                                           "shifting", "spike", "scattered", "tenth", NULL};
    bench_usage(argc, argv, 4, "PATTERN A B C, as bench/drivers/memory.c lists them");
    const char *pattern = patterns[bench_choice(argc, argv, 1, "PATTERN", 0, patterns)];
    const uint64_t size = (uint64_t)1 << 30, mib = 1 << 13;
    if (strcmp(pattern, "sparse") == 0) {
        hold(pattern, number(argc, argv, 2, "BLOCKS", 1, TABLE_MOST), number(argc, argv, 3, "SIZE", 1, size),
             number(argc, argv, 4, "WRITTEN", 1, size), 0);
    } else if (strcmp(pattern, "zeroed") == 0) {
        zeroed(number(argc, argv, 2, "BLOCKS", 1, TABLE_MOST), number(argc, argv, 3, "SIZE", 1, size),
               number(argc, argv, 4, "WRITTEN", 1, size));
    } else if (strcmp(pattern, "payload") == 0) {
        size_t each = number(argc, argv, 2, "SIZE", 1, size);
        hold(pattern, number(argc, argv, 3, "MIB", 1, mib) * MIB / each, each, each, 0);
    } else if (strcmp(pattern, "tenth") == 0) {
        size_t each = number(argc, argv, 3, "SIZE", 1, size);
        hold(pattern, number(argc, argv, 2, "BLOCKS", 1, TABLE_MOST), each, each, 10);
    } else if (strcmp(pattern, "random") == 0) {
        blocks_each = number(argc, argv, 3, "BLOCKS", 1, TABLE_MOST / BENCH_THREADS_MOST);
        size_most = number(argc, argv, 4, "MOST", 4 * KIB, size);
        random_sizes((unsigned)number(argc, argv, 2, "THREADS", 1, BENCH_THREADS_MOST));
    } else if (strcmp(pattern, "cache") == 0) {
        value_size = number(argc, argv, 3, "SIZE", 64, size);
        cache((unsigned)number(argc, argv, 2, "THREADS", 1, BENCH_THREADS_MOST), number(argc, argv, 4, "MIB", 1, mib));
    } else if (strcmp(pattern, "phases") == 0) {
        phases(number(argc, argv, 2, "MIB", 1, 320));
    } else if (strcmp(pattern, "shifting") == 0) {
        shifting(number(argc, argv, 2, "MIB", 1, 128), number(argc, argv, 3, "ROUNDS", 1, 1 << 20));
    } else if (strcmp(pattern, "scattered") == 0) {
        start_waiting((unsigned)number(argc, argv, 2, "OTHERS", 0, 1 << 14));
        scattered(number(argc, argv, 3, "MIB", 1, 128));
    } else {
        size_t each = number(argc, argv, 3, "SIZE", 1, size);
        start_waiting((unsigned)number(argc, argv, 2, "OTHERS", 0, 1 << 14));
        hold("spike", number(argc, argv, 4, "MIB", 1, mib) * MIB / each, each, each, 0);
    }
    return 0;
}
