/* Protects pool/remote.h and pool/registry.h: remote frees, orphans, adoption, and ticks that trim heaps. */
#include "heaps.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "superslab/purge.h"

/* ---- Remote frees ---- */

/* heap_return_blocks moves blocks of other heaps to the array's front. Their owner's pending queue takes them home. */
static void test_remote(void)
{
    struct heap *heap = heaps_begin(), *other = registry_take_heap();
    void *mine[10], *others[10], *mixed[20], *again[20];
    size_t remote;

    assert_int_equal(heaps_take(heap, CLASS_256, mine, 10), 10);
    assert_int_equal(heaps_take(other, CLASS_256, others, 10), 10);
    for (size_t i = 0; i < 10; i++) {
        mixed[2 * i] = mine[i];
        mixed[2 * i + 1] = others[i];
    }
    lock_acquire(&heap->lock);
    remote = heap_return_blocks(heap, CLASS_256, mixed, 20, "free");
    lock_release(&heap->lock);
    assert_int_equal(remote, 10);
    assert_int_equal(heap->body->counters.remote_blocks, 10);
    assert_memory_equal(mixed, others, sizeof others);
    assert_int_equal(atomic_load(&other->pending_count), 0);
    remote_free_blocks(CLASS_256, mixed, 10, "free");
    assert_int_equal(atomic_load(&other->pending_count), 1);
    assert_int_equal(atomic_load(&slab_of(others[0])->remote_count), 10);
    /* The owner's next refill drains its queue first. The slab was its only one, and is empty now. */
    assert_int_equal(heaps_take(other, CLASS_256, again, 20), 20);
    assert_int_equal(atomic_load(&other->pending_count), 0);
    assert_int_equal(other->body->counters.pending_drained, 1);
    heaps_check();
}

/* O7: a fork does not get a heap's lock. In the child, the lock's holder is gone in the middle of a change. */
struct holder {
    struct heap *heap;
    atomic_bool holds, ends;
};

static void *hold_heap(void *argument)
{
    struct holder *holder = argument;

    lock_acquire(&holder->heap->lock);
    atomic_store(&holder->holds, true);
    while (!atomic_load(&holder->ends))
        sched_yield();
    lock_release(&holder->heap->lock);
    return NULL;
}

static struct heap *no_heap(void *cache)
{
    (void)cache;
    return NULL;
}

static struct heap *serves_no_cache(const void *cache)
{
    (void)cache;
    return NULL;
}

static void test_lost_in_child(void)
{
    struct heap *heap = heaps_begin(), *other = registry_take_heap(), *next;
    struct holder holder = { .heap = other };
    void *blocks[10], *span;
    pthread_t thread;
    pid_t child;
    int status;

    assert_int_equal(heaps_take(other, CLASS_256, blocks, 10), 10);
    heaps_take_all(other, CLASS_COUNT - 1, &span, 1);
    assert_int_equal(pthread_create(&thread, NULL, hold_heap, &holder), 0);
    while (!atomic_load(&holder.holds))
        sched_yield();
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct slab *slab = slab_of(blocks[0]);
        slab->used = 1; /* the unfinished change */
        registry_reset_in_child(heap, serves_no_cache);
        lock_reset_in_child(&other->lock);
        registry_settle(true, no_heap);
        next = registry_take_heap();
        remote_free_blocks(CLASS_256, blocks, 10, "free");
        remote_free_locked(span, "free");
        lock_acquire(&next->lock);
        lock_release(&next->lock);
        _exit(atomic_load(&other->state) == HEAP_LOST && !heap_is_readable(other) && next != other && slab->used == 1 &&
                      atomic_load(&slab->remote_count) == 10 && slab_of(span)->used == 1
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    atomic_store(&holder.ends, true);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&other->state), HEAP_LIVE);
    heaps_check();
}

/* Frees more blocks than a slab's map has words, of many slabs. Each slab is pending once. */
static void test_remote_many(void)
{
    enum { BLOCKS = 1024, SLABS = 5 };
    static void *out[SLABS * BLOCKS], *back[SLABS * BLOCKS];
    struct heap *heap = heaps_begin();

    chance_begin();
    heaps_take_all(heap, CLASS_64, out, SLABS * BLOCKS);
    for (size_t i = SLABS * BLOCKS - 1; i > 0; i--) {
        size_t j = chance_below(i + 1);
        void *block = out[i];
        out[i] = out[j];
        out[j] = block;
    }
    for (size_t done = 0; done < SLABS * BLOCKS; done += 256) {
        memcpy(back, out + done, 256 * sizeof *back);
        remote_free_blocks(CLASS_64, back, 256, "free");
        assert_true(atomic_load(&heap->pending_count) <= SLABS);
        if (done == 1024) {
            lock_acquire(&heap->lock);
            assert_int_equal(remote_drain(heap), SLABS);
            lock_release(&heap->lock);
            heaps_check();
        }
    }
    lock_acquire(&heap->lock);
    assert_int_equal(remote_drain(heap), SLABS);
    lock_release(&heap->lock);
    assert_null(heap->full.head);
    assert_null(heap->body->available[CLASS_64].head);
    heaps_check();
}

