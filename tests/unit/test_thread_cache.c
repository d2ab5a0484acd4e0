/* Protects front/thread_cache.h through malloc and free: growth, shrinking and flushes of bins, and T1 to T4. */
#include "heaps.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "front/fast.h"
#include "front/housekeeping.h"
#include "front/purge_thread.h"
#include "front/sample.h"
#include "front/thread.h"

/* Constants of thread_cache.c. */
enum { FIRST_BYTES = 4096, FIRST_MOST = 16, ONE_WAY_OVERFLOWS = 8, SHRINK_INTERVAL = 8 };

enum { MOST = 20000 };
static void *held[MOST];
static size_t held_count;

static struct thread_cache *begin(void)
{
    struct thread_cache *cache = thread_cache_get();

    assert_non_null(cache);
    assert_ptr_equal(cache, cache_current());
    assert_ptr_equal(cache->heap->cache, cache);
    registry_expect_thread(); /* no deep bins here: test_deep.c has them */
    return cache;
}

static unsigned capacity(const struct thread_cache *cache, unsigned class)
{
    return cache->bins[class].limit - cache->base[class];
}

static void hold(size_t size, size_t count)
{
    for (; count; count--) {
        assert_true(held_count < MOST);
        held[held_count] = front_malloc(size);
        assert_non_null(held[held_count]);
        held_count++;
    }
}

static void let_go(size_t count)
{
    for (; count; count--)
        front_free(held[--held_count]);
}

/* Appends `count` blocks of the class, which another thread's heap owns, to held[]. */
static void hold_foreign(struct heap *other, unsigned class, size_t count)
{
    heaps_take_all(other, class, held + held_count, count);
    held_count += count;
}

/* ---- Invariants ---- */

static size_t used_blocks(const struct heap *heap, unsigned class)
{
    size_t used = 0;

    for (const struct slab *slab = heap->full.head; slab; slab = slab->next)
        used += slab->class == class ? slab->used : 0;
    for (const struct slab *slab = heap->body->available[class].head; slab; slab = slab->next)
        used += slab->used;
    return used;
}

static void check_cache(const struct thread_cache *cache)
{
    size_t bytes = 0;

    assert_int_equal(cache->bins[CLASS_NONE].top, 0); /* T1 */
    assert_int_equal(cache->bins[CLASS_NONE].limit, 0);
    assert_null(cache->slots[CLASS_NONE_SLOT]);
    for (unsigned class = 1; class < CLASS_COUNT; class++) { /* T3 */
        const struct size_class *row = &size_classes[class];
        const struct bin *bin = &cache->bins[class];
        unsigned base = cache->base[class];
        assert_true(base == row->first_base || base == row->slot_base);
        assert_null(cache->slots[row->slot_base]); /* T2 */
        assert_null(cache->slots[row->first_base]);
        assert_true(bin->top >= base && bin->top <= bin->limit);
        assert_true(capacity(cache, class) <= (base == row->first_base ? row->first_limit : row->slot_limit));
        assert_true(capacity(cache, class) <= hak_options.fc_cap);
        bytes += capacity(cache, class) * class_size(class);
        for (unsigned slot = base + 1; slot <= bin->top; slot++) {
            const void *block = cache->slots[slot];
            unsigned index;
            assert_int_equal(slab_of(block)->class, class);
            assert_true(slab_block_index(slab_of(block), block, &index));
            assert_false(slab_block_is_free(slab_of(block), index)); /* a cached block counts as used */
            for (unsigned other = base + 1; other < slot; other++)
                assert_ptr_not_equal(cache->slots[other], block);
        }
    }
    assert_int_equal(cache->capacity_bytes, bytes);
    assert_true(bytes <= hak_options.cache_bytes);
}

static void check_empty_caches(void)
{
    for (size_t at = 0; at < WINDOW_PAGE_MAP; at++) /* T1 */
        assert_int_equal(window_base()[at], 0);
}

/* ---- Growing ---- */

