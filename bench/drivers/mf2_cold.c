/*
 * test_mf2, as in the source documents: one thread allocates BLOCKS blocks each of 2, 4, 8, 16 and 32 KiB, writes the
 * first byte of each, and frees them in the order of allocation. Nothing runs before. On HAKMEM it prints how many
 * allocations the thread's cache served, what became of the frees, and what the pending queues did. No thread frees
 * another's blocks here, so the queues stay empty; bench_mf2 is the program that fills them.
 */
#define _GNU_SOURCE
#include "pool_figures.h"

#include <unistd.h>

enum { SIZES = 5, SIZE_LEAST = 2 << 10, BLOCKS_MOST = 100000 };

static void *blocks[SIZES * BLOCKS_MOST];

static void run_once(uint32_t each)
{
    for (uint32_t i = 0; i < SIZES * each; i++) {
        size_t size = (size_t)SIZE_LEAST << i / each;
        volatile char *block = malloc(size);
        if (block == NULL)
            bench_fail("malloc(%zu) failed", size);
        block[0] = (char)i;
        blocks[i] = (void *)block;
    }
    for (uint32_t i = 0; i < SIZES * each; i++) {
        if (*(const char *)blocks[i] != (char)i)
            bench_fail("block %u lost its contents", i);
        free(blocks[i]);
    }
}

static void report_mf2(struct bench_run *run, const struct pool_figures *before, const struct pool_figures *after,
                       uint32_t each)
{
    const struct hak_stats *from = &before->stats, *to = &after->stats;
    uint64_t all = SIZES * (uint64_t)each, slow = to->malloc_misses - from->malloc_misses;
    uint64_t remote = to->remote_out - from->remote_out;
    const struct {
        const char *key, *about;
        uint64_t value;
    } rows[] = {
        { "fast_hits", "allocations that the thread's cache served", all - slow },
        { "slow_hits", "allocations that took a refill", slow },
        { "new_pages", "slabs carved", to->slabs_carved - from->slabs_carved },
        { "owner_frees", "blocks that their owner's thread freed", all - remote },
        { "remote_frees", "blocks that another thread freed", remote },
        { "pending_enqueued", "slabs put into a pending queue", to->pending_enqueued - from->pending_enqueued },
        { "pending_drained", "slabs taken out of it", to->pending_drained - from->pending_drained },
        { "pending_requeued", "of those, passed on to a new owner", to->pending_requeued - from->pending_requeued },
    };

    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dprintf(STDOUT_FILENO, "  mf2: %-16s %8llu  %s\n", rows[i].key, (unsigned long long)rows[i].value,
                rows[i].about);
        bench_extra(run, rows[i].key, rows[i].value);
    }
}

int main(int argc, char **argv)
{
    static struct pool_figures before, after;

    bench_usage(argc, argv, 1,
                "[BLOCKS]\n"
                "  BLOCKS blocks each of 2, 4, 8, 16 and 32 KiB, allocated and freed once by one thread, and MF2's\n"
                "  figures (default 1000)");
    uint32_t each = (uint32_t)bench_argument(argc, argv, 1, "BLOCKS", 1000, 1, BLOCKS_MOST);
    struct bench_run bench;

    bool counted = pool_figures_read(&before);
    bench_begin(&bench, "test_mf2");
    run_once(each);
    bench_end(&bench, 2 * SIZES * (uint64_t)each);
    if (counted) {
        pool_figures_read(&after);
        report_mf2(&bench, &before, &after, each);
    } else {
        dprintf(STDOUT_FILENO, "  mf2: this allocator is not HAKMEM and has no such figures\n");
    }
    bench_report(&bench);
    return 0;
}