static struct heap *remote_owner;

/* Frees blocks of another heap as one remote batch with one of them twice, and drains. The misuse must be reported
 * once, and no block counted twice. */
static void free_twice(void **batch, size_t count)
{
    const char *said;

    capture_begin();
    remote_free_blocks(CLASS_256, batch, count, "free");
    lock_acquire(&remote_owner->lock);
    remote_drain(remote_owner);
    lock_release(&remote_owner->lock);
    said = capture_end();
    assert_int_equal(count_of(said, "freed already"), 1);
    heaps_check();
}

/* A block is twice in one batch: next to itself, or with a block of another slab between. */
static void test_twice_in_one_batch(void)
{
    void *blocks[600];

    hak_options.abort_on_misuse = 0;
    remote_owner = heaps_begin();
    heaps_take_all(remote_owner, CLASS_256, blocks, 600);
    assert_ptr_not_equal(slab_of(blocks[0]), slab_of(blocks[599]));
    free_twice((void *[]){ blocks[0], blocks[0] }, 2);
    free_twice((void *[]){ blocks[1], blocks[599], blocks[1] }, 3);
}

/* A block is freed by its owner and then by another thread. The drain counts it once. */
static void test_freed_by_both(void)
{
    void *blocks[4];

    hak_options.abort_on_misuse = 0;
    remote_owner = heaps_begin();
    heaps_take_all(remote_owner, CLASS_256, blocks, 4);
    heaps_return(remote_owner, CLASS_256, blocks, 1);
    free_twice(blocks, 2);
    assert_int_equal(slab_of(blocks[3])->used, 2);
}

/* Spans, and all blocks when MF2 is off, are freed under the owner's lock. */
static void test_remote_locked(void)
{
    struct heap *heap;
    void *blocks[4], *span;

    hak_options.mf2_enable = 0;
    heap = heaps_begin();
    heaps_take_all(heap, CLASS_64, blocks, 4);
    heaps_take_all(heap, CLASS_SPAN_3, &span, 1);
    remote_free_blocks(CLASS_64, blocks, 3, "free");
    remote_free_blocks(CLASS_SPAN_3, &span, 1, "free");
    assert_int_equal(atomic_load(&heap->pending_count), 0);
    assert_int_equal(slab_of(blocks[3])->used, 1);
    heaps_check();
}

/* ---- Adoption ---- */

/* A refill takes an orphan's slab of the class before a fresh slab, and no orphan's slab of another class. */
static void test_adopt_orphan(void)
{
    struct heap *heap = heaps_begin(), *leaving = registry_take_heap();
    void *left[10], *out[64];
    struct slab *slab;

    assert_int_equal(heaps_take(leaving, CLASS_512, left, 10), 10);
    slab = slab_of(left[0]);
    registry_abandon_heap(leaving);
    assert_int_equal(atomic_load(&leaving->state), HEAP_ORPHAN);
    heaps_check();
    assert_int_equal(heaps_take(heap, CLASS_640, out, 10), 10);
    assert_ptr_equal(atomic_load(&slab->owner), leaving);
    assert_int_equal(heaps_take(heap, CLASS_512, out, 10), 10);
    assert_ptr_equal(slab_of(out[0]), slab);
    assert_ptr_equal(atomic_load(&slab->owner), heap);
    assert_int_equal(heap->body->counters.slabs_adopted, 1);
    assert_int_equal(slab->used, 20);
    heaps_check();
    /* The next thread takes the orphan. */
    assert_ptr_equal(registry_take_heap(), leaving);
    assert_ptr_not_equal(registry_take_heap(), leaving);
}

/* O4: the thread that frees an orphan's block also drains it, so a full slab of an orphan can be adopted. */
static void test_orphan_drained(void)
{
    struct heap *heap = heaps_begin(), *leaving = registry_take_heap();
    void *left[128], *out[64];

    heaps_take_all(leaving, CLASS_512, left, 128);
    registry_abandon_heap(leaving);
    remote_free_blocks(CLASS_512, (void *[]){ left[5] }, 1, "free");
    assert_int_equal(atomic_load(&leaving->pending_count), 0);
    assert_int_equal(atomic_load(&slab_of(left[0])->remote_count), 0);
    heaps_check();
    assert_int_equal(heaps_take(heap, CLASS_512, out, 64), 1);
    assert_ptr_equal(out[0], left[5]);
    assert_int_equal(heap->body->counters.slabs_adopted, 1);
    heaps_check();
}