/* A bin starts at its first bytes and doubles with each refill, up to its class's bound. */
static void test_doubling(void)
{
    struct thread_cache *cache = begin();

    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        unsigned first = (unsigned)base_min(base_max(FIRST_BYTES / class_size(class), 1), FIRST_MOST), expected = 0;
        for (unsigned refill = 0; refill < 6; refill++) {
            hold(class_size(class), 1);
            expected = expected ? expected * 2 : first;
            expected = (unsigned)base_min(expected, size_classes[class].slot_limit);
            assert_int_equal(capacity(cache, class), expected);
            /* A refill takes at most half of the bin, and no more than fc_refill. */
            assert_true(cache_count(cache, class) + 1 <= base_max(base_min(expected / 2, hak_options.fc_refill), 1));
            assert_ptr_equal(cache_current(), cache);
            check_cache(cache);
            hold(class_size(class), cache_count(cache, class));
        }
        let_go(held_count);
        front_collect(true); /* so that the next class may have all bytes */
        assert_int_equal(cache->capacity_bytes, 0);
        assert_int_equal(shared_pool.units_used, 0);
    }
    check_empty_caches();
    heaps_check();
}

/* A bin that overflows grows in the same way. Then no block leaves it. */
static void test_doubling_by_free(void)
{
    struct thread_cache *cache = begin();
    struct heap *other = registry_take_heap();
    unsigned expected = FIRST_MOST;

    hold_foreign(other, CLASS_64, 300);
    while (held_count) {
        unsigned before = capacity(cache, CLASS_64), count = cache_count(cache, CLASS_64);
        let_go(1);
        if (capacity(cache, CLASS_64) != before) {
            assert_int_equal(cache_count(cache, CLASS_64), count + 1);
            assert_int_equal(capacity(cache, CLASS_64), expected);
            expected = (unsigned)base_min(expected * 2, size_classes[CLASS_64].slot_limit);
        }
        check_cache(cache);
    }
    assert_int_equal(capacity(cache, CLASS_64), size_classes[CLASS_64].slot_limit);
}

/* A block that shares a cache line with another thread's block goes home at once while this thread does not use the
 * class: malloc must not hand it out. A thread that frees many of them gets a bin. */
static void test_small_foreign(void)
{
    struct thread_cache *cache = begin();
    struct heap *other = registry_take_heap();
    unsigned freed = 0;

    hold_foreign(other, CLASS_48, 100);
    while (capacity(cache, CLASS_48) == 0) {
        char *block = held[held_count - 1];
        unsigned index;
        let_go(1);
        freed++;
        assert_true(slab_block_index(slab_of(block), block, &index));
        assert_int_equal(slab_block_is_free(slab_of(block), index), capacity(cache, CLASS_48) == 0);
    }
    assert_int_equal(freed, ONE_WAY_OVERFLOWS + 1);
    check_cache(cache);
    /* The thread's own blocks open the bin, and so do larger blocks of other threads. */
    let_go(held_count);
    front_collect(true);
    hold(32, 1);
    let_go(1);
    assert_true(capacity(cache, CLASS_32) > 0);
    hold_foreign(other, CLASS_64, 1);
    let_go(1);
    assert_int_equal(cache_count(cache, CLASS_64), 1);
}

static void bounded(void)
{
    struct thread_cache *cache = begin();

    chance_begin();
    for (unsigned step = 0; step < 20000; step++) {
        size_t class = 1 + chance_below(CLASS_COUNT - 1), size = class_size((unsigned)class);
        if (size > 32 * HAK_KIB && chance_below(20))
            size = 1 + chance_below(3000);
        if (chance_below(2) && held_count < 1000)
            hold(size, 1 + chance_below(20));
        else
            let_go(base_min(held_count, chance_below(40)));
        if (step % 16 == 0)
            check_cache(cache);
    }
    let_go(held_count);
    check_cache(cache);
    check_empty_caches();
    heaps_check();
}

static void test_bounds(void) { bounded(); }

static char *const cap_of_eight[] = { "HAKMEM_FC_CAP=8", "HAKMEM_FC_REFILL=3", NULL };
static void test_bounds_cap(void)
{
    fake_set_environment(cap_of_eight);
    bounded();
    assert_int_equal(hak_options.fc_cap, 8);
}

static char *const few_bytes[] = { "HAKMEM_CACHE_BYTES=16K", NULL };
static void test_bounds_bytes(void)
{
    fake_set_environment(few_bytes);
    bounded();
    assert_int_equal(hak_options.cache_bytes, 16 * HAK_KIB);
}

/* Frees many blocks of each class in turn, several times, and tells how many bytes the bins then have at most. */
static size_t most_bytes(struct thread_cache *cache)
{
    size_t most = 0;

    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 64; i++)
            for (size_t size = 1024; size <= 16384; size += 1024)
                hold(size, 1);
        let_go(held_count);
        most = base_max(most, cache->capacity_bytes);
    }
    return most;
}

