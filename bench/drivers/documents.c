/*
 * The patterns of the source documents (documents.h) with any number of blocks held: HELD 1 frees each block before the
 * next allocation, HELD 0 holds the whole list.
 *
 *   json    1,000 blocks of 64 KiB
 *   mir     100 blocks of 256 KiB
 *   mixed   1,000 blocks of 16 B, 512 B, 8 KiB, 128 KiB and 1 KiB in turn
 *   mf2     1,000 blocks each of 2, 4, 8, 16 and 32 KiB
 *
 * TOUCH 1 writes the first byte of each block, 2 a byte of each page and the last byte, 0 nothing. An untimed list
 * comes first. With BENCH_VERIFY=1, blocks check themselves.
 */
#include "documents.h"

static const char *const pattern_names[PATTERNS + 1] = { "json", "mir", "mixed", "mf2", NULL };

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 4,
                "[PATTERN] [ITERATIONS] [HELD] [TOUCH]\n"
                "  the documents' patterns json, mir, mixed and mf2, HELD blocks at a time (0: all); TOUCH 0 writes\n"
                "  nothing, 1 a byte of each block, 2 of each page (default json 1000 0 1)");
    pattern = &patterns[bench_choice(argc, argv, 1, "PATTERN", 0, pattern_names)];
    uint64_t iterations = bench_argument(argc, argv, 2, "ITERATIONS", pattern->iterations, 0, UINT64_C(1) << 40);
    held = (uint32_t)bench_argument(argc, argv, 3, "HELD", 0, 0, LIST_MOST);
    touch = (unsigned)bench_argument(argc, argv, 4, "TOUCH", TOUCH_FIRST_BYTE, TOUCH_NOTHING, TOUCH_PAGES);
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
