/* mallctl's figures equal those of hak_stats, and its errors follow jemalloc's manual. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <hakmem/stats.h>
#include <jemalloc/jemalloc.h>

#include "check.h"

#define ALL "stats.arenas.4096."

static uint64_t epoch(void)
{
    uint64_t number = 1;
    size_t size = sizeof number;

    CHECK(mallctl("epoch", &number, &size, &number, sizeof number) == 0);
    return number;
}

static size_t get(const char *name)
{
    size_t value = 0, size = sizeof value;

    if (mallctl(name, &value, &size, NULL, 0) != 0) {
        uint32_t narrow;
        size = sizeof narrow;
        if (mallctl(name, &narrow, &size, NULL, 0) != 0) {
            fprintf(stderr, "no %s\n", name);
            exit(1);
        }
        return narrow;
    }
    return value;
}

static size_t get_of(const char *format, unsigned number)
{
    char name[96];

    snprintf(name, sizeof name, format, number);
    return get(name);
}

static void errors(void)
{
    size_t value, size = sizeof value, mib[8], length = 8, narrow = 4;
    uint64_t number = 1;

    CHECK(mallctl("no.such", NULL, NULL, NULL, 0) == ENOENT && mallctl("stats", NULL, NULL, NULL, 0) == ENOENT);
    CHECK(mallctl("stats.allocated", &value, &size, &value, sizeof value) == EPERM);
    CHECK(mallctl("stats.allocated", &value, &narrow, NULL, 0) == EINVAL && narrow == 4);
    CHECK(mallctl("epoch", NULL, NULL, &number, 4) == EINVAL);
    CHECK(mallctl("thread.tcache.flush", &value, &size, NULL, 0) == EPERM);
    CHECK(mallctl("arenas.bin.9999.size", &value, &size, NULL, 0) == ENOENT);
    CHECK(mallctl("arena.7.purge", NULL, NULL, NULL, 0) == ENOENT);
    CHECK(mallctl("arena.0.reset", NULL, NULL, NULL, 0) == EFAULT &&
          mallctl("arena.0.destroy", NULL, NULL, NULL, 0) == EFAULT);
    CHECK(mallctlnametomib("no.such", mib, &length) == ENOENT);
    CHECK(mallctlbymib(mib, 0, NULL, NULL, NULL, 0) == ENOENT);
}

/* The numbers in a MIB may be replaced. */
/* The MIB of the name in a room of `room` numbers: checks its length, and that nothing behind it was written. */
static void partial_mib(const char *name, size_t room, size_t expected, size_t *mib)
{
    size_t length = room;

    memset(mib, 0xa5, 8 * sizeof *mib);
    CHECK(mallctlnametomib(name, mib, &length) == 0 && length == expected);
    for (size_t i = expected; i < 8; i++)
        CHECK(mib[i] == (size_t)0xa5a5a5a5a5a5a5a5);
}

static void no_mib(const char *name, size_t room)
{
    size_t mib[8], length = room;

    CHECK(mallctlnametomib(name, mib, &length) == ENOENT && length == room);
}

/* A MIB of fewer numbers than the name has parts begins the whole one, and MIBs of names that begin alike. */
static void partial_mibs(void)
{
    static const char *const names[] = { "arenas.bin.0.size", "arenas.bin.0.nregs", "arenas.lextent.3.size", "version",
                                         "stats.arenas.0.bins.7.curregs", "stats.arenas.0.small.allocated",
                                         "stats.arenas.0.lextents.2.nmalloc", "thread.tcache.flush", "opt.prof" };
    size_t whole[8], part[8], other[8], value, size = sizeof value;

    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char begin[64];
        size_t parts = 1;
        for (const char *at = names[i]; *at; at++)
            parts += *at == '.';
        partial_mib(names[i], 8, parts, whole);
        for (size_t room = 0; room < parts; room++) {
            partial_mib(names[i], room, room, part);
            CHECK(memcmp(part, whole, room * sizeof *part) == 0);
            CHECK(mallctlbymib(part, room, &value, &size, NULL, 0) == ENOENT);
        }
        strcpy(begin, names[i]);
        while (--parts) {
            *strrchr(begin, '.') = '\0';
            partial_mib(begin, 8, parts, part);
            CHECK(memcmp(part, whole, parts * sizeof *part) == 0);
            CHECK(mallctl(begin, &value, &size, NULL, 0) == ENOENT);
        }
    }
    /* A whole MIB from a part and another name's last number. */
    partial_mib("arenas.bin.0.size", 2, 2, part);
    partial_mib("arenas.bin.5.nregs", 8, 4, whole);
    CHECK(part[0] == whole[0] && part[1] == whole[1] && whole[2] == 5);
    partial_mib("arenas.bin.0.size", 8, 4, other);
    part[2] = 4;
    part[3] = other[3];
    CHECK(mallctlbymib(part, 4, &value, &size, NULL, 0) == 0 && value == get("arenas.bin.4.size"));
    part[3] = whole[3];
    CHECK(whole[3] != other[3] && mallctlbymib(part, 4, &value, &size, NULL, 0) == EINVAL && size == 4);
    size = sizeof value;
    /* A name's last number leads nowhere behind other parts. */
    partial_mib("arenas.lextent.0.size", 8, 4, part);
    part[1] = whole[1];
    CHECK(mallctlbymib(part, 4, &value, &size, NULL, 0) == ENOENT);
    /* jemalloc looks at no more parts than there is room for. */
    partial_mib("arenas.bin.0.bogus", 3, 3, part);
    partial_mib("arenas.bin.99999.size", 2, 2, part);
    no_mib("arenas.bin.0.bogus", 4);
    no_mib("arenas.bin.99999.size", 3);
    no_mib("arenas.bogus.0.size", 2);
    no_mib("arenasbin", 1);
    partial_mib("arena", 8, 1, part);
    partial_mib("arenas", 8, 1, other);
    CHECK(part[0] != other[0]);
    no_mib("version.more", 1);
    no_mib("arenas.bin.0.size.more", 4);
    no_mib("arenas.", 8);
    no_mib("", 8);
    no_mib("", 0);
}