/* While calls are counted for the heap profile, bins have room for the blocks that come back while a run lasts, too. */
static void test_bounds_bytes_while_counted(void)
{
    struct thread_cache *cache = begin();
    size_t bytes = hak_options.cache_bytes;

    assert_in_range(most_bytes(cache), bytes / 2, bytes);
    assert_int_equal(front_profile_set(512 * HAK_KIB), 0);
    assert_in_range(most_bytes(cache), bytes + bytes / 2, 2 * bytes);
    assert_int_equal(front_profile_set(0), 0);
    assert_in_range(cache->capacity_bytes, 0, bytes);
    assert_in_range(most_bytes(cache), bytes / 2, bytes);
    heaps_check();
}

static void test_large_spans_not_cached(void)
{
    struct thread_cache *cache = begin();

    for (unsigned class = CLASS_SPAN_9; class < CLASS_COUNT; class++)
        for (unsigned i = 0; i < 3; i++) {
            hold(class_size(class), 2);
            let_go(2);
            assert_int_equal(capacity(cache, class), 0);
            heaps_release_warm(cache->heap);
            assert_int_equal(shared_pool.units_used, 0);
        }
    check_cache(cache);
}

/* ---- What a cached block is ---- */

/* A cached block counts as used in its slab, whoever owns it. */
static void test_counted_as_used(void)
{
    struct thread_cache *cache = begin();
    struct heap *other = registry_take_heap();

    hold(64, 1000);
    hold_foreign(other, CLASS_64, 100);
    assert_int_equal(used_blocks(cache->heap, CLASS_64), 1000 + cache_count(cache, CLASS_64));
    let_go(100);
    let_go(50);
    lock_acquire(&other->lock); /* blocks on their way home are not in a cache */
    remote_drain(other);
    lock_release(&other->lock);
    assert_int_equal(used_blocks(cache->heap, CLASS_64) + used_blocks(other, CLASS_64),
                     950 + cache_count(cache, CLASS_64));
    check_cache(cache);
}

/* The block that was freed last is given first. */
static void test_order(void)
{
    void *first;

    begin();
    hold(64, 5);
    first = held[4];
    let_go(1);
    assert_ptr_equal(front_malloc(64), first);
}

/* A flush takes the blocks that were freed first, so the last frees come back in the opposite order. */
static void test_flush_takes_oldest(void)
{
    enum { COUNT = 300 }; /* too few overflows for a one-way bin */
    struct thread_cache *cache = begin();
    unsigned left;

    hold(64, COUNT);
    front_collect(false); /* empties the bin */
    for (size_t i = 0; i < COUNT; i++)
        front_free(held[i]);
    left = cache_count(cache, CLASS_64);
    assert_in_range(left, 2, COUNT - 1);
    for (size_t i = 1; i <= left; i++)
        assert_ptr_equal(front_malloc(64), held[COUNT - i]);
    held_count = 0;
}

/* ---- One-way bins ---- */

/* The bin of a thread that only frees holds no more than a batch, and then flushes all of it. */
static void test_one_way(void)
{
    struct thread_cache *cache = begin();
    struct heap *other = registry_take_heap();
    unsigned overflows = 0, flushed_whole = 0;

    for (unsigned round = 0; round < 20; round++) {
        hold_foreign(other, CLASS_512, 512);
        while (held_count) {
            unsigned before = cache_count(cache, CLASS_512);
            bool one_way = cache->overflows[CLASS_512] >= ONE_WAY_OVERFLOWS;
            bool full = before == capacity(cache, CLASS_512);
            let_go(1);
            overflows += full;
            if (full && one_way) {
                assert_int_equal(cache_count(cache, CLASS_512), 1);
                flushed_whole++;
            }
            check_cache(cache);
        }
    }
    assert_true(overflows > 20 && flushed_whole > 10);
    assert_true(cache->overflows[CLASS_512] >= ONE_WAY_OVERFLOWS);
    /* A refill ends the one-way state. */
    hold(512, 300);
    assert_int_equal(cache->overflows[CLASS_512], 0);
}

/* ---- Shrinking ---- */