/* Abandoning a heap drains its pending queue, so no free is lost. */
static void test_abandon_drains(void)
{
    struct heap *heap = heaps_begin();
    void *blocks[64];

    heaps_take_all(heap, CLASS_1024, blocks, 64);
    remote_free_blocks(CLASS_1024, blocks, 64, "free");
    assert_int_equal(atomic_load(&heap->pending_count), 1);
    registry_abandon_heap(heap);
    assert_int_equal(atomic_load(&heap->pending_count), 0);
    assert_int_equal(shared_pool.units_used, 0);
    heaps_check();
}

/* M4: threads that are in the midst of a remote free have all places. Others free under the owner's lock. */
static void test_no_place_for_a_freer(void)
{
    struct heap *heap = heaps_begin();
    void *blocks[2];

    heaps_take_all(heap, CLASS_256, blocks, 2);
    for (unsigned i = 0; i < REMOTE_FREERS; i++)
        atomic_store(&remote_freers[i].token, 8);
    remote_free_blocks(CLASS_256, &blocks[0], 1, "free");
    assert_int_equal(heap->body->counters.locked_blocks, 1);
    assert_int_equal(atomic_load(&heap->pending_count), 0);
    atomic_store(&remote_freers[REMOTE_FREERS - 1].token, 0);
    remote_free_blocks(CLASS_256, &blocks[1], 1, "free");
    assert_int_equal(heap->body->counters.locked_blocks, 1);
    assert_int_equal(atomic_load(&heap->pending_count), 1);
    assert_int_equal(atomic_load(&remote_freers[REMOTE_FREERS - 1].token), 0);
    memset(remote_freers, 0, sizeof remote_freers);
    heaps_check();
}

static void child_finds(unsigned place, uintptr_t token, struct slab *slab)
{
    atomic_store(&remote_freers[place].token, token);
    atomic_store(&remote_freers[place].slab, slab);
}

/* M4: the child of a fork pushes the slabs that the places name. */
static void test_freers_in_child(void)
{
    struct heap *heap = heaps_begin();
    void *blocks[2];
    struct slab *slab, *queued;
    unsigned index;

    heaps_take_all(heap, CLASS_256, blocks, 1);
    heaps_take_all(heap, CLASS_512, blocks + 1, 1);
    slab = slab_of(blocks[0]);
    queued = slab_of(blocks[1]);
    remote_free_blocks(CLASS_512, &blocks[1], 1, "free");
    index = class_block_index(slab->class, (size_t)((char *)blocks[0] - slab->start));
    atomic_store(&slab->remote[index / 64], UINT64_C(1) << (index % 64));
    atomic_store(&slab->remote_count, 1);
    child_finds(0, 8, queued);
    child_finds(1, 16, NULL);                  /* it had named no slab yet */
    child_finds(2, 24, (struct slab *)blocks); /* the SuperSlab was unmapped */
    child_finds(3, os_thread_token(), slab);   /* the thread that forked goes on with it */
    child_finds(4, 32, slab);
    remote_reset_in_child(registry.heaps, true);
    assert_int_equal(atomic_load(&heap->pending_count), 1);
    child_finds(3, 0, NULL);
    child_finds(5, 40, slab);
    remote_reset_in_child(registry.heaps, false); /* a queue may be in registers */
    assert_int_equal(atomic_load(&heap->pending_count), 1);
    child_finds(6, 48, slab);
    child_finds(7, 56, slab);
    remote_reset_in_child(registry.heaps, true);
    assert_int_equal(atomic_load(&heap->pending_count), 2);
    assert_ptr_equal(atomic_load(&heap->pending), slab);
    assert_ptr_equal(slab->pending_next, queued);
    for (unsigned i = 0; i < REMOTE_FREERS; i++)
        assert_int_equal(atomic_load(&remote_freers[i].token), 0);
    lock_acquire(&heap->lock);
    assert_int_equal(remote_drain(heap), 2);
    lock_release(&heap->lock);
    heaps_check();
}

enum { BLOCKS = 64, SLABS = 8 };

/* Makes a heap in which `pending` full slabs have one remote free each. */
static struct heap *make_pending(unsigned pending)
{
    static void *out[SLABS * BLOCKS];
    struct heap *idle = registry_take_heap();