static void mibs(void)
{
    size_t mib[8], length = 8, value, size = sizeof value, bins = get("arenas.nbins"), last = 0;

    CHECK(mallctlnametomib("arenas.bin.0.size", mib, &length) == 0 && length == 4);
    for (mib[2] = 0; mib[2] < bins; mib[2]++) {
        CHECK(mallctlbymib(mib, length, &value, &size, NULL, 0) == 0);
        CHECK(value > last && value == nallocx(value, 0) && value == get_of("arenas.bin.%u.size", (unsigned)mib[2]));
        last = value;
    }
    CHECK(mallctlbymib(mib, length, &value, &size, NULL, 0) == ENOENT);
    CHECK(mallctlbymib(mib, length - 1, &value, &size, NULL, 0) == ENOENT);
    length = 8;
    CHECK(mallctlnametomib("stats.arenas.0.bins.0.curregs", mib, &length) == 0 && length == 6);
    mib[2] = MALLCTL_ARENAS_ALL;
    mib[4] = 3;
    CHECK(mallctlbymib(mib, length, &value, &size, NULL, 0) == 0 && value == get(ALL "bins.3.curregs"));
}

/* Compares at one moment: nothing allocates in between. */
static void same_figures(void)
{
    struct hak_stats stats;
    struct hak_stats_class classes[128];
    size_t count, bins = get("arenas.nbins"), small = 0, large = 0, cached = 0, page = get("arenas.page");

    epoch();
    CHECK(hak_stats_get(&stats, sizeof stats) == sizeof stats);
    count = hak_stats_classes(classes, sizeof *classes, 128);
    CHECK(get("stats.allocated") == stats.live && get("stats.metadata") == stats.metadata);
    CHECK(get("stats.active") == stats.live + stats.cached + stats.free_in_slab);
    CHECK(get("stats.retained") == stats.purged && get("stats.mapped") == stats.mapped - stats.purged);
    CHECK(get("stats.resident") <= get("stats.mapped"));
    CHECK(get("stats.allocated") <= get("stats.active"));
    CHECK(get(ALL "small.allocated") + get(ALL "large.allocated") == stats.live);
    CHECK(get(ALL "tcache_bytes") == stats.cached && get(ALL "pactive") * page == get("stats.active"));
    CHECK(get(ALL "pdirty") * page == stats.retained - stats.purged &&
          get(ALL "large.nmalloc") >= get(ALL "large.ndalloc"));
    for (unsigned i = 0; i < bins; i++) {
        size_t bytes = get_of("arenas.bin.%u.size", i), regs = get_of("arenas.bin.%u.nregs", i);
        size_t curregs = get_of(ALL "bins.%u.curregs", i), slabs = get_of(ALL "bins.%u.curslabs", i);
        size_t nonfull = get_of(ALL "bins.%u.nonfull_slabs", i);
        CHECK(get_of(ALL "bins.%u.nmalloc", i) - get_of(ALL "bins.%u.ndalloc", i) == curregs);
        CHECK(curregs <= slabs * regs && nonfull <= slabs && curregs >= (slabs - nonfull) * regs);
        for (size_t j = 0; j < count; j++)
            if (classes[j].block_size == bytes) {
                CHECK(slabs == classes[j].slabs && curregs == classes[j].live_blocks + classes[j].cached_blocks);
                small += classes[j].live_blocks * bytes;
            }
        CHECK(get_of("arenas.bin.%u.slab_size", i) >= regs * bytes && get_of("arenas.bin.%u.nshards", i) == 1);
    }
    CHECK(get(ALL "small.allocated") == small);
    for (size_t j = 0; j < count; j++)
        if (classes[j].block_size > get_of("arenas.bin.%u.size", (unsigned)bins - 1))
            cached += classes[j].cached_blocks * classes[j].block_size;
    for (unsigned i = 0; i + 1 < get("arenas.nlextents"); i++)
        large += get_of(ALL "lextents.%u.curlextents", i) * get_of("arenas.lextent.%u.size", i);
    CHECK(get(ALL "large.allocated") + cached == large + stats.huge.live_bytes);
    CHECK(get_of(ALL "lextents.%u.curlextents", (unsigned)get("arenas.nlextents") - 1) == stats.huge.live_blocks);
    CHECK(get("stats.arenas.0.small.allocated") == small && get(ALL "nthreads") == 1);
}

