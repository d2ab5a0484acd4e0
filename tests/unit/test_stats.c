/* Protects observe/stats.h and its counters on the fake OS: the LRU, debug counters and touched pages. */
#include "heaps.h"

#include "observe/counters.h"
#include "observe/output.h"
#include "observe/report.h"
#include "observe/stats.h"
#include "os/file.h"
#include "superslab/purge.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct stats_shot shot;

static const struct hak_stats *shoot(void)
{
    stats_shoot(&shot);
    assert_int_equal(shot.totals.mapped, shot.totals.live + shot.totals.cached + shot.totals.free_in_slab +
                                             shot.totals.retained + shot.totals.metadata); /* U1 */
    return &shot.totals;
}

/* A debug build counts exactly this, and a release build nothing. */
static void assert_counted(enum debug_counter which, uint64_t count)
{
    if (debug_counter_sum(which) != (HAK_DEBUG_COUNTERS ? count : 0))
        fail_msg("%s is %lu, should be %lu", debug_counter_names[which].name, (unsigned long)debug_counter_sum(which),
                 (unsigned long)(HAK_DEBUG_COUNTERS ? count : 0));
}

/* ---- Before anything ---- */

static void test_nothing_yet(void)
{
    struct hak_stats_superslab row;
    uint32_t number = 0;

    stats_shoot(&shot);
    assert_int_equal(shot.totals.mapped, 0);
    assert_int_equal(shot.totals.version, HAK_STATS_VERSION);
    assert_false(stats_superslab(&row, &number));
}

/* ---- The LRU: entered - reused - purged are in it ---- */

static void assert_lru(uint64_t entered, uint64_t reused, uint64_t purged)
{
    const struct hak_stats *totals = shoot();

    assert_int_equal(totals->lru_entered, entered);
    assert_int_equal(totals->lru_reused, reused);
    assert_int_equal(totals->lru_purged, purged);
    assert_int_equal(shared_pool.dirty_empties, entered - reused - purged);
    assert_counted(COUNT_LRU_ENTERED, entered);
    assert_counted(COUNT_LRU_REUSED, reused);
    assert_counted(COUNT_LRU_PURGED, purged);
    core_check_pool();
}

/* Shares in hundredths of a per cent, also where 10,000 times the hits exceeds 64 bits. */
static void test_share(void)
{
    assert_int_equal(stats_share(0, 0), 0);
    assert_int_equal(stats_share(1, 3), 2500);
    assert_int_equal(stats_share(UINT64_C(1) << 60, UINT64_C(3) << 60), 2500);
    assert_int_equal(stats_share(UINT64_C(1) << 60, 0), 10000);
}

/* The tiers of shared_pool.h, at their bounds. */
static void test_tiers(void)
{
    struct slab *slabs[SUPERSLAB_UNITS - 1];
    const struct hak_stats *totals;

    core_begin();
    core_acquire(1, 1, SUPERSLAB_UNITS - 1, slabs);
    assert_int_equal(shoot()->superslabs_full, 1);
    for (unsigned used = SUPERSLAB_UNITS - 1; used > 0; used--) {
        totals = shoot();
        assert_int_equal(totals->superslabs_draining, used <= POOL_DRAINING_USED);
        assert_int_equal(totals->superslabs_hot, used > POOL_DRAINING_USED && used < SUPERSLAB_UNITS - 1);
        core_release(slabs[used - 1]);
    }
    assert_int_equal(shoot()->superslabs_empty, 1);
}

