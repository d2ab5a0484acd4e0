/*
 * bench_mf2: pages whose blocks are freed by other threads than their owner. There are THREADS lines of GENERATIONS
 * threads, one after another. Each thread allocates blocks of 2 to 32 KiB, and one in four of 64 to 2048 B.
 *
 * Of eight blocks, four go into another thread's mailbox. The receiver frees them, or another sender that finds the
 * place taken. The thread keeps three and frees them after a while. The line keeps one. A thread ends without freeing
 * what it keeps, so its pages have live blocks and no owner. Its successor frees those blocks while it allocates its
 * own, and other lines still free blocks in these pages. In each generation one line is silent between its two halves
 * until all others are done: its pages get remote frees while no thread allocates from them.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>

#include "common.h"

enum {
    THREADS_MOST = 128,
    MAILBOX_SLOTS = 64,
    KEPT_SLOTS = 64,
    LINE_SLOTS = 32,
    MIDDLE_LEAST = 2 * 1024,
    MIDDLE_OCTAVES = 4,
    SMALL_LEAST = 64,
    SMALL_MOST = 2048
};

struct line {
    pthread_t thread;
    uint64_t random;
    uint64_t freed; /* blocks that this line's threads freed */
    bool silent;
    void *kept[KEPT_SLOTS];
    void *lasting[LINE_SLOTS];
    _Alignas(64) _Atomic(void *) mailbox[MAILBOX_SLOTS];
};

static struct line lines[THREADS_MOST];
static unsigned lines_count;
static uint64_t blocks_each;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t others_done = PTHREAD_COND_INITIALIZER;
static unsigned others_running; /* lines of this generation that are not silent */

static void *block_new(struct line *line, uint64_t serial)
{
    uint64_t random = bench_random(&line->random);
    uint32_t bits = (uint32_t)(random >> 32);
    if (random % 4 == 0)
        return bench_block_new(SMALL_LEAST + bench_scale(bits, SMALL_MOST - SMALL_LEAST + 1), serial);
    size_t from = (size_t)MIDDLE_LEAST << (random >> 2) % MIDDLE_OCTAVES;
    return bench_block_new(from + bench_scale(bits, (uint32_t)from + 1), serial);
}

static void send(struct line *from, void *block)
{
    uint64_t random = bench_random(&from->random);
    unsigned other = bench_scale((uint32_t)random, lines_count - 1);
    struct line *to = &lines[((unsigned)(from - lines) + 1 + other) % lines_count];
    from->freed += bench_block_free(atomic_exchange(&to->mailbox[random >> 58], block));
}

static void receive(struct line *line, uint64_t turn)
{
    _Atomic(void *) *place = &line->mailbox[turn % MAILBOX_SLOTS];
    if (atomic_load_explicit(place, memory_order_relaxed) != NULL)
        line->freed += bench_block_free(atomic_exchange(place, NULL));
}

static void keep(struct line *line, void **slots, uint32_t count, void *block)
{
    void **slot = &slots[bench_scale((uint32_t)(bench_random(&line->random) >> 32), count)];
    line->freed += bench_block_free(*slot);
    *slot = block;
}

static void work(struct line *line, uint64_t from, uint64_t upto)
{
    for (uint64_t i = from; i < upto; i++) {
        void *block = block_new(line, i);
        uint64_t fate = bench_random(&line->random) >> 61;
        if (fate < 4 && lines_count > 1)
            send(line, block);
        else if (fate < 7)
            keep(line, line->kept, KEPT_SLOTS, block);
        else
            keep(line, line->lasting, LINE_SLOTS, block);
        receive(line, i);
    }
}

static void *line_main(void *argument)
{
    struct line *line = argument;

    work(line, 0, blocks_each / 2);
    if (line->silent) {
        pthread_mutex_lock(&lock);
        while (others_running > 0)
            pthread_cond_wait(&others_done, &lock);
        pthread_mutex_unlock(&lock);
    }
    work(line, blocks_each / 2, blocks_each);
    if (!line->silent) {
        pthread_mutex_lock(&lock);
        if (--others_running == 0)
            pthread_cond_broadcast(&others_done);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static uint64_t line_clear(struct line *line)
{
    uint64_t freed = 0;
    for (unsigned i = 0; i < KEPT_SLOTS; i++)
        freed += bench_block_free(line->kept[i]);
    for (unsigned i = 0; i < LINE_SLOTS; i++)
        freed += bench_block_free(line->lasting[i]);
    for (unsigned i = 0; i < MAILBOX_SLOTS; i++)
        freed += bench_block_free(atomic_exchange(&line->mailbox[i], NULL));
    return freed;
}

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 4,
        "[THREADS] [BLOCKS] [GENERATIONS] [SEED]\n"
        "  blocks of 2-32 KiB freed by other threads than their owners, and owners that exit; BLOCKS a thread,\n"
        "  GENERATIONS of THREADS threads (default 4 20000 20 42)");
    lines_count = (unsigned)bench_argument(argc, argv, 1, "THREADS", 4, 1, THREADS_MOST);
    blocks_each = bench_argument(argc, argv, 2, "BLOCKS", 20000, 0, UINT64_C(1) << 40);
    uint64_t generations = bench_argument(argc, argv, 3, "GENERATIONS", 20, 0, UINT64_C(1) << 16);
    uint64_t seed = bench_argument(argc, argv, 4, "SEED", 42, 0, UINT64_MAX);
    uint64_t allocated = generations * lines_count * blocks_each, freed = 0;
    struct bench_run bench;

    bench_begin(&bench, "mf2");
    for (uint64_t generation = 0; generation < generations; generation++) {
        others_running = lines_count > 1 ? lines_count - 1 : 1;
        for (unsigned i = 0; i < lines_count; i++) {
            lines[i].random = bench_seed(seed, generation * lines_count + i);
            lines[i].silent = lines_count > 1 && i == generation % lines_count;
            int error = pthread_create(&lines[i].thread, NULL, line_main, &lines[i]);
            if (error != 0)
                bench_fail("pthread_create: %s", strerror(error));
        }
        for (unsigned i = 0; i < lines_count; i++)
            pthread_join(lines[i].thread, NULL);
    }
    for (unsigned i = 0; i < lines_count; i++)
        freed += line_clear(&lines[i]) + lines[i].freed;
    if (freed != allocated)
        bench_fail("%llu blocks were allocated, %llu freed", (unsigned long long)allocated, (unsigned long long)freed);
    bench_end(&bench, allocated + freed);
    bench_report(&bench);
    return 0;
}
