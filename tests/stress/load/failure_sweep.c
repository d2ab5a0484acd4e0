/* Protects the allocator from system calls that fail: each one in turn, alone and with all after it.
 *
 * failure_sweep [--settings S] [--stride N] [--seed N]           the sweep; of the many purges only each N-th
 * failure_sweep --kind K --call N [--from 1] [--settings S]      one case of it, in this process
 *
 * The allocator on the fake system. A first run counts the scenario's system calls of each kind. Then for every N a
 * fresh child runs the scenario with call N failing, and another with all calls from N on failing. In each child
 * - a request gives a block, or NULL with ENOMEM. Only a failure to get memory may cause NULL: no failure to give it
 *   back (purge), to fault it in early (populate), to move it (remap) or to start the purge thread;
 * - contents of live blocks, their usable sizes and disjointness (block.h) hold throughout, and so does U1;
 * - after the failures every kind of request works again;
 * - the allocator's mapped bytes are the system's, and purged memory is not resident;
 * - after everything is freed, live is 0, and no more memory stays resident than without failures.
 */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "block.h"
#include "os/fake.h"
#include "superslab/window.h"
#include "usage_check.h"

enum {
    SMALL = 2500,
    MEDIUM = 250,
    SPANS = 30,
    HUGE_BLOCKS = 5,
    THREAD_BLOCKS = 400,
    ZEROED = 60,
    HEAP_BLOCKS = 300,
    BATCH = 200,
    CROWD = 20,
    BULK = 5000, /* of one class, so that its memory is populated */
    BLOCKS = SMALL + MEDIUM + SPANS + HUGE_BLOCKS + THREAD_BLOCKS + ZEROED + BATCH + BULK + 8,
    CHILD_SECONDS = 1200 /* only ends a hang */
};
#define RESIDENT_MOST (640 * KIB)
#define SECOND UINT64_C(1000000000)

static const char *const option_names[] = { "kind", "call", "from", "settings", "stride", "seed", NULL };
static const char *const kind_names[] = { "map", "map_at", "hole", "remap", "purge", "populate", "thread", "guard",
                                         "protect", "fence" };

static char *const settings_default[] = { NULL };
static char *const settings_eager[] = { "HAKMEM_SS_PREWARM=3", "HAKMEM_PURGE_THREAD=1", NULL };
static char *const settings_bare[] = { "HAKMEM_PURGE_DELAY=0", "HAKMEM_HUGE_CACHE=0", "HAKMEM_POPULATE=0", NULL };
static char *const *const all_settings[] = { settings_default, settings_eager, settings_bare };
enum { SETTINGS = sizeof all_settings / sizeof all_settings[0] };

struct failing {
    unsigned settings;
    int kind; /* enum fake_kind; -1: nothing fails */
    uint64_t call;
    bool from;
};

/* A child's report to its parent. */
struct outcome {
    uint64_t calls[FAKE_FALLIBLE_COUNT];
    uint64_t refused;  /* requests that gave NULL */
    size_t resident;   /* at the end */
};

static struct failing failing;
static struct outcome *outcome;
static struct chance chance;
static struct block *blocks; /* BLOCKS of them */
static bool replayed;
static bool windowless; /* the failures leave the allocator without a window: each request seeks a place, in vain */

/* ---- Requests that may fail ---- */

static bool gives_memory(int kind)
{
    return kind == FAKE_MAP || kind == FAKE_MAP_AT || kind == FAKE_HOLE;
}

/* Whether a request of the scenario may be refused now. */
static bool may_refuse(void)
{
    return gives_memory(failing.kind);
}

/* Records a refusal. Returns whether there is a block. */
static bool granted(const void *start, const char *what, size_t size)
{
    if (start != NULL)
        return true;
    CHECK(errno == ENOMEM, "%s of %zu bytes sets errno %d", what, size, errno);
    CHECK(may_refuse(), "%s of %zu bytes is refused", what, size);
    outcome->refused++;
    return false;
}

static void request(struct block *block, size_t size, size_t alignment)
{
    void *start;

    errno = 0;
    start = alignment > 16 ? hak_aligned_alloc(alignment, size) : hak_malloc(size);
    if (granted(start, "malloc", size))
        block_adopt(block, start, size, alignment, chance_next(&chance));
}

static void request_zeroed(struct block *block, size_t size)
{
    void *start;

    errno = 0;
    start = hak_calloc(1, size);
    if (!granted(start, "calloc", size))
        return;
    block_check_zero(start, size);
    block_adopt(block, start, size, 1, chance_next(&chance));
}