    heaps_take_all(idle, CLASS_1024, out, SLABS * BLOCKS);
    for (unsigned i = 0; i < pending; i++)
        remote_free_blocks(CLASS_1024, (void *[]){ out[i * BLOCKS] }, 1, "free");
    assert_int_equal(atomic_load(&idle->pending_count), pending);
    return idle;
}

static void adopt_idle(struct heap *heap, struct heap *idle, unsigned slabs)
{
    void *out[BLOCKS];
    uint64_t before = heap->body->counters.slabs_adopted;

    heaps_take_all(heap, CLASS_1024, out, BLOCKS); /* sees a heap that was active */
    assert_int_equal(heap->body->counters.slabs_adopted, before);
    fake_advance(hak_options.mf2_idle_threshold_us * 1000 - 1);
    heaps_take_all(heap, CLASS_1024, out, BLOCKS);
    assert_int_equal(heap->body->counters.slabs_adopted, before);
    fake_advance(1);
    for (unsigned i = 0; i < slabs; i++) {
        assert_int_equal(heaps_take(heap, CLASS_1024, out, BLOCKS), 1);
        assert_ptr_equal(atomic_load(&slab_of(out[0])->owner), heap);
    }
    assert_int_equal(heap->body->counters.slabs_adopted, before + slabs);
    assert_int_equal(atomic_load(&idle->pending_count), 0);
}

static void test_adopt_idle(void)
{
    struct heap *heap = heaps_begin(), *idle = make_pending(6);

    assert_true(6 >= hak_options.mf2_enqueue_threshold);
    /* The first adoption drains the whole queue. More slabs are adopted only when as many are pending again. */
    adopt_idle(heap, idle, 1);
    heaps_check();
}

/* A heap that takes slow paths now and then is not idle. */
static void test_active_not_adopted(void)
{
    struct heap *heap = heaps_begin(), *active = make_pending(6);
    void *out[BLOCKS];

    for (unsigned i = 0; i < 10; i++) {
        heaps_take_all(heap, CLASS_1024, out, BLOCKS);
        fake_advance(hak_options.mf2_idle_threshold_us * 1000);
        atomic_fetch_add(&active->epoch, 1); /* as each slow path does, but without a drain */
    }
    assert_int_equal(heap->body->counters.slabs_adopted, 0);
    assert_int_equal(atomic_load(&active->pending_count), 6);
}

static void not_adopted(struct heap *heap, struct heap *idle, unsigned pending)
{
    void *out[BLOCKS];

    for (unsigned i = 0; i < 4; i++) {
        heaps_take_all(heap, CLASS_1024, out, BLOCKS);
        fake_advance(1000000 * MILLISECOND);
    }
    assert_int_equal(heap->body->counters.slabs_adopted, 0);
    assert_int_equal(atomic_load(&idle->pending_count), pending);
}

static void test_few_pending_not_adopted(void)
{
    struct heap *heap = heaps_begin();
    unsigned few = (unsigned)hak_options.mf2_enqueue_threshold - 1;

    not_adopted(heap, make_pending(few), few);
}

static void test_no_queues_looked_at(void)
{
    struct heap *heap;

    hak_options.mf2_max_queues = 0;
    heap = heaps_begin();
    not_adopted(heap, make_pending(6), 6);
}

/* ---- The tick's view of heaps ---- */

static void test_trim_idle(void)
{
    enum { TRIMMED = 71 }; /* leaves slabs of the last refill in the warm pool */
    struct heap *heap = heaps_begin();
    static void *out[TRIMMED * BLOCKS];
    size_t purged = 0;

    heaps_take_all(heap, CLASS_1024, out, TRIMMED * BLOCKS);
    for (size_t i = 0; i < TRIMMED * BLOCKS; i++)
        memset(out[i], 1, 1024);
    for (size_t i = 0; i < TRIMMED; i++) /* leaves one of 16 pages in use */
        heaps_return(heap, CLASS_1024, out + i * BLOCKS, BLOCKS - 4);
    assert_true(heap->body->warm[1].count > 0);
    /* The first look sees activity. After the threshold a look finds the heap silent, and the next one scrubs it. */
    assert_true(registry_trim_idle(false, true, NULL, &purged));
    fake_advance(hak_options.mf2_idle_threshold_us * 1000);
    registry_trim_idle(false, true, NULL, &purged);
    assert_int_equal(heap->body->warm[1].count, 0);
    fake_advance(hak_options.mf2_idle_threshold_us * 1000);
    assert_false(registry_trim_idle(false, true, NULL, &purged));
    assert_int_equal(purged, TRIMMED * 15 * 4096);
    assert_false(registry_trim_idle(false, true, NULL, &purged));
    assert_int_equal(purged, TRIMMED * 15 * 4096);
    for (size_t i = 0; i < TRIMMED; i++)
        for (size_t j = BLOCKS - 4; j < BLOCKS; j++)
            for (size_t at = 0; at < 1024; at += 64)
                assert_int_equal(((char *)out[i * BLOCKS + j])[at], 1);
    heaps_check();
}

