/*
 * First-class heaps in the differential test. A heap's blocks stay in its own slots, because its destruction frees them
 * all. A thread takes a slot by swapping in a mark. Threads that use a heap hold its lock shared. The thread that
 * destroys it holds the lock alone, as hak_heap_destroy requires.
 */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>

#include "differential.h"

enum slot_state { SLOT_EMPTY, SLOT_FULL, SLOT_TAKEN };

struct heap_slot {
    _Atomic int state;
    struct block block;
};

struct test_heap {
    pthread_rwlock_t lock;
    hak_heap_t *heap;
    struct heap_slot slots[DIFF_HEAP_SLOTS];
};

static struct test_heap *heaps;

static hak_heap_t *new_heap(void)
{
    hak_heap_t *heap = hak_heap_new();

    CHECK(heap != NULL, "no heap");
    return heap;
}

void diff_heaps_start(void)
{
    heaps = support_map(DIFF_HEAPS * sizeof *heaps);
    for (size_t i = 0; i < DIFF_HEAPS; i++) {
        pthread_rwlock_init(&heaps[i].lock, NULL);
        heaps[i].heap = new_heap();
    }
}

static void check_home(const struct test_heap *home, const struct block *block)
{
    CHECK(hak_heap_of(block->start) == home->heap, "%p is in heap %p, not %p", (void *)block->start,
          (void *)hak_heap_of(block->start), (void *)home->heap);
}

static void fill(struct diff_seat *seat, struct test_heap *home, struct block *block)
{
    struct chance *chance = &seat->chance;
    size_t size = diff_draw_size(chance);
    size_t alignment = 1;
    void *start;

    switch (chance_below(chance, 4)) {
    case 0:
        start = hak_heap_calloc(home->heap, 1, size);
        CHECK(start != NULL, "heap_calloc of %zu bytes", size);
        block_check_zero(start, size);
        break;
    case 1:
        alignment = diff_draw_alignment(chance);
        start = hak_heap_aligned_alloc(home->heap, alignment, size);
        break;
    case 2:
        start = hak_heap_realloc(home->heap, NULL, size);
        break;
    default:
        start = hak_heap_malloc(home->heap, size);
        break;
    }
    block_adopt(block, start, size, alignment, chance_next(chance));
    check_home(home, block);
    seat->calls += 3;
}

/* heap_realloc keeps the block in the heap. realloc may move it out of the heap, and then the seat's slot gets it. */
static void resize(struct diff_seat *seat, struct test_heap *home, struct block *block, struct diff_slot *slot)
{
    struct chance *chance = &seat->chance;
    struct block old = *block;
    size_t size = 1 + diff_draw_size(chance);
    bool at_home = chance_is(chance, 600) || slot->block.start != NULL;
    void *start;

    block_release(block);
    start = at_home ? hak_heap_realloc(home->heap, old.start, size) : hak_realloc(old.start, size);
    CHECK(start != NULL, "realloc in a heap from %zu to %zu", old.usable, size);
    block_verify_at(&old, start, size < old.usable ? size : old.usable);
    seat->calls += 3;
    if (!at_home && hak_heap_of(start) == NULL) {
        slot->origin = DIFF_PLAIN;
        block_adopt(&slot->block, start, size, 1, chance_next(chance));
        return;
    }
    block_adopt(block, start, size, 1, chance_next(chance));
    check_home(home, block);
}

/* heap_realloc moves a block of the process into the heap: one that has to grow must not stay outside. A hardened
 * block, whose usable size is the requested one, may grow in place. */
static void take_in(struct diff_seat *seat, struct test_heap *home, struct block *block, struct diff_slot *slot)
{
    struct block old = slot->block;
    size_t size = old.usable * 2 + 1;
    void *start;

    block_release(&slot->block);
    start = hak_heap_realloc(home->heap, old.start, size);
    CHECK(start != NULL, "heap_realloc of a block outside, from %zu to %zu", old.usable, size);
    block_verify_at(&old, start, old.usable);
    seat->calls += 3;
    if (start == old.start && hak_good_size(1) == 1 /* hardened */ && hak_heap_of(start) == NULL) {
        slot->origin = DIFF_PLAIN;
        block_adopt(&slot->block, start, size, 1, chance_next(&seat->chance));
        return;
    }
    block_adopt(block, start, size, 1, chance_next(&seat->chance));
    check_home(home, block);
}

static void use(struct diff_seat *seat, struct test_heap *home, struct diff_slot *slot)
{
    struct heap_slot *at = &home->slots[chance_below(&seat->chance, DIFF_HEAP_SLOTS)];
    int state = atomic_exchange(&at->state, SLOT_TAKEN);

    if (state == SLOT_TAKEN)
        return;
    if (state == SLOT_EMPTY) {
        if (slot->block.start != NULL && slot->block.usable <= 2 * MIB)
            take_in(seat, home, &at->block, slot);
        else
            fill(seat, home, &at->block);
    } else {
        check_home(home, &at->block);
        switch (chance_below(&seat->chance, 5)) {
        case 0:
            resize(seat, home, &at->block, slot);
            break;
        case 1:
            block_verify(&at->block);
            break;
        case 2:
            CHECK(hak_heap_realloc(home->heap, block_release(&at->block), 0) == NULL, "heap_realloc to 0");
            break;
        default:
            hak_free(block_release(&at->block));
            break;
        }
        seat->calls += 2;
    }
    atomic_store(&at->state, at->block.start == NULL ? SLOT_EMPTY : SLOT_FULL);
}

static void destroy(struct test_heap *home)
{
    for (size_t i = 0; i < DIFF_HEAP_SLOTS; i++) {
        if (home->slots[i].block.start != NULL)
            block_release(&home->slots[i].block);
        atomic_store(&home->slots[i].state, SLOT_EMPTY);
    }
    hak_heap_destroy(home->heap);
    home->heap = NULL;
}

void diff_heaps_step(struct diff_seat *seat, struct diff_slot *slot)
{
    struct test_heap *home = &heaps[chance_below(&seat->chance, DIFF_HEAPS)];

    if (chance_is(&seat->chance, 3)) {
        pthread_rwlock_wrlock(&home->lock);
        destroy(home);
        hak_heap_destroy(NULL);
        home->heap = new_heap();
        seat->calls += 3;
    } else {
        pthread_rwlock_rdlock(&home->lock);
        use(seat, home, slot);
    }
    pthread_rwlock_unlock(&home->lock);
}

void diff_heaps_end(void)
{
    for (size_t i = 0; i < DIFF_HEAPS; i++)
        destroy(&heaps[i]);
}