/* The shrinking hand takes blocks and capacity from an unused bin, however busy other bins are. */
static void test_shrinking_hand(void)
{
    struct thread_cache *cache = begin();
    unsigned slow_calls;

    hold(2048, 40);
    let_go(40);
    hold(64, 1);
    let_go(1);
    assert_true(capacity(cache, CLASS_2048) > 0 && cache_count(cache, CLASS_2048) > 0);
    slow_calls = cache->slow_calls;
    while (capacity(cache, CLASS_2048) != 0) {
        hold(64, 1);
        assert_true(cache->slow_calls - slow_calls <= 10 * SHRINK_INTERVAL);
    }
    assert_int_equal(cache_count(cache, CLASS_2048), 0);
    assert_int_equal(used_blocks(cache->heap, CLASS_2048), 0);
    assert_true(capacity(cache, CLASS_64) > 0); /* it is in use */
    check_cache(cache);
    heaps_check();
}

/* ---- Flushing ---- */

static void test_collect(void)
{
    struct thread_cache *cache = begin();

    for (unsigned class = 1; class < CLASS_SPAN_5; class++) {
        hold(class_size(class), 5);
        let_go(5);
    }
    assert_true(shared_pool.units_used > 0);
    front_collect(true);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        assert_int_equal(capacity(cache, class), 0);
    check_cache(cache);
    assert_int_equal(shared_pool.units_used, 0);
    assert_int_equal(shared_pool.units_dirty, 0);
    heaps_check();
    core_check_untouched();
}

/* A tick flushes the cache of its own thread at once, and each other thread's at that thread's next slow call. */
static void test_tick(void)
{
    struct thread_cache *cache = begin();
    uint32_t ticks;

    hold(64, 100);
    let_go(60);
    assert_true(cache_count(cache, CLASS_64) > 0);
    hold(2 * HAK_MIB, 1);
    let_go(1); /* memory for which a purge becomes due */
    fake_advance((hak_options.purge_delay + 4) * MILLISECOND);
    ticks = cache_flush_number();
    front_free(front_malloc(HAK_MIB)); /* takes a slow path */
    assert_int_equal(cache_flush_number(), ticks + 1);
    assert_int_equal(cache_count(cache, CLASS_64), 0);
    assert_int_equal(cache->tick, cache_flush_number());
    assert_int_equal(used_blocks(cache->heap, CLASS_64), held_count);
    check_cache(cache);
    /* As if another thread had made a tick. */
    hold(64, 1);
    assert_true(cache_count(cache, CLASS_64) > 0);
    atomic_fetch_add(&cache_flushes, 1);
    hold(2048, 1);
    assert_int_equal(cache_count(cache, CLASS_64), 0);
    assert_int_equal(cache->tick, cache_flush_number());
    heaps_check();
}

/* The first tick does all that a tick does, also where the machine started less than a purge delay ago. */
static void test_first_tick_on_a_young_machine(void)
{
    struct thread_cache *cache = begin();

    hak_options.purge_delay = 3600000;
    assert_true(shared_pool_now_ms() < hak_options.purge_delay);
    hold(64, 10);
    let_go(10);
    assert_true(cache_count(cache, CLASS_64) > 0);
    shared_pool_schedule_purge(0);
    fake_advance(2 * MILLISECOND);
    assert_true(housekeep_tick());
    assert_int_equal(cache_count(cache, CLASS_64), 0);
    assert_int_equal(shared_pool.live_peak_ms, shared_pool_now_ms());
}

/* A tick on time lets the memory that it just freed wait for a full purge delay. */
static void test_tick_in_time(void)
{
    enum { SIZE = 100000, SPANS = 4 };
    struct thread_cache *cache = begin();

    hak_options.thp = OPTION_NEVER;
    housekeep_purge(true);
    hold(SIZE, SPANS);
    atomic_store(&shared_pool.next_purge_ms, 0); /* so that no slow call ticks */
    fake_advance(hak_options.purge_delay * MILLISECOND);
    let_go(SPANS);
    shared_pool_schedule_purge(0);
    fake_advance(2 * MILLISECOND);
    assert_true(housekeep_tick());
    assert_int_equal(cache_count(cache, class_of_size(SIZE)), 0);
    assert_int_equal(shared_pool.units_dirty, SPANS * 2);
}

