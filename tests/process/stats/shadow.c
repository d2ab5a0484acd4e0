/*
 * Compares HAKMEM's statistics of this process after each step with what the program knows: its own record of blocks,
 * /proc/self/smaps, /proc/self/statm, getrusage, mallinfo2.
 *
 *   shadow                  all steps; exits with 1 and the name of a wrong figure
 *   shadow print FORMAT     a known state: its figures as a line of JSON, then hak_stats_print's text
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <hakmem/stats.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BLOCKS = 6000, ROWS = 64, HEAPS = 64, SUPERSLABS = 512, UNIT = 65536, HUGE_FROM = (1 << 20) + 1 };

static unsigned checks, failures;

static void check(int holds, const char *when, const char *format, ...)
{
    va_list arguments;
    checks++;
    if (holds)
        return;
    failures++;
    printf("%s: ", when);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

#define SAME(when, what, found, wanted) same(when, what, (uint64_t)(found), (uint64_t)(wanted))

static void same(const char *when, const char *what, uint64_t found, uint64_t wanted)
{
    check(found == wanted, when, "%s is %" PRIu64 ", should be %" PRIu64, what, found, wanted);
}

/* ---- The record, of which no byte is in HAKMEM ---- */

static struct {
    void *start;
    size_t usable;
} blocks[BLOCKS];

static void *adopt(size_t slot, void *block)
{
    if (block == NULL || blocks[slot].start != NULL)
        abort();
    blocks[slot].start = block;
    blocks[slot].usable = malloc_usable_size(block);
    memset(block, (int)slot, blocks[slot].usable);
    return block;
}

static void *release(size_t slot)
{
    void *block = blocks[slot].start;
    blocks[slot].start = NULL;
    return block;
}

/* libc's blocks for each thread (its table of thread-local storage), all of one size, found before the threads act. */
static uint64_t libc_blocks, libc_size;

/* ---- The kernel's figures ---- */

static char text[1 << 20];

/* Reads a file of /proc without stdio, whose buffers are blocks. */
static const char *slurp(const char *path)
{
    int file = open(path, O_RDONLY);
    size_t length = 0;
    ssize_t got;
    while (length < sizeof text - 1 && (got = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    text[length] = '\0';
    return text;
}

/* Bytes of private writable mappings without a file. */
static uint64_t smaps_writable(void)
{
    uint64_t bytes = 0;
    for (const char *line = slurp("/proc/self/smaps"); *line; line = strchr(line, '\n') + 1) {
        uint64_t start, end, offset, inode;
        char flags[8], device[16];
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %15s %" SCNu64, &start, &end, flags, &offset, device,
                   &inode) == 6 && strcmp(flags, "rw-p") == 0 && inode == 0)
            bytes += end - start;
    }
    return bytes;
}