/* A refused realloc leaves the block unchanged. */
static void request_realloc(struct block *block, size_t size)
{
    struct block old = *block;
    void *start;

    errno = 0;
    block_release(block);
    start = hak_realloc(old.start, size);
    if (granted(start, "realloc", size))
        block_verify_at(&old, start, size < old.usable ? size : old.usable);
    else
        block_verify_at(&old, old.start, old.usable);
    block_adopt(block, start != NULL ? start : old.start, start != NULL ? size : old.size, 1, chance_next(&chance));
}

static void request_expand(struct block *block, size_t size)
{
    struct block old = *block;
    size_t usable;

    block_release(block);
    usable = hak_expand(old.start, size);
    block_verify_at(&old, old.start, old.usable);
    block_adopt(block, old.start, usable != 0 ? size : old.size, 1, chance_next(&chance));
}

static void give_back(struct block *block)
{
    if (block->start != NULL)
        hak_free(block_release(block));
}

/* ---- The scenario ---- */

/* After the failures the scenario runs again with a part of its blocks. A windowless one has a smaller part: its
 * requests all do the same, and each makes system calls that take longer than the rest of the scenario. */
static size_t part_of(size_t count)
{
    if (windowless)
        return count / 25 + 1;
    return replayed ? count / 5 : count;
}

static void take_and_drop(size_t size, size_t alignment)
{
    struct block block = { 0 };

    request(&block, size, alignment);
    give_back(&block);
}

static void fill_sizes(struct block *from, size_t count, size_t low, size_t high)
{
    for (size_t i = 0; i < part_of(count); i++)
        request(&from[i], chance_log(&chance, low, high), 1);
}

static void grow_by_realloc(struct block *block)
{
    request(block, 100, 1);
    for (size_t size = 170; block->start != NULL && size < 9 * MIB; size += size * 7 / 10)
        request_realloc(block, size);
    if (block->start != NULL) {
        request_expand(block, block->usable + 2 * MIB);
        request_realloc(block, 3 * MIB);
        request_realloc(block, 300);
    }
}

/* Frees some of main's blocks, and leaves half of its own to main. */
static void *run_thread(void *argument)
{
    struct block *own = argument;

    fill_sizes(own, THREAD_BLOCKS, 1, 40 * KIB);
    for (size_t i = 0; i < SMALL; i += 3)
        give_back(&blocks[i]);
    for (size_t i = 0; i < THREAD_BLOCKS; i += 2)
        give_back(&own[i]);
    return NULL;
}

/* A crowd lives at once, so that each thread has its own cache, and then ends. */
static void *run_crowd(void *argument)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    pthread_barrier_t *all_alive = argument;

    pthread_mutex_lock(&turn);
    for (size_t size = 16; size < 60 * KIB; size *= 5)
        take_and_drop(size, 1);
    pthread_mutex_unlock(&turn);
    pthread_barrier_wait(all_alive);
    return NULL;
}

static void run_and_lose_a_crowd(void)
{
    pthread_barrier_t all_alive;
    pthread_t threads[CROWD];
    unsigned count = (unsigned)part_of(CROWD);

    pthread_barrier_init(&all_alive, NULL, count);
    for (size_t i = 0; i < count; i++)
        threads[i] = support_thread(run_crowd, &all_alive);
    for (size_t i = 0; i < count; i++)
        support_join(threads[i]);
    pthread_barrier_destroy(&all_alive);
}

static void use_heap(void)
{
    struct block inside[HEAP_BLOCKS] = { { 0 } };
    hak_heap_t *heap;

    errno = 0;
    heap = hak_heap_new();
    if (!granted(heap, "heap_new", 0))
        return;
    for (size_t i = 0; i < HEAP_BLOCKS; i++) {
        size_t size = i % 50 == 0 ? chance_log(&chance, 32 * KIB, 2 * MIB) : chance_log(&chance, 1, 8 * KIB);
        void *start;

        errno = 0;
        start = hak_heap_malloc(heap, size);
        if (granted(start, "heap_malloc", size))
            block_adopt(&inside[i], start, size, 1, chance_next(&chance));
    }
    for (size_t i = 0; i < HEAP_BLOCKS; i++) {
        if (inside[i].start == NULL)
            continue;
        if (i % 4 == 0)
            hak_free(block_release(&inside[i]));
        else
            block_release(&inside[i]); /* the heap's destruction frees it */
    }
    hak_heap_destroy(heap);
}

static void use_batch(struct block *from)
{
    void *starts[BATCH];
    size_t got;

    errno = 0;
    got = hak_malloc_batch(500, BATCH, starts);
    CHECK(got == BATCH || (errno == ENOMEM && may_refuse()), "a batch of %d has %zu, errno %d", (int)BATCH, got,
          errno);
    outcome->refused += got < BATCH;
    for (size_t i = 0; i < got; i++)
        block_adopt(&from[i], starts[i], 500, 1, chance_next(&chance));
}