/* G2: a tick asks for another tick if it left memory to a heap in use, or if it was a round's last step. */
static void test_tick_wants_another(void)
{
    begin();
    hak_options.thp = OPTION_NEVER;
    hold(64, 10);
    housekeep_purge(false);
    assert_int_not_equal(atomic_load(&shared_pool.next_purge_ms), 0);
    housekeep_purge(true);
    atomic_store(&registry.settling, true);
    shared_pool_schedule_purge(0);
    fake_advance(2 * MILLISECOND);
    assert_true(housekeep_tick());
    assert_false(registry_has_more());
    assert_int_not_equal(atomic_load(&shared_pool.next_purge_ms), 0);
}

/* ---- Threads ---- */

static struct thread_cache *seen_cache;
static struct heap *seen_heap;

static void *use_and_end(void *left)
{
    void *block = front_malloc(100);

    seen_cache = cache_current();
    seen_heap = seen_cache->heap;
    *(void **)left = front_malloc(200);
    front_free(block);
    return NULL;
}

static void run_thread(void **left)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, use_and_end, left), 0);
    pthread_join(thread, NULL);
}

/* The next thread takes the cache and heap of an ended thread as they are. A tick returns the cached blocks. */
static void test_thread_end(void)
{
    struct thread_cache *cache = begin(), *first;
    struct heap *heap;
    void *left[2];

    run_thread(&left[0]);
    first = seen_cache;
    heap = seen_heap;
    assert_ptr_not_equal(first, cache);
    assert_int_equal(atomic_load(&heap->state), HEAP_ORPHAN);
    assert_ptr_equal(heap->cache, first);
    check_cache(first);
    assert_int_not_equal(cache_count(first, class_of_size(100)), 0);
    assert_int_equal(used_blocks(heap, class_of_size(100)), cache_count(first, class_of_size(100)));
    assert_int_equal(used_blocks(heap, class_of_size(200)), cache_count(first, class_of_size(200)) + 1);
    heaps_check();
    run_thread(&left[1]);
    assert_ptr_equal(seen_cache, first);
    assert_ptr_equal(seen_heap, heap);
    housekeep_purge(false);
    assert_int_equal(first->capacity_bytes, 0);
    check_cache(first);
    assert_int_equal(used_blocks(heap, class_of_size(100)), 0);
    assert_int_equal(used_blocks(heap, class_of_size(200)), 2);
    heaps_check();
    front_free(left[0]);
    front_free(left[1]);
    front_collect(true);
    assert_int_equal(shared_pool.units_used, 0);
    check_empty_caches();
    heaps_check();
}

/* G2: a purge requested by the pool, too early for a tick, does not drop another request. */
static void test_no_wish_is_lost(void)
{
    void *left;

    begin();
    housekeep_purge(true);
    run_thread(&left);
    assert_int_not_equal(atomic_load(&shared_pool.next_purge_ms), 0); /* for the blocks in the thread's cache */
    shared_pool_schedule_purge(1);
    fake_advance(4 * MILLISECOND);
    housekeep();
    assert_int_not_equal(seen_cache->capacity_bytes, 0);
    assert_int_not_equal(atomic_load(&shared_pool.next_purge_ms), 0);
    fake_advance((hak_options.purge_delay + 4) * MILLISECOND);
    housekeep();
    assert_int_equal(seen_cache->capacity_bytes, 0);
    front_free(left);
    heaps_check();
}

/* The purge thread clears much_waits once it has purged. Otherwise it would never sleep. */
static void test_purge_thread_has_seen_to_it(void)
{
    begin();
    atomic_store(&shared_pool.much_waits, true);
    purge_thread_at_thread(pthread_create);
    alarm(UNIT_HANG);
    while (atomic_load(&shared_pool.much_waits))
        usleep(1000);
    alarm(0);
}

static void *tick(void *unused)
{
    (void)unused;
    housekeep_purge(true);
    return NULL;
}

/* Blocks cached for a purge delay, while another thread made the tick, do not wait for a second delay. */
static void test_tick_of_another(void)
{
    struct thread_cache *cache = begin();
    pthread_t thread;

    hold(2048, 300);
    let_go(300);
    assert_true(cache_count(cache, class_of_size(2048)) > 0);
    assert_int_equal(pthread_create(&thread, NULL, tick, NULL), 0);
    pthread_join(thread, NULL);
    assert_true(shared_pool.units_used > 0);
    fake_advance((hak_options.purge_delay + 4) * MILLISECOND);
    front_free(front_malloc(64));
    assert_int_equal(cache_count(cache, class_of_size(2048)), 0);
    assert_int_equal(shared_pool.units_dirty, 0);
    heaps_check();
}

