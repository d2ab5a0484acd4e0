/*
 * The patterns of the source documents, exactly: a list of block sizes is allocated in order, HELD blocks at a time,
 * and freed in the same order. HELD 1 frees each block before the next allocation, HELD 0 holds the whole list.
 *
 *   json    1,000 blocks of 64 KiB
 *   mir     100 blocks of 256 KiB
 *   mixed   1,000 blocks of 16 B, 512 B, 8 KiB, 128 KiB and 1 KiB in turn
 *   mf2     1,000 blocks each of 2, 4, 8, 16 and 32 KiB
 *
 * TOUCH 1 writes the first byte of each block, 2 a byte of each page and the last byte, 0 nothing. An untimed list
 * comes first. With BENCH_VERIFY=1, blocks check themselves.
 */
#include "common.h"

enum { LIST_MOST = 5000, PAGE = 4096, PATTERNS = 4, SIZES_MOST = 5 };

struct pattern {
    const char *name;
    uint32_t blocks;
    uint32_t run; /* number of blocks of a size before the next size */
    uint64_t iterations;
    unsigned sizes;
    size_t size[SIZES_MOST];
};

static const struct pattern patterns[PATTERNS] = {
    { "json", 1000, 1000, 1000, 1, { 64 << 10 } },
    { "mir", 100, 100, 10000, 1, { 256 << 10 } },
    { "mixed", 1000, 1, 5000, 5, { 16, 512, 8 << 10, 128 << 10, 1 << 10 } },
    { "mf2", 5000, 1000, 500, 5, { 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10 } },
};
static const char *const pattern_names[PATTERNS + 1] = { "json", "mir", "mixed", "mf2", NULL };

static void *blocks[LIST_MOST];
static const struct pattern *pattern;
static uint32_t held;
static unsigned touch;
static bool verify;

static void *new_block(uint32_t number)
{
    size_t size = pattern->size[number / pattern->run % pattern->sizes];
    if (verify)
        return bench_block_new(size, number);
    volatile char *block = malloc(size);
    if (block == NULL)
        bench_fail("malloc(%zu) failed", size);
    if (touch == 1)
        block[0] = 1;
    if (touch == 2) {
        for (size_t at = 0; at < size; at += PAGE)
            block[at] = 1;
        block[size - 1] = 1;
    }
    return (void *)block;
}

static void free_block(void *block)
{
    if (verify)
        bench_block_free(block);
    else
        free(block);
}

static void whole_list(void)
{
    for (uint32_t from = 0; from < pattern->blocks; from += held) {
        uint32_t to = from + held < pattern->blocks ? from + held : pattern->blocks;
        for (uint32_t i = from; i < to; i++)
            blocks[i] = new_block(i);
        for (uint32_t i = from; i < to; i++)
            free_block(blocks[i]);
    }
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 4,
                "[PATTERN] [ITERATIONS] [HELD] [TOUCH]\n"
                "  the documents' patterns json, mir, mixed and mf2, HELD blocks at a time (0: all); TOUCH 0 writes\n"
                "  nothing, 1 a byte of each block, 2 of each page (default json 1000 0 1)");
    pattern = &patterns[bench_choice(argc, argv, 1, "PATTERN", 0, pattern_names)];
    uint64_t iterations = bench_argument(argc, argv, 2, "ITERATIONS", pattern->iterations, 0, UINT64_C(1) << 40);
    held = (uint32_t)bench_argument(argc, argv, 3, "HELD", 0, 0, LIST_MOST);
    touch = (unsigned)bench_argument(argc, argv, 4, "TOUCH", 1, 0, 2);
    verify = bench_verify_wanted();
    if (held == 0 || held > pattern->blocks)
        held = pattern->blocks;
    uint64_t bytes = 0;
    struct bench_run bench;

    for (uint32_t i = 0; i < pattern->blocks; i++)
        bytes += pattern->size[i / pattern->run % pattern->sizes];
    whole_list();
    bench_begin(&bench, pattern->name);
    for (uint64_t i = 0; i < iterations; i++)
        whole_list();
    bench_end(&bench, 2 * iterations * pattern->blocks);
    bench_extra(&bench, "bytes", bytes * iterations);
    bench_report(&bench);
    return 0;
}