/* The allocator's figures match the system's: no mapping is lost, and purged memory is not resident. */
static void check_system(const char *when)
{
    struct usage usage = usage_read(when);

    /* The purge thread may decommit between the two readings. */
    for (unsigned tries = 0; usage.mapped != fake_bytes_mapped() && tries < 100; tries++) {
        sched_yield();
        usage = usage_read(when);
    }
    CHECK(usage.mapped == fake_bytes_mapped(), "%s: mapped is %zu, the system %zu", when,
          usage.mapped, fake_bytes_mapped());
    CHECK(fake_bytes_resident() + usage.purged <= usage.mapped, "%s: %zu of %zu mapped bytes are purged, %zu resident",
          when, usage.purged, usage.mapped, fake_bytes_resident());
}

static void verify_all(const char *when)
{
    size_t live = 0;

    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i].start != NULL) {
            block_verify(&blocks[i]);
            live++;
        }
    }
    CHECK(live == block_live_count(), "%s: %zu of %zu blocks", when, live, block_live_count());
    usage_check(when, 0);
    check_system(when);
}

static void play_scenario(void)
{
    struct block *at = blocks;
    struct block *medium;
    struct block *thread_blocks;

    take_and_drop(1, 1);
    windowless = hak_units == 0; /* W1 */
    verify_all("after init");
    fill_sizes(at, SMALL, 1, KIB);
    at += SMALL;
    verify_all("after small");
    medium = at;
    fill_sizes(medium, MEDIUM, KIB, 32 * KIB);
    at += MEDIUM;
    fill_sizes(at, SPANS, 33 * KIB, MIB);
    at += SPANS;
    verify_all("after spans");
    fill_sizes(at, HUGE_BLOCKS, MIB + 1, 6 * MIB);
    at += HUGE_BLOCKS;
    request(at++, 100 * KIB, 64 * KIB);
    request(at++, 3 * MIB, 4 * MIB);
    grow_by_realloc(at++);
    verify_all("after huge");
    for (unsigned i = 0; i < part_of(ZEROED); i++)
        request_zeroed(at++, chance_log(&chance, 1, i % 8 == 0 ? 3 * MIB : 2 * KIB));
    verify_all("after calloc");
    thread_blocks = at;
    at += THREAD_BLOCKS;
    support_join(support_thread(run_thread, thread_blocks));
    verify_all("after a thread");
    run_and_lose_a_crowd();
    hak_collect(true);
    run_and_lose_a_crowd();
    use_heap();
    use_batch(at);
    at += BATCH;
    verify_all("after heap and batch");
    hak_collect(true);
    fill_sizes(at, BULK, 1000, 1000);
    at += BULK;
    verify_all("after bulk");
    hak_collect(true);
    CHECK(at <= blocks + BLOCKS, "room for blocks");

    /* Free memory waits for the purge delay, and leaves at the next slow call. */
    for (size_t i = 0; i < BLOCKS; i++) {
        if (i % 4 != 0)
            give_back(&blocks[i]);
    }
    fake_advance(SECOND);
    for (size_t size = 16; size < 100 * KIB; size *= 3)
        take_and_drop(size, 1);
    fake_advance(SECOND);
    take_and_drop(700 * KIB, 1);
    take_and_drop(5 * MIB, 1);
    verify_all("after the purge");
    for (size_t i = 0; i < (windowless ? part_of(BLOCKS) : BLOCKS); i += 5) {
        if (blocks[i].start == NULL)
            request(&blocks[i], chance_log(&chance, 1, 64 * KIB), 1);
    }
    hak_thread_idle();
    hak_collect(true);
    verify_all("after collect");
}

static void run_case(void)
{
    fake_reset();
    fake_set_environment(all_settings[failing.settings]);
    chance_start(&chance, 1);
    if (failing.kind >= 0 && failing.from)
        fake_fail_from((enum fake_kind)failing.kind, failing.call);
    else if (failing.kind >= 0)
        fake_fail_nth((enum fake_kind)failing.kind, failing.call);
    play_scenario();
    if (failing.kind < 0) {
        for (int kind = 0; kind < FAKE_FALLIBLE_COUNT; kind++)
            outcome->calls[kind] = fake_calls((enum fake_kind)kind);
        CHECK(fake_failures() == 0, "calls failed without a rule");
    }

    /* The failures end: everything works again, also in blocks whose requests failed. */
    fake_fail_nothing();
    failing.kind = -1;
    replayed = true;
    for (size_t i = 0; i < BLOCKS; i++)
        give_back(&blocks[i]);
    play_scenario();
    for (size_t i = 0; i < BLOCKS; i++)
        give_back(&blocks[i]);
    hak_collect(true);
    usage_check("at the end", 0);
    check_system("at the end");
    outcome->resident = fake_bytes_resident();
}