/* Page faults are reported as a total and since the last report. */
static void test_recent_faults(void)
{
    enum { PAGES = 512 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile char *touched = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct hak_stats *totals;

    assert_true(touched != MAP_FAILED);
    madvise((void *)touched, PAGES * page, MADV_NOHUGEPAGE);
    core_begin();
    shoot();
    for (size_t i = 0; i < PAGES; i++)
        touched[i * page] = 1;
    totals = shoot();
    assert_in_range(totals->faults_soft_recent, PAGES, totals->faults_soft - 1);
    capture_begin();
    observe_report();
    capture_end();
    assert_in_range(shoot()->faults_soft_recent, 0, PAGES - 1);
}

static void test_lru(void)
{
    struct slab *slabs[3 * (SUPERSLAB_UNITS - 1)];
    enum { ONE = SUPERSLAB_UNITS - 1, ALL = 3 * ONE };
    size_t purged;

    core_begin();
    core_acquire(1, 1, ALL, slabs);
    for (size_t i = 0; i < ALL; i++)
        core_touch(slabs[i]);
    assert_lru(0, 0, 0);
    assert_int_equal(shot.totals.superslabs_full, 3);
    for (size_t i = 0; i < 2 * ONE; i++)
        core_release(slabs[i]);
    assert_lru(2, 0, 0);
    assert_int_equal(shot.totals.superslabs_empty, 2);
    core_acquire(1, 1, 1, slabs);
    assert_lru(2, 1, 0);
    assert_int_equal(shot.totals.superslabs_draining, 1);
    core_release(slabs[0]);
    assert_lru(3, 1, 0);
    purged = purge_run(true);
    assert_int_equal(purged, 2 * SUPERSLAB_SIZE);
    assert_int_equal(shoot()->purged_bytes, purged);
    assert_lru(3, 1, 2);
    core_release(slabs[2 * ONE]);
    for (size_t i = 2 * ONE + 1; i < ALL; i++)
        core_release(slabs[i]);
    assert_lru(4, 1, 2);
}

static void test_prewarm(void)
{
    core_begin();
    assert_int_equal(shared_pool_prewarm(2), 2);
    assert_lru(2, 0, 0);
    assert_int_equal(shot.totals.prewarmed, 2);
    assert_counted(COUNT_PREWARMED, 2);
    assert_counted(COUNT_REFILL_NEW_SUPERSLAB, 2);
}

/* ---- A heap's counters ---- */

static void test_refills_and_frees(void)
{
    struct heap *heap = heaps_begin(), *other = registry_take_heap();
    void *blocks[40], *more[10];
    const struct hak_stats_class *row = &shot.classes[CLASS_256];

    heaps_take_all(heap, CLASS_256, blocks, 40);
    shoot();
    assert_int_equal(row->live_blocks, 40);
    assert_int_equal(row->refilled_blocks, 40);
    assert_int_equal(row->slabs_carved, 1);
    assert_counted(COUNT_MF2_NEW_PAGE, 1);
    assert_counted(COUNT_WARM_MISS, 1);
    assert_counted(COUNT_REFILL_POOL, 1);
    heaps_return(heap, CLASS_256, blocks, 10);
    assert_counted(COUNT_MAP_LOCAL, 10);
    /* Another thread frees ten blocks in two batches. The first batch enqueues the slab. */
    lock_acquire(&other->lock);
    assert_int_equal(heap_return_blocks(other, CLASS_256, blocks + 10, 4, "free"), 4);
    assert_int_equal(heap_return_blocks(other, CLASS_256, blocks + 14, 6, "free"), 6);
    lock_release(&other->lock);
    remote_free_blocks(CLASS_256, blocks + 10, 4, "free");
    remote_free_blocks(CLASS_256, blocks + 14, 6, "free");
    assert_int_equal(shoot()->remote_out, 10);
    assert_int_equal(shot.totals.remote_in, 0);
    assert_int_equal(shot.totals.pending, 1);
    assert_int_equal(shot.totals.pending_enqueued, 1);
    assert_int_equal(row->remote_blocks, 10);
    assert_int_equal(row->live_blocks, 20);
    assert_int_equal(row->returned_blocks, 10);
    assert_counted(COUNT_MAP_REMOTE, 10);
    assert_counted(COUNT_MF2_FREE_FAST, 1);
    assert_counted(COUNT_MF2_FREE_SLOW, 1);
    assert_counted(COUNT_MF2_PENDING_ENQUEUED, 1);
    assert_int_equal(heaps_take(heap, CLASS_256, more, 10), 10);
    assert_int_equal(shoot()->remote_in, 10);
    assert_int_equal(shot.totals.pending, 0);
    assert_int_equal(row->remote_blocks, 0);
    assert_int_equal(row->returned_blocks, 20);
    assert_int_equal(row->live_blocks, 30);
    assert_counted(COUNT_REFILL_REMOTE_DRAIN, 1);
    assert_counted(COUNT_REFILL_AVAILABLE, 1);
    assert_counted(COUNT_MF2_PENDING_DRAINED, 1);
    /* One free under the owner's lock. */
    remote_free_locked(more[0], "free");
    assert_int_equal(shoot()->remote_locked, 1);
    assert_int_equal(row->live_blocks, 29);
    assert_counted(COUNT_MAP_LOCKED, 1);
    for (unsigned class = 0; class < CLASS_COUNT; class++)
        assert_int_equal(debug_counter_of(COUNT_MAP_LOCAL, class),
                         HAK_DEBUG_COUNTERS && class == CLASS_256 ? 10 : 0);
    heaps_check();
}

static void test_adoption(void)
{
    struct heap *heap = heaps_begin(), *other = registry_take_heap();
    void *blocks[4], *more[1];

    heaps_take_all(heap, CLASS_1024, blocks, 4);
    registry_abandon_heap(heap);
    assert_int_equal(shoot()->heaps_orphan, 1);
    assert_int_equal(heaps_take(other, CLASS_1024, more, 1), 1);
    assert_int_equal(shoot()->slabs_adopted, 1);
    assert_counted(COUNT_MF2_ADOPTED_ORPHAN, 1);
    assert_counted(COUNT_REFILL_ADOPTED, 1);
    assert_int_equal(shot.classes[CLASS_1024].live_blocks, 5);
    heaps_check();
}

/* A slab changes its owner while it is in the old owner's queue. The old owner passes it on. */
static void test_requeued(void)
{
    struct heap *heap = heaps_begin(), *other = registry_take_heap();
    void *blocks[4], *more[4];
    struct slab *slab;

    heaps_take_all(heap, CLASS_1024, blocks, 4);
    slab = slab_of(blocks[0]);
    remote_free_blocks(CLASS_1024, blocks, 3, "free");
    lock_acquire(&heap->lock);
    assert_true(lock_try(&other->lock));
    heap_adopt_slab(other, heap, slab);
    lock_release(&other->lock);
    assert_int_equal(remote_drain(heap), 1);
    lock_release(&heap->lock);
    assert_counted(COUNT_MF2_PENDING_REQUEUED, 1);
    assert_counted(COUNT_MF2_PENDING_ENQUEUED, 2);
    assert_counted(COUNT_MF2_PENDING_DRAINED, 1);
    assert_counted(COUNT_MF2_FREE_SLOW, 1);
    assert_counted(COUNT_MF2_FREE_FAST, 0);
    assert_int_equal(shoot()->pending_requeued, 1);
    assert_int_equal(shot.totals.pending, 1);
    assert_int_equal(heaps_take(other, CLASS_1024, more, 4), 4);
    assert_counted(COUNT_MF2_PENDING_DRAINED, 2);
    assert_int_equal(shoot()->remote_in, 3);
    for (unsigned class = 0; class < CLASS_COUNT; class++)
        assert_int_equal(debug_counter_of(COUNT_MF2_PENDING_ENQUEUED, class),
                         HAK_DEBUG_COUNTERS && class == CLASS_1024 ? 2 : 0);
    heaps_check();
}

/* ---- Touched pages: the pages of blocks that were handed out, and no others ---- */

static void test_touched_pages(void)
{
    struct heap *heap;
    void *blocks[16];

    hak_options.populate = false;
    heap = heaps_begin();
    assert_int_equal(shoot()->touched_pages, 0);
    heaps_take_all(heap, CLASS_4096, blocks, 10);
    for (size_t i = 0; i < 10; i++)
        memset(blocks[i], 1, 4096);
    assert_int_equal(shoot()->touched_pages, HAK_DEBUG ? 10 : 0);
    assert_int_equal(core_resident(slab_of(blocks[0])->start, UNIT_SIZE) / 4096, 10);
    heaps_return(heap, CLASS_4096, blocks + 1, 9);
    assert_int_equal(shoot()->touched_pages, HAK_DEBUG ? 10 : 0); /* still resident */
    size_t purged = 0;
    lock_acquire(&heap->lock);
    assert_true(heap_scrub(heap, NULL, &purged));
    lock_release(&heap->lock);
    assert_true(purged >= 9 * 4096u);
    assert_int_equal(shoot()->touched_pages, HAK_DEBUG ? 1 : 0);
    assert_int_equal(core_resident(slab_of(blocks[0])->start, UNIT_SIZE) / 4096, 1);
    heaps_return(heap, CLASS_4096, blocks, 1);
    lock_acquire(&heap->lock);
    heap_release_warm(heap);
    lock_release(&heap->lock);
    assert_true(purge_run(true) > 0);
    assert_int_equal(shoot()->touched_pages, 0);
}

/* ---- Output ---- */

static int collect(void *argument, const char *text, size_t length)
{
    strncat(argument, text, length);
    return 0;
}

static void test_output(void)
{
    static char got[8192], wanted[8192];
    struct output output;
    char path[32];

    output_begin(&output, collect, got, "> ");
    for (unsigned i = 0; i < 300; i++) {
        output_line(&output, "line %u", i);
        snprintf(wanted + strlen(wanted), 32, "> line %u\n", i);
    }
    assert_int_equal(output_end(&output), 0);
    assert_string_equal(got, wanted);
    snprintf(wanted, sizeof wanted, "a%%%d.x%%q", (int)getpid());
    assert_true(os_file_path(path, sizeof path, "a%%%p.x%q", 0, NULL));
    assert_string_equal(path, wanted);
    assert_true(os_file_path(path, sizeof path, "%", 0, NULL));
    assert_string_equal(path, "%");
    assert_false(os_file_path(path, 5, "12345", 0, NULL));
    assert_true(os_file_path(path, 6, "12345", 0, NULL));
}

static void test_debug_table(void)
{
    static char got[65536];
    struct heap *heap = heaps_begin();
    void *blocks[3];

    heaps_take_all(heap, CLASS_64, blocks, 3);
    hak_options.debug_counters = true;
    capture_begin();
    observe_exit_report();
    strncat(got, capture_end(), sizeof got - 1);
    assert_has(got,
               HAK_DEBUG_COUNTERS ? "refill_pool                       1  refills"
                                  : "this build carries no debug counters");
    if (HAK_DEBUG_COUNTERS)
        assert_has(got, "hakmem: 64: 1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_nothing_yet),       core_unit_test(test_share),
        core_unit_test(test_tiers),             core_unit_test(test_recent_faults),
        core_unit_test(test_lru),               core_unit_test(test_prewarm),
        core_unit_test(test_refills_and_frees), core_unit_test(test_adoption), core_unit_test(test_requeued),
        core_unit_test(test_touched_pages),
        core_unit_test(test_output),            core_unit_test(test_debug_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
