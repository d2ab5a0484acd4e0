/* pool/remote.h and pool/registry.h: how blocks freed by others come home, orphans, adoption, what the tick takes. */
#include "heaps.h"

#include <string.h>

/* ---- Remote frees ---- */

/* Blocks of others come back at the front of the array; then they go home through the pending queue. */
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
    /* The owner's next refill finds them first: the slab was its only one, and it is empty now. */
    assert_int_equal(heaps_take(other, CLASS_256, again, 20), 20);
    assert_int_equal(atomic_load(&other->pending_count), 0);
    assert_int_equal(other->body->counters.pending_drained, 1);
    heaps_check();
}

/* More announced than a slab has words, from many slabs, each pending once. */
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

/* Spans, and everything when MF2 is off, are freed under the owner's lock. */
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

/* An orphan's slab with free blocks of the class is taken before a fresh one; of another class it is not. */
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
    /* The orphan's thread is gone, its heap serves the next. */
    assert_ptr_equal(registry_take_heap(), leaving);
    assert_ptr_not_equal(registry_take_heap(), leaving);
}

/* O4: what others free of an orphan's is collected by them; so a full slab of it can be adopted. */
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

/* With what pends when its thread leaves, nothing is lost. */
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

enum { BLOCKS = 64, SLABS = 8 };

/* A heap whose `pending` full slabs have one remote free each. */
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

    heaps_take_all(heap, CLASS_1024, out, BLOCKS); /* a look, and it was not silent long enough */
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
    /* The first drains all of its queue. The rest is adopted only once as much pends again. */
    adopt_idle(heap, idle, 1);
    heaps_check();
}

/* Who is on slow paths now and then is not idle. */
static void test_active_not_adopted(void)
{
    struct heap *heap = heaps_begin(), *active = make_pending(6);
    void *out[BLOCKS];

    for (unsigned i = 0; i < 10; i++) {
        heaps_take_all(heap, CLASS_1024, out, BLOCKS);
        fake_advance(hak_options.mf2_idle_threshold_us * 1000);
        atomic_fetch_add(&active->epoch, 1); /* as each slow path does, here without draining */
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
    struct heap *heap = heaps_begin();
    static void *out[70 * BLOCKS];
    size_t purged = 0;

    heaps_take_all(heap, CLASS_1024, out, 70 * BLOCKS);
    for (size_t i = 0; i < 70 * BLOCKS; i++)
        memset(out[i], 1, 1024);
    for (size_t i = 0; i < 70; i++) /* all but one of 16 pages */
        heaps_return(heap, CLASS_1024, out + i * BLOCKS, BLOCKS - 4);
    assert_true(heap->body->warm[1].count > 0);
    /* A first look notes that it was active; one after the threshold finds it silent, and the next one its pages. */
    assert_true(registry_trim_idle(false, true, &purged));
    fake_advance(hak_options.mf2_idle_threshold_us * 1000);
    registry_trim_idle(false, true, &purged);
    assert_int_equal(heap->body->warm[1].count, 0);
    fake_advance(hak_options.mf2_idle_threshold_us * 1000);
    assert_false(registry_trim_idle(false, true, &purged));
    assert_int_equal(purged, 70 * 15 * 4096);
    assert_false(registry_trim_idle(false, true, &purged));
    assert_int_equal(purged, 70 * 15 * 4096);
    for (size_t i = 0; i < 70; i++)
        for (size_t j = BLOCKS - 4; j < BLOCKS; j++)
            for (size_t at = 0; at < 1024; at += 64)
                assert_int_equal(((char *)out[i * BLOCKS + j])[at], 1);
    heaps_check();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_remote),
        core_unit_test(test_remote_many),
        core_unit_test(test_remote_locked),
        core_unit_test(test_adopt_orphan),
        core_unit_test(test_orphan_drained),
        core_unit_test(test_abandon_drains),
        core_unit_test(test_adopt_idle),
        core_unit_test(test_active_not_adopted),
        core_unit_test(test_few_pending_not_adopted),
        core_unit_test(test_no_queues_looked_at),
        core_unit_test(test_trim_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