/* Bytes that scrubbing the heap gives back now. */
static size_t scrubbed_bytes(struct heap *heap)
{
    size_t purged = 0;

    lock_acquire(&heap->lock);
    remote_drain(heap);
    heap_scrub(heap, NULL, &purged);
    lock_release(&heap->lock);
    return purged;
}

/* A slab is scrubbed once, and again after its owner or another thread freed a block of it. */
static void test_scrub_after_free(void)
{
    struct heap *heap = heaps_begin();
    void *blocks[4];

    heaps_take_all(heap, CLASS_4096, blocks, 4);
    assert_int_equal(scrubbed_bytes(heap), 12 * 4096);
    assert_int_equal(scrubbed_bytes(heap), 0);
    heaps_return(heap, CLASS_4096, blocks, 1);
    assert_int_equal(scrubbed_bytes(heap), 13 * 4096);
    remote_free_blocks(CLASS_4096, blocks + 1, 1, "free");
    assert_int_equal(scrubbed_bytes(heap), 14 * 4096);
    assert_int_equal(scrubbed_bytes(heap), 0);
}

/* The next look tries again to purge pages that the system refused, although the heap did not change. */
static void test_trim_refused(void)
{
    struct heap *heap = heaps_begin();
    void *blocks[4];
    size_t purged = 0;

    heaps_take_all(heap, CLASS_4096, blocks, 4);
    registry_trim_idle(true, true, NULL, &purged);
    heaps_return(heap, CLASS_4096, blocks, 1);
    purged = 0;
    fake_fail_from(FAKE_PURGE, 1);
    assert_true(registry_trim_idle(true, true, NULL, &purged));
    assert_int_equal(purged, 0);
    fake_fail_nothing();
    assert_false(registry_trim_idle(true, true, NULL, &purged));
    assert_int_equal(purged, 13 * 4096);
}

/* G2: these announce a purge: a slab that waits with its heap, a remote free, and the record of an ended heap. */
static void test_announces(void)
{
    struct heap *heap = heaps_begin(), *own = registry_new_first_class();
    void *small[64], *large;
    unsigned waiting;

    hak_options.thp = OPTION_NEVER;
    heap->body->filled[CLASS_1024] = 1;
    heaps_take_all(heap, CLASS_1024, small, 64);
    heaps_take_all(heap, class_of_size(9216), &large, 1);
    assert_int_not_equal(heap->body->warm[1].budget, 0);
    purge_begin();
    heaps_return(heap, class_of_size(9216), &large, 1);
    assert_int_equal(atomic_load(&slab_of(large)->state), SLAB_WARM);
    assert_int_not_equal(atomic_load(&shared_pool.next_purge_ms), 0);
    purge_begin();
    remote_free_blocks(CLASS_1024, small, 1, "free");
    assert_int_not_equal(atomic_load(&shared_pool.next_purge_ms), 0);
    lock_acquire(&heap->lock);
    remote_drain(heap);
    waiting = heap->body->warm[1].count;
    lock_release(&heap->lock);
    purge_begin();
    heaps_return(heap, CLASS_1024, small + 1, 63);
    assert_int_equal(heap->body->warm[1].count, waiting + 1);
    assert_int_not_equal(atomic_load(&shared_pool.next_purge_ms), 0);
    purge_begin();
    registry_drop_first_class(own);
    assert_int_not_equal(atomic_load(&shared_pool.next_purge_ms), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_remote),
        core_unit_test(test_lost_in_child),
        core_unit_test(test_remote_many),
        core_unit_test(test_remote_locked),
        core_unit_test(test_twice_in_one_batch),
        core_unit_test(test_freed_by_both),
        core_unit_test(test_adopt_orphan),
        core_unit_test(test_orphan_drained),
        core_unit_test(test_abandon_drains),
        core_unit_test(test_no_place_for_a_freer),
        core_unit_test(test_freers_in_child),
        core_unit_test(test_adopt_idle),
        core_unit_test(test_active_not_adopted),
        core_unit_test(test_few_pending_not_adopted),
        core_unit_test(test_no_queues_looked_at),
        core_unit_test(test_trim_idle),
        core_unit_test(test_scrub_after_free),
        core_unit_test(test_trim_refused),
        core_unit_test(test_announces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
