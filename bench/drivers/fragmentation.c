/*
 * Fragmentation over a long run: PHASES phases, each with another range of sizes, up and down between 16 B and 64 KiB.
 * Each phase allocates blocks until LIVE_KIB are live, replaces half as many at random, and frees all but SURVIVORS of
 * 1000, which stay until the end. RESULT says what is live then (live_kib) and what the process holds (rss_end_kib).
 * The tables are touched before the run, so that rss_delta_kib does not include them.
 */
#include "common.h"

enum { SIZE_LEAST = 16, LIVE_KIB_MOST = 64 * 1024, SURVIVORS_MOST = 1 << 22 };
enum { BLOCKS_MOST = LIVE_KIB_MOST * 1024 / SIZE_LEAST };

struct range {
    uint32_t least, most;
};

static const struct range ranges[] = {
    { 16, 64 },  { 256, 1024 },  { 4096, 16384 }, { 64, 256 },   { 1024, 4096 },  { 16384, 65536 },
    { 48, 512 }, { 2048, 8192 }, { 16, 32 },      { 512, 2048 }, { 8192, 32768 }, { 128, 128 },
};

static void *blocks[BLOCKS_MOST];
static void *survivors[SURVIVORS_MOST];
static uint64_t operations, live_bytes;
static uint32_t survivor_count;

static void *block_new(uint64_t *state, const struct range *range, uint64_t serial)
{
    uint32_t bits = (uint32_t)(bench_random(state) >> 32);
    size_t size = range->least + bench_scale(bits, range->most - range->least + 1);
    operations++;
    live_bytes += size;
    return bench_block_new(size, serial);
}

static void block_free(void *block)
{
    live_bytes -= bench_block_check(block);
    operations += bench_block_free(block);
}

static void run_phase(uint64_t *state, const struct range *range, uint64_t target, uint32_t permille)
{
    uint32_t count = 0;
    uint64_t before = live_bytes;

    while (live_bytes - before < target) {
        blocks[count] = block_new(state, range, count);
        count++;
    }
    for (uint32_t i = 0; i < count / 2; i++) {
        uint32_t slot = bench_scale((uint32_t)(bench_random(state) >> 32), count);
        block_free(blocks[slot]);
        blocks[slot] = block_new(state, range, slot);
    }
    for (uint32_t i = 0; i < count; i++) {
        bool survives = bench_scale((uint32_t)(bench_random(state) >> 32), 1000) < permille;
        if (!survives) {
            block_free(blocks[i]);
            continue;
        }
        if (survivor_count == SURVIVORS_MOST)
            bench_fail("PHASES and SURVIVORS make more than %d survivors", (int)SURVIVORS_MOST);
        survivors[survivor_count++] = blocks[i];
    }
}

int main(int argc, char **argv)
{
    bench_usage(
        argc, argv, 4,
        "[PHASES] [LIVE_KIB] [SURVIVORS] [SEED]\n"
        "  sizes that shift from phase to phase; SURVIVORS of 1000 blocks outlive theirs (default 24 6144 20 42)");
    uint64_t phases = bench_argument(argc, argv, 1, "PHASES", 24, 0, UINT64_MAX);
    uint64_t target = bench_argument(argc, argv, 2, "LIVE_KIB", 6144, 1, LIVE_KIB_MOST) * 1024;
    uint32_t permille = (uint32_t)bench_argument(argc, argv, 3, "SURVIVORS", 20, 0, 1000);
    uint64_t state = bench_seed(bench_argument(argc, argv, 4, "SEED", 42, 0, UINT64_MAX), 0);
    struct bench_run bench;

    uint64_t entries = target / SIZE_LEAST;
    memset(blocks, 1, entries * sizeof blocks[0]);
    memset(survivors, 1, entries * sizeof survivors[0]);

    bench_begin(&bench, "fragmentation");
    for (uint64_t phase = 0; phase < phases; phase++)
        run_phase(&state, &ranges[phase % (sizeof ranges / sizeof ranges[0])], target, permille);
    bench_end(&bench, operations);
    if (bench.rss_after_kib < 0)
        bench_fail("/proc/self/status cannot be read");
    bench_extra(&bench, "live_kib", live_bytes / 1024);
    bench_extra(&bench, "rss_end_kib", (uint64_t)bench.rss_after_kib);

    for (uint32_t i = 0; i < survivor_count; i++)
        bench_block_free(survivors[i]);
    bench_report(&bench);
    return 0;
}