static uint64_t statm_resident(void)
{
    uint64_t size, resident;
    if (sscanf(slurp("/proc/self/statm"), "%" SCNu64 " %" SCNu64, &size, &resident) != 2)
        abort();
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- A comparison ---- */

static struct hak_stats at_start;
static int profiled; /* HAKMEM_HEAP_PROFILE is set */
static uint64_t others_writable; /* writable bytes outside HAKMEM */

static struct hak_stats take(void)
{
    struct hak_stats stats;
    if (hak_stats_get(&stats, sizeof stats) != sizeof stats)
        abort();
    return stats;
}

static void check_classes(const char *when, const struct hak_stats *stats)
{
    struct hak_stats_class rows[ROWS];
    size_t count = hak_stats_classes(rows, sizeof rows[0], ROWS);
    uint64_t live = 0, cached = 0, refilled = 0;

    check(count <= ROWS, when, "%zu classes", count);
    for (size_t i = 0; i < count; i++) {
        uint64_t mine = rows[i].block_size == libc_size ? libc_blocks : 0;
        for (size_t k = 0; k < BLOCKS; k++)
            mine += blocks[k].start != NULL && blocks[k].usable == rows[i].block_size;
        SAME(when, "live blocks of a class", rows[i].live_blocks, mine);
        SAME(when, "C1: refilled - returned", rows[i].refilled_blocks - rows[i].returned_blocks,
             rows[i].live_blocks + rows[i].cached_blocks + rows[i].remote_blocks);
        SAME(when, "carved - released", rows[i].slabs_carved - rows[i].slabs_released, rows[i].slabs);
        live += rows[i].live_blocks * rows[i].block_size;
        cached += rows[i].cached_blocks * rows[i].block_size;
        refilled += rows[i].refilled_blocks;
    }
    SAME(when, "live of all classes", live + stats->huge.live_bytes, stats->live);
    SAME(when, "cached of all classes", cached, stats->cached);
    SAME(when, "refilled of all classes", refilled, stats->refilled_blocks);
}

static void check_heaps(const char *when, const struct hak_stats *stats)
{
    struct hak_stats_heap rows[HEAPS];
    size_t count = hak_stats_heaps(rows, sizeof rows[0], HEAPS);
    uint64_t used = 0, cached = 0, slabs = 0, live = 0, out = 0;

    check(count <= HEAPS, when, "%zu heaps", count);
    for (size_t i = 0; i < count; i++) {
        used += rows[i].used_bytes;
        cached += rows[i].cached_bytes;
        slabs += rows[i].slab_bytes;
        live += rows[i].live;
        out += rows[i].remote_out;
    }
    SAME(when, "used of all heaps", used + stats->huge.live_bytes, stats->live + stats->cached);
    SAME(when, "cached of all heaps", cached, stats->cached);
    SAME(when, "slabs of all heaps", slabs,
         stats->small.slab_bytes + stats->medium.slab_bytes + stats->spans.slab_bytes);
    SAME(when, "live heaps", live, stats->heaps_live);
    SAME(when, "remote frees of all heaps", out, stats->remote_out);
}

static void check_superslabs(const char *when, const struct hak_stats *stats)
{
    struct hak_stats_superslab rows[SUPERSLABS];
    size_t count = hak_stats_superslabs(rows, sizeof rows[0], SUPERSLABS);
    struct hak_stats_heap heap_rows[HEAPS];
    size_t heaps = hak_stats_heaps(heap_rows, sizeof heap_rows[0], HEAPS);
    uint64_t used = 0, warm = 0, slabs, tiers[4] = { 0 };

    SAME(when, "SuperSlabs", count, stats->superslabs);
    for (size_t i = 0; i < count && i < SUPERSLABS; i++) {
        SAME(when, "units of a SuperSlab", rows[i].used_units + rows[i].free_units, 31);
        check(rows[i].dirty_units <= rows[i].free_units, when, "more dirty units than free ones");
        check(rows[i].address % (2 << 20) == 0, when, "a SuperSlab at %" PRIx64, rows[i].address);
        used += rows[i].used_units;
        tiers[rows[i].tier]++;
    }
    SAME(when, "full SuperSlabs", tiers[HAK_STATS_FULL], stats->superslabs_full);
    SAME(when, "empty SuperSlabs", tiers[HAK_STATS_EMPTY], stats->superslabs_empty);
    for (size_t i = 0; i < heaps; i++)
        warm += heap_rows[i].warm_slabs;
    /* A warm slab has one to sixteen units. */
    slabs = (stats->small.slab_bytes + stats->medium.slab_bytes + stats->spans.slab_bytes) / UNIT;
    check(used >= slabs + warm && used <= slabs + 16 * warm, when,
          "%" PRIu64 " units are used, %" PRIu64 " by slabs, and %" PRIu64 " slabs are warm", used, slabs, warm);
    for (size_t k = 0; k < BLOCKS; k++)
        if (blocks[k].start != NULL && blocks[k].usable < HUGE_FROM) {
            uintptr_t home = (uintptr_t)blocks[k].start & ~(uintptr_t)((2 << 20) - 1);
            size_t i = 0;
            while (i < count && rows[i].address != home)
                i++;
            check(i < count && rows[i].classes != 0, when, "the SuperSlab of a live block is not listed with a class");
        }
}

static void check_mallinfo(const char *when, const struct hak_stats *stats)
{
    struct mallinfo2 info = mallinfo2();
    SAME(when, "mallinfo2.hblkhd", info.hblkhd, stats->huge.live_bytes);
    SAME(when, "mallinfo2.hblks", info.hblks, stats->huge.live_blocks);
    SAME(when, "mallinfo2.fsmblks", info.fsmblks, stats->cached);
    SAME(when, "mallinfo2.arena", info.arena, stats->mapped - stats->huge.live_bytes);
    SAME(when, "mallinfo2.fordblks", info.fordblks, stats->cached + stats->free_in_slab + stats->retained);
}

static struct hak_stats look(const char *when)
{
    struct hak_stats stats = take();
    uint64_t bytes = libc_blocks * libc_size, live[4] = { libc_blocks };

    for (size_t k = 0; k < BLOCKS; k++) {
        if (blocks[k].start == NULL)
            continue;
        bytes += blocks[k].usable;
        live[blocks[k].usable <= 1024 ? 0 : blocks[k].usable < UNIT ? 1 : blocks[k].usable < HUGE_FROM ? 2 : 3]++;
    }
    SAME(when, "U1: mapped", stats.mapped,
         stats.live + stats.cached + stats.free_in_slab + stats.retained + stats.metadata);
    SAME(when, "live", stats.live, bytes);
    SAME(when, "live small blocks", stats.small.live_blocks, live[0]);
    SAME(when, "live medium blocks", stats.medium.live_blocks, live[1]);
    SAME(when, "live spans", stats.spans.live_blocks, live[2]);
    SAME(when, "live huge blocks", stats.huge.live_blocks, live[3]);
    SAME(when, "huge allocated - freed", stats.huge_allocated - stats.huge_freed, live[3]);
    check(profiled ? stats.heap_profile != 0 : stats.heap_profile == 0, when, "%" PRIu64 " bytes of the heap profile",
          stats.heap_profile);
    check(stats.heap_profile_samples <= live[0] + live[1] + live[2] + live[3], when, "more samples than blocks");
    SAME(when, "mapped by smaps", stats.mapped, smaps_writable() - others_writable);
    check(stats.purged <= stats.mapped, when, "more purged than mapped");
    SAME(when, "LRU", stats.lru_entered >= stats.lru_reused + stats.lru_purged, 1);
    check_classes(when, &stats);
    check_heaps(when, &stats);
    check_superslabs(when, &stats);
    check_mallinfo(when, &stats);
    return stats;
}

/* ---- Steps ---- */

static uint64_t chance_state = 1;

static size_t draw(size_t limit)
{
    chance_state = chance_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(chance_state >> 33) % limit;
}

static size_t draw_size(void)
{
    size_t most = draw(100) < 90 ? 2000 : draw(10) < 8 ? 60000 : draw(10) < 7 ? 1000000 : 5000000;
    return 1 + draw(most);
}

static void change(size_t first, size_t count, unsigned times)
{
    for (; times > 0; times--) {
        size_t slot = first + draw(count);
        if (blocks[slot].start != NULL)
            free(release(slot));
        else
            adopt(slot, malloc(draw_size()));
    }
}

static void step_one_thread(void)
{
    for (unsigned i = 0; i < 60; i++) {
        change(0, 2000, 150);
        if (i % 10 == 9)
            hak_collect(i % 20 == 9);
        look("one thread");
    }
}

static void step_calls(void)
{
    void *batch[100];
    size_t got = hak_malloc_batch(48, 100, batch);

    for (size_t i = 0; i < got; i++)
        adopt(2000 + i, batch[i]);
    look("a batch");
    adopt(2200, aligned_alloc(4096, 8192));
    adopt(2201, aligned_alloc(1 << 18, 300000));
    adopt(2202, calloc(1000, 777));
    adopt(2203, aligned_alloc(1 << 22, 3000000));
    look("aligned and zeroed");
    adopt(2204, realloc(release(2202), 4000000));
    adopt(2205, realloc(release(2204), 9000000));
    look("realloc that grows");
    adopt(2206, realloc(release(2205), 2000000));
    look("realloc that shrinks");
    hak_free_batch(batch, got);
    for (size_t i = 0; i < got; i++)
        release(2000 + i);
    for (size_t slot = 2200; slot < 2210; slot++)
        free(release(slot));
    look("all of these freed");
}

static void step_heap(void)
{
    hak_heap_t *heap = hak_heap_new();
    for (size_t i = 0; i < 300; i++)
        adopt(2000 + i, hak_heap_malloc(heap, i == 7 ? 3000000 : draw_size()));
    SAME("a first-class heap", "first-class heaps", look("a first-class heap").heaps_first_class, 1);
    for (size_t i = 0; i < 100; i++)
        free(release(2000 + i));
    look("a first-class heap, blocks freed");
    hak_heap_destroy(heap);
    for (size_t i = 100; i < 300; i++)
        release(2000 + i);
    SAME("destroyed", "first-class heaps", look("a first-class heap, destroyed").heaps_first_class, 0);
}

/* ---- Threads on stacks that exist from the start ---- */

enum { THREADS = 3, STACK = 256 * 1024, OWN = 700 };
static char stacks[THREADS][STACK] __attribute__((aligned(65536)));
static pthread_barrier_t barrier;

static void *run(void *argument)
{
    size_t first = 3000 + (size_t)(uintptr_t)argument * OWN;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* main finds libc's blocks */
    for (size_t i = 0; i < OWN; i++)
        adopt(first + i, malloc(3000)); /* a class that the main thread does not use meanwhile */
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* main frees some */
    for (size_t i = 0; i < OWN / 2; i++)
        if (blocks[first + i].start != NULL)
            free(release(first + i));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void step_threads(void)
{
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    struct hak_stats before, after;
    size_t foreign = 0;

    for (size_t slot = 0; slot < BLOCKS; slot++)
        free(release(slot));
    hak_collect(true);
    before = look("before threads");
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    pthread_attr_init(&attributes);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_attr_setstack(&attributes, stacks[i], STACK);
        if (pthread_create(&threads[i], &attributes, run, (void *)(uintptr_t)i) != 0)
            abort();
    }
    pthread_barrier_wait(&barrier);
    after = take();
    libc_blocks = after.small.live_blocks;
    libc_size = after.live / libc_blocks;
    check(libc_blocks == THREADS && after.live == libc_blocks * libc_size, "threads made",
          "%" PRIu64 " blocks, %" PRIu64 " bytes", libc_blocks, after.live);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    after = look("threads alive");
    SAME("threads alive", "heaps", after.heaps_live, before.heaps_live + THREADS);
    for (size_t slot = 3000; slot < 3000 + THREADS * OWN; slot += 3, foreign++)
        free(release(slot));
    look("threads alive, blocks freed by another");
    hak_collect(false); /* main's cache */
    after = look("threads alive, blocks sent home");
    /* Samples of the heap profile are freed under their heap's lock, by all threads. */
    if (profiled)
        check(after.remote_out - before.remote_out <= foreign, "sent home", "too many remote frees");
    else
        SAME("sent home", "remote_out", after.remote_out - before.remote_out, foreign);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    look("threads alive, blocks freed by all");
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    libc_blocks = 0;
    after = look("threads dead");
    /* Without MF2 they are freed under their owner's lock. */
    uint64_t came = after.remote_in + after.remote_locked - before.remote_in - before.remote_locked;
    check(profiled ? came >= foreign : came == foreign, "threads dead", "remote_in is %" PRIu64 ", should be %zu", came,
          foreign);
    SAME("threads dead", "pending", after.pending, 0);
    SAME("threads dead", "enqueued - drained", after.pending_enqueued - after.pending_drained, 0);
    SAME("threads dead", "orphans", after.heaps_orphan, THREADS);
    for (size_t slot = 0; slot < BLOCKS; slot++)
        free(release(slot));
    look("threads dead, all freed");
    hak_collect(true);
    after = look("threads dead, all given back");
    SAME("given back", "live", after.live, 0);
    pthread_barrier_destroy(&barrier);
}

/* ---- Calls ---- */

static void step_hits(void)
{
    enum { COUNT = 5000, PAIRS = 100000 };
    static void *some[COUNT];
    const char *option = getenv("HAKMEM_FRONT_STATS");
    uint64_t counted = option && strcmp(option, "1") == 0; /* hits have figures */
    struct hak_stats before = take(), after;

    for (size_t i = 0; i < COUNT; i++)
        some[i] = malloc(200);
    after = take();
    uint64_t misses = after.malloc_misses - before.malloc_misses, hits = after.malloc_hits - before.malloc_hits;
    SAME("hits", "mallocs", hits, counted * (COUNT - misses));
    check(misses > 0 && after.refilled_blocks - before.refilled_blocks >= COUNT, "hits", "%" PRIu64 " misses", misses);
    before = after;
    for (size_t i = 0; i < COUNT; i++)
        free(some[i]);
    after = take();
    misses = after.free_overflows - before.free_overflows;
    SAME("hits", "frees", after.free_hits - before.free_hits, counted * (COUNT - misses));
    before = after;
    for (size_t i = 0; i < PAIRS; i++)
        free(malloc(200));
    after = take();
    misses = after.malloc_misses - before.malloc_misses;
    /* Every sample of the heap profile is a miss. */
    check(profiled || misses <= 2, "hits", "pairs on a hit missed");
    SAME("hits", "pairs", after.malloc_hits - before.malloc_hits, counted * (PAIRS - misses));
    check(after.malloc_coverage <= 10000 && after.free_coverage <= 10000, "hits", "a share above 1");
    check(counted || (after.malloc_coverage | after.free_coverage) == 0, "hits", "a share of what nobody counted");
    hak_collect(true);
}

static void step_faults(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 1000 * page;
    struct rusage before, after;
    struct hak_stats first = take(), second;
    uint64_t resident;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    madvise(memory, size, MADV_NOHUGEPAGE);
    getrusage(RUSAGE_SELF, &before);
    for (size_t at = 0; at < size; at += page)
        memory[at] = 1;
    second = take();
    getrusage(RUSAGE_SELF, &after);
    resident = statm_resident();
    check(second.faults_soft >= (uint64_t)before.ru_minflt + 1000 && second.faults_soft <= (uint64_t)after.ru_minflt,
          "faults", "soft faults %" PRIu64 " are not between %ld + 1000 and %ld", second.faults_soft, before.ru_minflt,
          after.ru_minflt);
    check(second.faults_hard >= (uint64_t)before.ru_majflt && second.faults_hard <= (uint64_t)after.ru_majflt, "faults",
          "hard faults %" PRIu64, second.faults_hard);
    /* The kernel adds each thread's count now and then, so statm may be some 64 pages off. */
    check(llabs((long long)(second.resident - resident)) <= 256 * (long long)page, "faults",
          "resident %" PRIu64 ", statm %" PRIu64, second.resident, resident);
    check(second.resident_change - first.resident_change >= (int64_t)(900 * page), "faults",
          "resident changed by %" PRId64, second.resident_change - first.resident_change);
    munmap(memory, size);
}

/* ---- Versions of the structs, and errors ---- */

static int stop_at_once(void *argument, const char *piece, size_t length)
{
    (void)piece;
    (void)length;
    ++*(int *)argument;
    return 77;
}

static int allocate_and_count(void *argument, const char *piece, size_t length)
{
    (void)piece;
    free(malloc(100));
    *(size_t *)argument += length;
    return 0;
}

static void step_versions(void)
{
    struct {
        struct hak_stats known;
        uint64_t later[4];
    } newer;
    struct hak_stats older;
    struct hak_stats_class row[2];
    uint64_t sizes[ROWS] = { 0 };
    int calls = 0;
    size_t length = 0;

    memset(&older, 0x5a, sizeof older);
    SAME("versions", "bytes filled", hak_stats_get(&older, 24), 24);
    SAME("versions", "size", older.size, 24);
    SAME("versions", "version", older.version, HAK_STATS_VERSION);
    check(older.mapped == take().mapped, "versions", "mapped is %" PRIu64, older.mapped);
    SAME("versions", "what lies behind", older.live, UINT64_C(0x5a5a5a5a5a5a5a5a));
    memset(&newer, 0x5a, sizeof newer);
    SAME("versions", "bytes filled", hak_stats_get(&newer.known, sizeof newer), sizeof newer.known);
    SAME("versions", "what the library does not know", newer.later[0] | newer.later[3], 0);
    errno = 0;
    SAME("versions", "too small", hak_stats_get(&older, 15), 0);
    SAME("versions", "errno", errno, EINVAL);
    errno = 0;
    SAME("versions", "no struct", hak_stats_get(NULL, sizeof older), 0);
    SAME("versions", "errno", errno, EINVAL);
    errno = 0;
    SAME("versions", "rows too small", hak_stats_classes(row, 7, 1), 0);
    SAME("versions", "errno", errno, EINVAL);
    size_t count = hak_stats_classes(row, sizeof row[0], 2);
    SAME("versions", "rows of one word", hak_stats_classes((struct hak_stats_class *)sizes, 8, ROWS), count);
    SAME("versions", "first class", sizes[0], row[0].block_size);
    SAME("versions", "second class", sizes[1], row[1].block_size);
    SAME("versions", "no rows", hak_stats_heaps(NULL, 8, 0), hak_stats_heaps((struct hak_stats_heap *)sizes, 8, ROWS));
    SAME("versions", "no format", hak_stats_print((enum hak_stats_format)0, NULL, NULL), EINVAL);
    SAME("versions", "no format", hak_stats_print((enum hak_stats_format)4, NULL, NULL), EINVAL);
    SAME("versions", "a writer that ends it", hak_stats_print(HAK_STATS_JSON, stop_at_once, &calls), 77);
    SAME("versions", "its calls", calls, 1);
    for (enum hak_stats_format format = HAK_STATS_TEXT; format <= HAK_STATS_PROMETHEUS; format++) {
        uint64_t live = take().live;
        SAME("versions", "a writer that allocates", hak_stats_print(format, allocate_and_count, &length), 0);
        SAME("versions", "live after it", take().live, live);
    }
    check(length > 5000, "versions", "only %zu characters", length);
}

/* ---- print FORMAT ---- */

static int to_output(void *argument, const char *piece, size_t length)
{
    (void)argument;
    return write(1, piece, length) == (ssize_t)length ? 0 : 1;
}

static int print(const char *format)
{
    char line[256];
    for (size_t i = 0; i < 1000; i++)
        adopt(i, malloc(100));
    for (size_t i = 0; i < 3; i++)
        adopt(1000 + i, malloc(2000000));
    to_output(NULL, line,
              (size_t)snprintf(line, sizeof line,
                               "{\"small\": 1000, \"usable\": %zu, \"huge\": 3, \"huge_bytes\": %zu}\n",
                               blocks[0].usable, 3 * blocks[1000].usable));
    return hak_stats_print(strcmp(format, "json") == 0   ? HAK_STATS_JSON
                           : strcmp(format, "text") == 0 ? HAK_STATS_TEXT
                                                         : HAK_STATS_PROMETHEUS,
                           to_output, NULL);
}

int main(int argc, char **argv)
{
    static char buffer[4096];

    if (argc == 3 && strcmp(argv[1], "print") == 0)
        return print(argv[2]);
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer); /* allocates no block of HAKMEM */
    profiled = getenv("HAKMEM_HEAP_PROFILE") != NULL;
    for (int i = 0; i < (profiled ? 1000 : 1); i++) /* until there is a sample, and so the profile's tables */
        free(malloc(1000));
    at_start = take();
    if (at_start.live != 0) {
        printf("%" PRIu64 " bytes are live at the start\n", at_start.live);
        return 1;
    }
    others_writable = smaps_writable() - at_start.mapped;
    step_one_thread();
    step_calls();
    step_heap();
    step_threads();
    step_hits();
    step_faults();
    step_versions();
    printf("%u checks, %u wrong\n", checks, failures);
    return failures != 0;
}
