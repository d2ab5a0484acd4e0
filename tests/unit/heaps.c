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

/* Exactly so many blocks, by as many refills as it needs. */
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

/* ---- Invariants ---- */

static size_t check_list(struct heap *heap, const struct slab_list *list, bool full, unsigned class)
{
    struct slab *before = NULL;
    size_t units = 0;

    for (struct slab *slab = list->head; slab; before = slab, slab = slab->next) {
        assert_ptr_equal(slab->prev, before);
        assert_ptr_equal(atomic_load(&slab->owner), heap);
        assert_int_equal(atomic_load(&slab->state), SLAB_ACTIVE);
        assert_int_equal(slab->summary == 0, full); /* H6 */
        assert_true(full || slab->class == class);
        assert_int_not_equal(slab->used + full, 0);
        slab_check(slab);
        for (size_t unit = 0; unit < slab->units; unit++) /* W2 */
            assert_int_equal(window_page_map()[window_unit(slab->start) + unit],
                             heap->kind == HEAP_FIRST_CLASS ? CLASS_NONE : slab->class);
        units += slab->units;
    }
    assert_ptr_equal(list->tail, before);
    return units;
}

size_t heaps_check_one(struct heap *heap)
{
    size_t units = check_list(heap, &heap->full, true, 0);

    for (unsigned class = 1; class < CLASS_COUNT; class++)
        units += check_list(heap, &heap->available[class], false, class);
    for (unsigned number = 0; number < WARM_STOCKS; number++) {
        size_t count = 0, length = number == WARM_SPARSE ? 1 : number;
        for (struct slab *slab = heap->warm[number].stack; slab; slab = slab->next) {
            assert_int_equal(atomic_load(&slab->state), SLAB_WARM);
            assert_int_equal(slab->units, length);
            count++;
        }
        assert_int_equal(heap->warm[number].count, count);
        units += count * length;
    }
    return units;
}

/* Every unit taken from the pool is in some heap. */
void heaps_check(void)
{
    size_t units = 0;

    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        units += heaps_check_one(heap);
    assert_int_equal(shared_pool.units_used, units);
    core_check_pool();
}