/* Figures stay the same within an epoch. */
static void epochs(void)
{
    uint64_t first = epoch();
    size_t before = get("stats.allocated"), mine = get_of(ALL "bins.%u.curregs", 3);
    void *blocks[1000];

    for (int i = 0; i < 1000; i++)
        blocks[i] = malloc(64);
    CHECK(get("stats.allocated") == before);
    CHECK(epoch() == first + 1 && get("stats.allocated") == before + 64000);
    CHECK(get_of(ALL "bins.%u.curregs", 3) >= mine + 1000 - 256);
    for (int i = 0; i < 1000; i++)
        free(blocks[i]);
    epoch();
    CHECK(get("stats.allocated") == before);
}

static void threads(void)
{
    uint64_t *allocated, *freed, before, back;
    size_t size = sizeof allocated;
    static const size_t sizes[] = { 1, 100, 1000, 3000, 40000, 300000, 2000000 };

    CHECK(mallctl("thread.allocatedp", &allocated, &size, NULL, 0) == 0 &&
          mallctl("thread.deallocatedp", &freed, &size, NULL, 0) == 0);
    for (int round = 0; round < 3; round++)
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t usable, grown;
            void *block;
            before = *allocated;
            back = *freed;
            block = round == 0   ? malloc(sizes[i])
                    : round == 1 ? calloc(1, sizes[i])
                                 : mallocx(sizes[i], MALLOCX_TCACHE_NONE);
            usable = sallocx(block, 0);
            CHECK(*allocated == before + usable && *freed == back && get("thread.allocated") == *allocated);
            block = realloc(block, sizes[i] * 20);
            grown = sallocx(block, 0);
            CHECK(*allocated == before + usable + grown && *freed == back + usable);
            if (round == 1)
                free(block);
            else
                dallocx(block, round == 2 ? MALLOCX_TCACHE_NONE : 0);
            CHECK(*freed == back + usable + grown && get("thread.deallocated") == *freed);
        }
    before = *allocated;
    free(aligned_alloc(8192, 8192));
    CHECK(*allocated - before == 8192);
}

static void purge_and_settings(void)
{
    ssize_t delay, wanted = 1234;
    size_t size = sizeof delay;
    bool truth;
    char *block = malloc(50 << 20);
    const char *text;

    memset(block, 1, 50 << 20);
    free(block);
    CHECK(mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0 && mallctl("arena.0.decay", NULL, NULL, NULL, 0) == 0);
    CHECK(mallctl("arena.1.purge", NULL, NULL, NULL, 0) == 0); /* narenas: all arenas, as in old programs */
    epoch();
    CHECK(get(ALL "pdirty") == 0 && get("stats.resident") < 40 << 20);
    CHECK(mallctl("arenas.dirty_decay_ms", &delay, &size, &wanted, sizeof wanted) == 0 && delay == 500);
    CHECK((ssize_t)get("arena.0.dirty_decay_ms") == 1234 && (ssize_t)get("opt.dirty_decay_ms") == 1234);
    wanted = -2;
    CHECK(mallctl("arena.0.dirty_decay_ms", NULL, NULL, &wanted, sizeof wanted) == EFAULT);
    size = sizeof truth;
    CHECK(mallctl("background_thread", &truth, &size, NULL, 0) == 0 && !truth);
    truth = true;
    CHECK(mallctl("background_thread", NULL, NULL, &truth, sizeof truth) == 0);
    CHECK(mallctl("background_thread", &truth, &size, NULL, 0) == 0 && truth &&
          get("stats.background_thread.num_threads") == 1);
    truth = false;
    CHECK(mallctl("background_thread", NULL, NULL, &truth, sizeof truth) == 0);
    CHECK(mallctl("background_thread", &truth, &size, NULL, 0) == 0 && !truth);
    size = sizeof text;
    CHECK(mallctl("version", &text, &size, NULL, 0) == 0 && strstr(text, "HAKMEM"));
    CHECK(mallctl("opt.dss", &text, &size, NULL, 0) == 0 && strcmp(text, "disabled") == 0);
    CHECK(get("arenas.quantum") == 16 && get("arenas.narenas") == 1 && get("opt.narenas") == 1);
}

