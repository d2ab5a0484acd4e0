#include "heaps.h"

struct heap *heaps_begin(void)
{
    struct heap *heap;

    core_begin();
    heap = registry_take_heap();
    assert_non_null(heap);
    assert_int_equal(atomic_load(&heap->state), HEAP_LIVE);
    return heap;
}

size_t heaps_take(struct heap *heap, unsigned class, void **out, size_t want)
{
    bool zero;
    size_t got;

    lock_acquire(&heap->lock);
    got = heap_take_blocks(heap, class, out, want, &zero);
    lock_release(&heap->lock);
    return got;
}

/* Takes exactly `count` blocks, by as many refills as it needs. */
void heaps_take_all(struct heap *heap, unsigned class, void **out, size_t count)
{
    for (size_t got = 0; got < count;) {
        size_t more = heaps_take(heap, class, out + got, base_min(count - got, 64));
        assert_true(more > 0);
        got += more;
    }
}

void heaps_return(struct heap *heap, unsigned class, void **blocks, size_t count)
{
    lock_acquire(&heap->lock);
    assert_int_equal(heap_return_blocks(heap, class, blocks, count, "free"), 0);
    lock_release(&heap->lock);
}

void heaps_release_warm(struct heap *heap)
{
    lock_acquire(&heap->lock);
    heap_release_warm(heap);
    lock_release(&heap->lock);
}

/* ---- Invariants ---- */

/* Adds the bytes of the slabs' blocks, and of those that are out, to bytes[0] and bytes[1]. Returns the units. */
static size_t check_list(struct heap *heap, const struct slab_list *list, bool full, unsigned class, size_t *bytes)
{
    struct slab *before = NULL;
    size_t units = 0;

    for (struct slab *slab = list->head; slab; before = slab, slab = slab->next) {
        assert_ptr_equal(slab->prev, before);
        assert_ptr_equal(atomic_load(&slab->owner), heap);
        assert_int_equal(atomic_load(&slab->state), SLAB_ACTIVE);
        assert_int_equal(slab->summary == 0, full); /* H6 */
        assert_true(full || slab->class == class);
        assert_true(full || slab->used > 0); /* O6 */
        slab_check(slab);
        for (size_t unit = 0; unit < slab->units; unit++) /* W2 */
            assert_int_equal(window_page_map()[window_unit(slab->start) + unit],
                             heap->kind == HEAP_FIRST_CLASS || (class_is_span(slab->class) && unit) ? CLASS_NONE
                                                                                                    : slab->class);
        units += slab->units;
        bytes[0] += slab->blocks * class_size(slab->class);
        bytes[1] += slab->used * class_size(slab->class);
    }
    assert_ptr_equal(list->tail, before);
    return units;
}

size_t heaps_check_one(struct heap *heap)
{
    size_t bytes[2] = { 0 }, units = check_list(heap, &heap->full, true, 0, bytes), with_memory = 0;

    if (heap->body_purged == MEMORY_PURGED)
        return units; /* the checks would touch the body */
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        units += check_list(heap, &heap->body->available[class], false, class, bytes);
    for (unsigned number = 0; number < WARM_STOCKS; number++) {
        size_t count = 0, length = number == WARM_SPARSE ? 1 : number;
        for (struct slab *slab = heap->body->warm[number].stack; slab; slab = slab->next) {
            assert_int_equal(atomic_load(&slab->state), SLAB_WARM);
            assert_int_equal(slab->units, length);
            count++;
            with_memory += slab->zero ? 0 : length;
        }
        assert_int_equal(heap->body->warm[number].count, count);
        units += count * length;
    }
    assert_int_equal(heap->body->warm_bound.units, with_memory); /* O6 */
    assert_int_equal(heap->body->slab_bytes, bytes[0]);          /* O9 */
    assert_int_equal(heap->body->used_bytes, bytes[1]);
    return units;
}

/* Every heap is once in the list that matches its kind and state. */
static void check_lists(void)
{
    uint32_t in_lists = 0;

    for (unsigned number = LIST_SERVED; number < LIST_COUNT; number++) {
        struct heap_list *list = &registry.lists[number];
        struct heap *before = NULL;
        uint32_t count = 0;
        for (struct heap *heap = list->first; heap; before = heap, heap = heap->after) {
            assert_ptr_equal(heap->before, before);
            assert_int_equal(heap->list, number);
            assert_int_equal(heap->state == HEAP_UNUSED, number == LIST_UNUSED); /* O5 */
            assert_true(number == LIST_SERVED || number == LIST_PROGRAM || heap->state != HEAP_LIVE);
            assert_int_equal(heap->kind == HEAP_FIRST_CLASS && heap->state == HEAP_LIVE, number == LIST_PROGRAM);
            assert_true(number != LIST_UNUSED || heap->slabs == 0);
            assert_true(count++ < registry.count);
        }
        assert_ptr_equal(list->last, before);
        assert_int_equal(list->count, count);
        in_lists += count;
    }
    assert_int_equal(in_lists, registry.count);
    assert_int_equal(registry.orphan_count, registry.lists[LIST_LEFT].count + registry.lists[LIST_SETTLED].count);
}

/* Some heap holds every unit that was taken from the pool. */
void heaps_check(void)
{
    size_t units = 0;

    check_lists();
    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        units += heaps_check_one(heap);
    assert_int_equal(shared_pool.units_used, units);
    core_check_pool();
}