/* ---- The sweep ---- */

static void describe(char *text, size_t capacity)
{
    snprintf(text, capacity, "failure_sweep --kind %d --call %llu --from %d --settings %u --seed %llu (%s)",
             failing.kind, (unsigned long long)failing.call, failing.from, failing.settings,
             (unsigned long long)support_seed, failing.kind < 0 ? "nothing fails" : kind_names[failing.kind]);
}

/* Runs the case in a child. Returns whether it passes. */
static bool run_child(struct failing this_case)
{
    char text[200];
    int status;
    pid_t child;

    failing = this_case;
    memset(outcome, 0, sizeof *outcome);
    describe(text, sizeof text);
    fflush(stdout);
    child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        alarm(CHILD_SECONDS);
        run_case();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (WIFSIGNALED(status))
        printf("FAILED by signal %d: %s\n", WTERMSIG(status), text);
    else
        printf("FAILED with exit status %d: %s\n", WEXITSTATUS(status), text);
    return false;
}

/* Runs all cases of one setting. Returns how many failed. */
static unsigned sweep(unsigned settings, uint64_t stride)
{
    struct failing none = { settings, -1, 0, false };
    uint64_t calls[FAKE_FALLIBLE_COUNT];
    unsigned failed = 0;
    unsigned cases = 1;
    uint64_t refused = 0;
    size_t resident;

    if (!run_child(none))
        return 1;
    memcpy(calls, outcome->calls, sizeof calls);
    resident = outcome->resident;
    /* Headers, pages of metadata, and the caches of ended threads, which the next threads take. */
    CHECK(resident <= RESIDENT_MOST, "%zu bytes stay resident when all is freed and purged", resident);
    for (int kind = 0; kind < FAKE_FALLIBLE_COUNT; kind++) {
        for (uint64_t call = 1; call <= calls[kind]; call += kind == FAKE_PURGE ? stride : 1) {
            /* All from N on: every N where memory is requested, and powers of 2 elsewhere. */
            int ways = gives_memory(kind) || (call & (call - 1)) == 0 ? 2 : 1;
            for (int way = 0; way < ways; way++) {
                struct failing this_case = { settings, kind, call, way == 1 };
                bool passed = run_child(this_case);

                cases++;
                refused += outcome->refused;
                if (passed && outcome->resident > RESIDENT_MOST) {
                    char text[200];
                    describe(text, sizeof text);
                    printf("FAILED: %zu bytes resident at the end, %zu without failures: %s\n", outcome->resident,
                           resident, text);
                    passed = false;
                }
                failed += !passed;
            }
        }
    }
    printf("settings %u: %u cases, %u failed; calls:", settings, cases, failed);
    for (int kind = 0; kind < FAKE_FALLIBLE_COUNT; kind++)
        printf(" %s %llu", kind_names[kind], (unsigned long long)calls[kind]);
    printf("; %llu requests refused; %.1f MiB resident at the end\n", (unsigned long long)refused,
           (double)resident / (double)MIB);
    CHECK(calls[FAKE_MAP] > 0 && calls[FAKE_MAP_AT] > 0 && calls[FAKE_PURGE] > 0 &&
              (settings == 2 || calls[FAKE_POPULATE] > 0),
          "the scenario misses a kind of call that the allocator must make");
    CHECK(refused > 0 || failed > 0, "no failure had any effect");
    return failed;
}

int main(int argc, char **argv)
{
    unsigned failed;

    support_options_known(argc, argv, option_names);
    support_seed = support_option(argc, argv, "seed", 1);
    outcome = support_map_shared(sizeof *outcome);
    blocks = support_map(BLOCKS * sizeof *blocks);
    failing.settings = (unsigned)support_option(argc, argv, "settings", 0) % SETTINGS;
    failing.call = support_option(argc, argv, "call", 0);
    if (failing.call != 0) {
        failing.kind = (int)support_option(argc, argv, "kind", FAKE_MAP_AT);
        CHECK(failing.kind < FAKE_FALLIBLE_COUNT, "kind %d", failing.kind);
        failing.from = support_option(argc, argv, "from", 0) != 0;
        run_case();
        printf("passed: %llu requests refused\n", (unsigned long long)outcome->refused);
        return 0;
    }
    failed = sweep(failing.settings, support_option(argc, argv, "stride", 1));
    return failed == 0 ? 0 : 1;
}
