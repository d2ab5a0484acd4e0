/*
 * The patterns of the source documents: a list of block sizes is allocated in order, a number of blocks at a time, and
 * freed in the same order.
 */
#ifndef BENCH_DOCUMENTS_H
#define BENCH_DOCUMENTS_H

#include "common.h"

enum { LIST_MOST = 5000, PAGE = 4096, PATTERNS = 4, SIZES_MOST = 5 };
enum pattern_name { PATTERN_JSON, PATTERN_MIR, PATTERN_MIXED, PATTERN_MF2 };
/* What a program writes of each block. */
enum touch { TOUCH_NOTHING, TOUCH_FIRST_BYTE, TOUCH_PAGES };

struct pattern {
    const char *name;
    uint32_t blocks;
    uint32_t run; /* number of blocks of a size before the next size */
    uint64_t iterations;
    unsigned sizes;
    size_t size[SIZES_MOST];
};

static const struct pattern patterns[PATTERNS] = {
    [PATTERN_JSON] = { "json", 1000, 1000, 1000, 1, { 64 << 10 } },
    [PATTERN_MIR] = { "mir", 100, 100, 10000, 1, { 256 << 10 } },
    [PATTERN_MIXED] = { "mixed", 1000, 1, 5000, 5, { 16, 512, 8 << 10, 128 << 10, 1 << 10 } },
    [PATTERN_MF2] = { "mf2", 5000, 1000, 500, 5, { 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10 } },
};

static const struct pattern *pattern;
static void *blocks[LIST_MOST];
static uint32_t held; /* how many blocks are allocated before they are freed, at least 1 */
static unsigned touch;
static bool verify; /* blocks check themselves, and are written whole */

static void *new_block(uint32_t number)
{
    size_t size = pattern->size[number / pattern->run % pattern->sizes];
    if (verify)
        return bench_block_new(size, number);
    volatile char *block = malloc(size);
    if (block == NULL)
        bench_fail("malloc(%zu) failed", size);
    if (touch == TOUCH_FIRST_BYTE)
        block[0] = 1;
    if (touch == TOUCH_PAGES) {
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

#endif