/* Slabs with every second block free. */
static void utilization(void)
{
    enum { BLOCKS = 2048 };
    struct jemalloc_utilization uses[4];
    struct jemalloc_utilization_verbose one;
    void *blocks[BLOCKS], *asked[4];
    size_t size = sizeof uses;

    CHECK(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) == 0);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = mallocx(320, MALLOCX_TCACHE_NONE);
    for (int i = 0; i < BLOCKS; i++)
        if (i % 4)
            dallocx(blocks[i], MALLOCX_TCACHE_NONE);
    epoch();
    asked[0] = blocks[BLOCKS / 2];
    asked[1] = &size;
    asked[2] = malloc(200000);
    asked[3] = malloc(3 << 20);
    CHECK(mallctl("experimental.utilization.batch_query", uses, &size, asked, sizeof asked) == 0);
    CHECK(uses[0].size == 65536 && uses[0].nregs == 65536 / 320 && uses[0].nfree > uses[0].nregs / 2 &&
          uses[0].nfree < uses[0].nregs);
    CHECK(uses[1].size == 0 && uses[1].nregs == 0 && uses[2].nregs == 1 && uses[2].nfree == 0 &&
          uses[2].size == sallocx(asked[2], 0));
    CHECK(uses[3].size == sallocx(asked[3], 0));
    size = sizeof one;
    CHECK(mallctl("experimental.utilization.query", &one, &size, asked, sizeof *asked) == 0);
    CHECK(one.nfree == uses[0].nfree && one.nregs == uses[0].nregs && one.slabcur_addr && one.bin_nfree > one.nfree);
    size--;
    CHECK(mallctl("experimental.utilization.query", &one, &size, asked, sizeof *asked) == EINVAL);

    /* Moving the blocks that the hint suggests needs fewer slabs. */
    size_t slabs = one.bin_nregs / one.nregs, moved = 0;
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < BLOCKS; i += 4)
            if (get_defrag_hint(blocks[i])) {
                void *fresh = mallocx(320, MALLOCX_TCACHE_NONE);
                memcpy(fresh, blocks[i], 320);
                sdallocx(blocks[i], 320, MALLOCX_TCACHE_NONE);
                blocks[i] = fresh;
                moved++;
            }
    epoch();
    size = sizeof one;
    CHECK(mallctl("experimental.utilization.query", &one, &size, blocks, sizeof *blocks) == 0);
    printf("moved %zu blocks, slabs %zu to %zu\n", moved, slabs, one.bin_nregs / one.nregs);
    CHECK(moved > 0 && one.bin_nregs / one.nregs <= slabs / 2);
    for (int i = 0; i < BLOCKS; i += 4)
        free(blocks[i]);
    free(asked[2]);
    free(asked[3]);
}

static void append(void *argument, const char *text) { strncat(argument, text, 65535 - strlen(argument)); }

static void prints(void)
{
    static char text[65536], json[65536];

    malloc_stats_print(append, text, NULL);
    CHECK(strstr(text, "live") && strstr(text, "mapped"));
    malloc_stats_print(append, json, "J");
    FILE *file = fopen("stats.json", "w");
    CHECK(file && fputs(json, file) >= 0 && fclose(file) == 0);
}

static void message(void *argument, const char *text)
{
    (void)argument;
    if (strstr(text, "live"))
        puts("message");
}

static void profile(void)
{
    bool on = true;
    const char *path = "dump.heap", *nowhere = "/no/such/folder/dump";

    CHECK(mallctl("prof.active", NULL, NULL, &on, sizeof on) == 0);
    for (int i = 0; i < 1000; i++)
        CHECK(malloc(10000));
    CHECK(mallctl("prof.dump", NULL, NULL, &path, sizeof path) == 0 &&
          mallctl("prof.dump", NULL, NULL, &nowhere, sizeof nowhere) == EFAULT);
    on = false;
    CHECK(mallctl("prof.active", NULL, NULL, &on, sizeof on) == 0 && get("prof.lg_sample") == 19);
}

int main(void)
{
    errors();
    partial_mibs();
    mibs();
    void *kept[] = { malloc(100), malloc(70000), malloc(2 << 20), malloc(200000) };
    same_figures();
    epochs();
    threads();
    same_figures();
    utilization();
    same_figures();
    purge_and_settings();
    same_figures();
    prints();
    malloc_message = message;
    malloc_stats_print(NULL, NULL, "");
    profile();
    for (unsigned i = 0; i < 4; i++)
        free(kept[i]);
    puts("done");
    return 0;
}
