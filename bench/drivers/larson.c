/*
 * Larson and Krishnan, "Memory Allocation for Long-Running Server Applications" (ISMM 1998): THREADS lines of threads,
 * each with CHUNKS blocks that its first thread got from the main thread. A thread replaces CHUNKS * ROUNDS random
 * blocks of its line by new ones of MIN..MAX bytes, then starts its successor and exits. So threads come and go, and
 * blocks are mostly freed by other threads than those that allocated them.
 *
 * Runs for SLEEP seconds. TURNS and OPS give a fixed amount of work instead: until each line has had TURNS threads, or
 * until OPS operations are done, equally many in each line.
 * One operation is one malloc or free, as everywhere in bench/. The original counts replacements, which are two.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "common.h"

enum { THREADS_MOST = 256, CHUNKS_MOST = 1 << 16 };

struct line {
    void **chunks;
    uint64_t random;
    uint64_t operations;
    uint64_t turns;
    uint64_t replacements_left;
};

static void *chunk_table[THREADS_MOST][CHUNKS_MOST];
static struct line lines[THREADS_MOST];
static uint32_t chunks_each;
static uint32_t size_least, size_range;
static uint64_t rounds, turns_most;
static atomic_bool stop;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static unsigned lines_running;

/* The first word names the line and the chunk, so the smallest block has 8 bytes. */
static uint64_t mark(const struct line *line, uint32_t chunk)
{
    return (uint64_t)(line - lines) << 32 | chunk;
}

static void *chunk_new(struct line *line, uint32_t chunk)
{
    uint32_t size = size_least + bench_scale((uint32_t)bench_random(&line->random), size_range);
    void *block = malloc(size);
    if (block == NULL)
        bench_fail("malloc(%u) failed", size);
    uint64_t word = mark(line, chunk);
    memcpy(block, &word, sizeof word);
    return block;
}

static void chunk_free(const struct line *line, uint32_t chunk)
{
    uint64_t word;
    memcpy(&word, line->chunks[chunk], sizeof word);
    if (word != mark(line, chunk))
        bench_fail("line %u: chunk %u lost its contents", (unsigned)(line - lines), chunk);
    free(line->chunks[chunk]);
}

static void thread_start(struct line *line);

static void *thread_main(void *argument)
{
    struct line *line = argument;
    uint64_t replacements = chunks_each * rounds;
    if (replacements > line->replacements_left)
        replacements = line->replacements_left;
    uint64_t done = 0;

    while (done < replacements && !atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint32_t chunk = bench_scale((uint32_t)(bench_random(&line->random) >> 32), chunks_each);
        chunk_free(line, chunk);
        line->chunks[chunk] = chunk_new(line, chunk);
        done++;
    }
    line->operations += 2 * done;
    line->turns++;
    line->replacements_left -= done;

    bool over = line->replacements_left == 0 || (turns_most > 0 && line->turns >= turns_most) ||
                atomic_load_explicit(&stop, memory_order_relaxed);
    if (!over) {
        thread_start(line);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    if (--lines_running == 0)
        pthread_cond_signal(&ended);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void thread_start(struct line *line)
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attributes, thread_main, line);
    if (error != 0)
        bench_fail("pthread_create: %s", strerror(error));
    pthread_attr_destroy(&attributes);
}

/* Line i's share of the replacements. All replacements, of two operations each, make at least `operations`. */
static uint64_t replacements_of(uint64_t operations, unsigned threads, unsigned i)
{
    uint64_t whole = operations / 2 + operations % 2;
    return whole / threads + (i < whole % threads);
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 9,
                "[SLEEP] [MIN] [MAX] [CHUNKS] [ROUNDS] [SEED] [THREADS] [TURNS] [OPS]\n"
                "  server simulation (default 2 8 128 1024 1 12345 4 0 0); with TURNS > 0 a fixed number of threads a "
                "line,\n  with OPS > 0 (when SLEEP and TURNS are 0) a fixed number of operations, not SLEEP seconds");
    unsigned seconds = (unsigned)bench_argument(argc, argv, 1, "SLEEP", 2, 0, 86400);
    size_least = (uint32_t)bench_argument(argc, argv, 2, "MIN", 8, 8, 1 << 30);
    uint32_t size_most = (uint32_t)bench_argument(argc, argv, 3, "MAX", 128, size_least, 1 << 30);
    chunks_each = (uint32_t)bench_argument(argc, argv, 4, "CHUNKS", 1024, 1, CHUNKS_MOST);
    rounds = bench_argument(argc, argv, 5, "ROUNDS", 1, 1, 1 << 30);
    uint64_t seed = bench_argument(argc, argv, 6, "SEED", 12345, 0, UINT64_MAX);
    unsigned threads = (unsigned)bench_argument(argc, argv, 7, "THREADS", 4, 1, THREADS_MOST);
    turns_most = bench_argument(argc, argv, 8, "TURNS", 0, 0, UINT64_MAX);
    uint64_t operations_most = bench_argument(argc, argv, 9, "OPS", 0, 0, UINT64_MAX);
    if (operations_most > 0 && (seconds > 0 || turns_most > 0)) {
        dprintf(STDERR_FILENO, "larson: OPS needs SLEEP and TURNS to be 0\n");
        return 2;
    }
    size_range = size_most - size_least + 1;

    for (unsigned i = 0; i < threads; i++) {
        lines[i].chunks = chunk_table[i];
        lines[i].random = bench_seed(seed, i);
        lines[i].replacements_left = operations_most == 0 ? UINT64_MAX : replacements_of(operations_most, threads, i);
        for (uint32_t chunk = 0; chunk < chunks_each; chunk++)
            lines[i].chunks[chunk] = chunk_new(&lines[i], chunk);
    }

    struct bench_run bench;
    bench_begin(&bench, "larson");
    lines_running = threads;
    for (unsigned i = 0; i < threads; i++)
        thread_start(&lines[i]);
    if (turns_most == 0 && operations_most == 0) {
        sleep(seconds);
        atomic_store_explicit(&stop, true, memory_order_relaxed);
    }
    pthread_mutex_lock(&lock);
    while (lines_running > 0)
        pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);

    uint64_t operations = 0;
    uint64_t turns = 0;
    for (unsigned i = 0; i < threads; i++) {
        operations += lines[i].operations;
        turns += lines[i].turns;
    }
    bench_end(&bench, operations);

    for (unsigned i = 0; i < threads; i++)
        for (uint32_t chunk = 0; chunk < chunks_each; chunk++)
            chunk_free(&lines[i], chunk);
    dprintf(STDOUT_FILENO, "larson: %llu threads lived\n", (unsigned long long)turns);
    bench_report(&bench);
    return 0;
}