static void *allocate_once(void *ticks)
{
    uint32_t before = cache_flush_number();

    front_free(front_malloc(64));
    *(uint32_t *)ticks = cache_flush_number() - before;
    return NULL;
}

/* A slow call makes no tick unless its thread's cache holds blocks that were to be flushed a delay ago. A flush may be
 * due without a tick, and a new thread holds nothing old. */
static void test_no_tick_for_nothing(void)
{
    struct thread_cache *cache = begin();
    pthread_t thread;
    uint32_t ticks;

    hold(2048, 300);
    let_go(300);
    cache_want_flush();
    allocate_once(&ticks);
    assert_int_equal(ticks, 0);
    assert_int_equal(cache_count(cache, class_of_size(2048)), 0);
    housekeep_purge(true);
    fake_advance((hak_options.purge_delay + 4) * MILLISECOND);
    atomic_store(&shared_pool.next_purge_ms, 0); /* no tick is due */
    assert_int_equal(pthread_create(&thread, NULL, allocate_once, &ticks), 0);
    pthread_join(thread, NULL);
    assert_int_equal(ticks, 0);
    hold(2048, 30);
    let_go(30);
    cache_want_flush();
    fake_advance((hak_options.purge_delay + 4) * MILLISECOND);
    allocate_once(&ticks);
    assert_int_equal(ticks, 1);
    heaps_check();
}

static void test_release(void)
{
    struct thread_cache *cache = begin();
    struct heap *heap = cache->heap;

    hold(64, 10);
    thread_release();
    assert_int_equal(hak_cache_offset, 0);
    assert_null(cache_current()->heap);
    assert_int_equal(atomic_load(&heap->state), HEAP_ORPHAN);
    let_go(1); /* works again, with the same heap */
    assert_ptr_equal(cache_current(), cache);
    assert_int_equal(atomic_load(&heap->state), HEAP_LIVE);
    let_go(9);
    check_cache(cache);
    heaps_check();
}

/* A batch comes from the heap, at most 256 blocks at a time, and leaves the cache as it is. Spans come one by one. */
static void test_batch(void)
{
    struct thread_cache *cache = begin();
    unsigned class = class_of_size(100);
    size_t before;

    hold(100, 1);
    before = cache_count(cache, class);
    assert_int_equal(front_malloc_batch(100, 600, held + held_count), 600);
    held_count += 600;
    assert_int_equal(cache_count(cache, class), before);
    assert_in_range(cache->heap->classes[class].direct, 3, 5); /* a slab may end in a batch */
    for (size_t i = 0; i < held_count; i++)
        assert_int_equal(slab_of(held[i])->class, class);
    for (size_t i = 0; i < 5; i++)
        held[held_count + i] = NULL;
    assert_int_equal(front_malloc_batch(100000, 5, held + held_count), 5);
    for (size_t i = 0; i < 5; i++)
        assert_non_null(held[held_count + i]);
    held_count += 5;
    assert_int_equal(front_malloc_batch(100, 0, NULL), 0);
    let_go(held_count);
    check_cache(cache);
    heaps_check();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_doubling),
        core_unit_test(test_doubling_by_free),
        core_unit_test(test_small_foreign),
        core_unit_test(test_bounds),
        core_unit_test(test_bounds_cap),
        core_unit_test(test_bounds_bytes),
        core_unit_test(test_bounds_bytes_while_counted),
        core_unit_test(test_large_spans_not_cached),
        core_unit_test(test_counted_as_used),
        core_unit_test(test_order),
        core_unit_test(test_flush_takes_oldest),
        core_unit_test(test_first_tick_on_a_young_machine),
        core_unit_test(test_tick_in_time),
        core_unit_test(test_tick_wants_another),
        core_unit_test(test_one_way),
        core_unit_test(test_shrinking_hand),
        core_unit_test(test_collect),
        core_unit_test(test_tick),
        core_unit_test(test_thread_end),
        core_unit_test(test_purge_thread_has_seen_to_it),
        core_unit_test(test_no_wish_is_lost),
        core_unit_test(test_tick_of_another),
        core_unit_test(test_no_tick_for_nothing),
        core_unit_test(test_release),
        core_unit_test(test_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
