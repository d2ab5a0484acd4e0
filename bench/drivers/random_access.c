/*
 * Random reads of a large heap: allocates blocks of 64-1,024 B until MIB mebibytes are live, then replaces a random
 * CHURN per cent by blocks of other sizes. Then it links all blocks into one ring in random order and follows the ring
 * for ACCESSES steps. Each step depends on the one before, so it costs a cache miss, and a TLB miss unless the block
 * lies on a huge page.
 *
 * One operation is one step, and the time covers only the steps; fill_ms is the time of everything before. huge_kib and
 * huge_percent are the part of RSS on transparent huge pages (AnonHugePages) after the steps. thp is the kernel's
 * setting: 0 never, 1 madvise, 2 always. With 1, an allocator gets huge pages only where it asks for them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common.h"

enum { SIZE_LEAST = 64, SIZE_MOST = 1024, MIB_MOST = 1 << 15 };
/* The average size of a block is about 512 bytes. */
enum { BLOCKS_MOST = MIB_MOST / 512 << 20 };

/* The beginning of a block. */
struct link {
    struct link *next;
    uint64_t size;
};

static struct link *blocks[BLOCKS_MOST];
static size_t count, live;

static struct link *new_block(uint64_t *state)
{
    size_t size = SIZE_LEAST + bench_scale((uint32_t)(bench_random(state) >> 32), SIZE_MOST - SIZE_LEAST + 1);
    struct link *block = malloc(size);
    if (block == NULL)
        bench_fail("malloc(%zu) failed with %zu MiB live", size, live >> 20);
    memset(block, 0, size);
    block->size = size;
    live += size;
    return block;
}

static void free_block(struct link *block)
{
    live -= block->size;
    free(block);
}

static size_t any_block(uint64_t *state)
{
    return (size_t)(((__uint128_t)bench_random(state) * count) >> 64);
}

static void fill(uint64_t *state, size_t bytes, uint64_t churn)
{
    while (live < bytes && count < BLOCKS_MOST)
        blocks[count++] = new_block(state);
    for (size_t left = count / 100 * churn; left > 0; left--) {
        size_t at = any_block(state);
        free_block(blocks[at]);
        blocks[at] = new_block(state);
    }
}

/* A shuffled table gives the order. Its memory is given back before the steps, so that no figure includes it. */
static struct link *link_ring(uint64_t *state)
{
    for (size_t i = count - 1; i > 0; i--) {
        size_t other = (size_t)(((__uint128_t)bench_random(state) * (i + 1)) >> 64);
        struct link *kept = blocks[i];
        blocks[i] = blocks[other];
        blocks[other] = kept;
    }
    for (size_t i = 0; i < count; i++)
        blocks[i]->next = blocks[i + 1 < count ? i + 1 : 0];
    struct link *first = blocks[0];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)blocks + page - 1) & ~(page - 1);
    size_t to = (uintptr_t)(blocks + count) & ~(page - 1);
    if (from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
    return first;
}

static uint64_t thp_setting(void)
{
    char text[64] = "";
    int file = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    return length <= 0 || strstr(text, "[never]") != NULL ? 0 : strstr(text, "[madvise]") != NULL ? 1 : 2;
}

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 4,
        "[MIB] [ACCESSES] [CHURN] [SEED]\n"
        "  random access to MIB MiB of small blocks, CHURN per cent replaced before (default 2048 10000000 25 42)");
    size_t bytes = bench_argument(argc, argv, 1, "MIB", 2048, 1, MIB_MOST) << 20;
    uint64_t accesses = bench_argument(argc, argv, 2, "ACCESSES", 10000000, 0, UINT64_C(1) << 40);
    uint64_t churn = bench_argument(argc, argv, 3, "CHURN", 25, 0, 1000);
    uint64_t state = bench_seed(bench_argument(argc, argv, 4, "SEED", 42, 0, UINT64_MAX), 0);
    uint64_t began = bench_now_ns(), sum = 0;
    struct bench_run bench;

    fill(&state, bytes, churn);
    struct link *at = link_ring(&state);
    uint64_t filled = bench_now_ns();
    bench_begin(&bench, "random_access");
    for (uint64_t i = 0; i < accesses; i++) {
        sum += at->size;
        at = at->next;
    }
    bench_end(&bench, accesses);
    long huge = bench_own_kib("/proc/self/smaps_rollup", "AnonHugePages:"), rss = bench_rss_kib();
    bench_extra(&bench, "live_kib", live >> 10);
    bench_extra(&bench, "fill_ms", (filled - began) / 1000000);
    bench_extra(&bench, "huge_kib", huge < 0 ? 0 : (uint64_t)huge);
    bench_extra(&bench, "huge_percent", huge < 0 || rss <= 0 ? 0 : (uint64_t)(huge * 100 / rss));
    bench_extra(&bench, "thp", thp_setting());
    bench_extra(&bench, "checksum", sum);

    size_t freed = 0;
    for (struct link *next; freed < count; freed++, at = next) {
        if (at->size < SIZE_LEAST || at->size > SIZE_MOST)
            bench_fail("block %p lost its contents", (void *)at);
        next = at->next;
        free_block(at);
    }
    if (live != 0)
        bench_fail("a block lost its contents: %zu bytes more were allocated than freed", live);
    bench_report(&bench);
    return 0;
}
