/* Memory that was given back stays given back. khugepaged, a kernel thread, can turn one remaining small page into a
 * huge page where huge pages are requested. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <hakmem/hakmem.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bounds.h"

#define HUGE_PAGE (2 * MIB)
enum { PAGE = 4096, BLOCK = 1024, BLOCKS = 131072, GROUP = 1024, KEPT = 64 };

/* Bytes that huge pages in place of the resident small pages would add in [start, end). */
static size_t room_in(uintptr_t start, uintptr_t end)
{
    static unsigned char pages[HUGE_PAGE / PAGE];
    size_t bytes = 0;

    for (start = (start + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1); start + HUGE_PAGE <= end; start += HUGE_PAGE) {
        size_t resident = 0;
        CHECK(mincore((void *)start, HUGE_PAGE, pages) == 0, "mincore of %#zx", (size_t)start);
        for (size_t i = 0; i < sizeof pages; i++)
            resident += pages[i] & 1;
        if (resident != 0)
            bytes += HUGE_PAGE - resident * PAGE;
    }
    return bytes;
}

/* The same sum over all mappings that request huge pages. */
static size_t room_for_huge_pages(void)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[4096];
    uintptr_t start = 0, end = 0, from, to;
    size_t bytes = 0, flags = 0;

    CHECK(file != NULL, "open /proc/self/smaps");
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
            start = from;
            end = to;
        } else if (strncmp(line, "VmFlags:", 8) == 0) {
            flags++;
            if (strstr(line, " hg") != NULL)
                bytes += room_in(start, end);
        }
    }
    fclose(file);
    CHECK(flags > 0, "no VmFlags in /proc/self/smaps");
    return bytes;
}

/* First units leave, with 64 KiB in use in each MiB. Then pages of slabs leave, with one block of 64 in use. */
void case_given_back(void)
{
    static void *blocks[BLOCKS];
    struct chains chains = { .usable = 0 };
    struct chance chance;
    size_t start = bounds_start();

    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = hak_malloc(BLOCK);
        CHECK(blocks[i] != NULL, "no block of %d bytes", BLOCK);
        memset(blocks[i], 1, BLOCK);
    }
    chance_start(&chance, 1);
    chains_fill(&chains, &chance, 128 * MIB, 16, KIB, bounds_malloc, NULL);
    bounds_note("held while all blocks live", bounds_above(support_rss(), start));
    for (size_t i = 0; i < BLOCKS; i++)
        if (i % GROUP >= KEPT)
            hak_free(blocks[i]);
    chains_free_but_one(&chains);
    bounds_idle();
    bounds_handful();
    bounds_idle();
    bounds_handful();
    bounds_note("held when most are freed, after twice the purge delay, twice", bounds_above(support_rss(), start));
    bounds_figure("could come back in huge pages", room_for_huge_pages(), 6 * MIB);
}
