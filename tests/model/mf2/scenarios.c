#include "scenarios.h"

#include "ledger.h"
#include "options/options.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/slab.h"
#include "scheduler.h"

enum {
    HEAPS = 2,
    BLOCKS_MOST = 128, /* in a slab */
    ONE_WORD = CLASS_8192,   /* 8 blocks, their marks in one word */
    ANOTHER = CLASS_7168,    /* 9 blocks, one word */
    TWO_WORDS = CLASS_896,   /* 73 blocks, two words */
};

_Static_assert(UNIT_SIZE / 896 > 64 && UNIT_SIZE / 896 <= BLOCKS_MOST, "73 blocks");

static struct heap *heaps[HEAPS], *a, *b;
static struct heap heaps_at_start[HEAPS], house_at_start;
static struct heap_body bodies_at_start[HEAPS];
static struct registry registry_at_start;
static void *blocks[8];
static void *_Atomic mailbox;

void scenarios_init(void)
{
    for (unsigned i = 0; i < HEAPS; i++)
        heaps[i] = registry_take_heap();
    for (unsigned i = 0; i < HEAPS; i++) {
        __builtin_memcpy(&heaps_at_start[i], heaps[i], sizeof *heaps[i]);
        __builtin_memcpy(&bodies_at_start[i], heaps[i]->body, sizeof *heaps[i]->body);
    }
    __builtin_memcpy(&house_at_start, registry.house, sizeof house_at_start);
    __builtin_memcpy(&registry_at_start, &registry, sizeof registry);
    a = heaps[0];
    b = heaps[1];
    /* The clock stands still, so a heap is idle as soon as its epoch was seen. */
    hak_options.mf2_idle_threshold_us = 0;
    hak_options.mf2_enqueue_threshold = 1;
}

void scenarios_reset(void)
{
    for (struct heap *heap = registry.heaps; heap; heap = heap->next) {
        lock_acquire(&heap->lock);
        heap_release_warm(heap);
        lock_release(&heap->lock);
    }
    for (unsigned i = 0; i < HEAPS; i++) {
        __builtin_memcpy(heaps[i], &heaps_at_start[i], sizeof *heaps[i]);
        __builtin_memcpy(heaps[i]->body, &bodies_at_start[i], sizeof *heaps[i]->body);
    }
    __builtin_memcpy(registry.house, &house_at_start, sizeof house_at_start);
    __builtin_memcpy(&registry, &registry_at_start, sizeof registry);
    atomic_store(&mailbox, NULL);
}

static void drain(struct heap *heap)
{
    lock_acquire(&heap->lock);
    remote_drain(heap);
    lock_release(&heap->lock);
}

void scenarios_lock(struct heap *heap)
{
    lock_acquire(&heap->lock);
}

void scenarios_unlock(struct heap *heap)
{
    lock_release(&heap->lock);
}

void scenarios_drain_all(void)
{
    bool left = true;

    while (left) {
        left = false;
        for (struct heap *heap = registry.heaps; heap; heap = heap->next)
            if (atomic_load(&heap->pending)) {
                drain(heap);
                left = true;
            }
    }
}

/* ---- The threads' actions ---- */

/* Frees blocks of one slab in one batch, as a thread that does not own the slab. */
static void free_remote(unsigned first, unsigned count)
{
    void *batch[8];

    for (unsigned i = 0; i < count; i++) {
        batch[i] = blocks[first + i];
        ledger_drop(batch[i]);
    }
    remote_free_blocks(slab_of(batch[0])->class, batch, count, "mf2");
}

static void free_locked(unsigned index)
{
    ledger_drop(blocks[index]);
    remote_free_locked(blocks[index], "mf2");
}

/* Frees as the owner does: blocks that turn out to be another's take the remote way. */
static void free_as(struct heap *heap, unsigned class, void *block)
{
    ledger_drop(block);
    lock_acquire(&heap->lock);
    size_t remote = heap_return_blocks(heap, class, &block, 1, "mf2");
    lock_release(&heap->lock);
    if (remote)
        remote_free_blocks(class, &block, 1, "mf2");
}

/* ---- The state before the threads start ---- */

/* Makes a slab of the class, with `count` blocks in blocks[first...], taken in turn from each word of its map. full:
 * the other blocks stay in use. Otherwise they are free. */
static void make_slab(struct heap *heap, unsigned class, bool full, unsigned first, unsigned count)
{
    void *all[BLOCKS_MOST];
    unsigned size = size_classes[class].blocks, words = (size + 63) / 64;

    if (ledger_take(heap, class, all, size) != size || slab_of(all[0]) != slab_of(all[size - 1]))
        scheduler_fail("no new slab");
    for (unsigned i = 0; i < count; i++) {
        unsigned index = i % words * 64 + i / words;
        blocks[first + i] = all[size - 1 - index];
        all[size - 1 - index] = NULL;
    }
    for (unsigned i = 0; i < size && !full; i++)
        if (all[i])
            free_as(heap, class, all[i]);
}

static void one_slab(void) { make_slab(a, ONE_WORD, false, 0, 2); }
static void one_full_slab(void) { make_slab(a, ONE_WORD, true, 0, 2); }
static void one_slab_of_two_words(void) { make_slab(a, TWO_WORDS, false, 0, 4); }
static void one_full_slab_of_two_words(void) { make_slab(a, TWO_WORDS, true, 0, 2); }

/* One block is pending: a drain may come between the mark and the announcement of the other block. */
static void one_pending(void)
{
    one_slab();
    free_remote(1, 1);
}

/* Two full slabs are in a's queue. */
static void two_pending(void)
{
    make_slab(a, ANOTHER, true, 2, 2);
    make_slab(a, ONE_WORD, true, 0, 2);
    free_remote(2, 1);
    free_remote(0, 1);
}

static void orphan(void)
{
    one_slab();
    registry_abandon_heap(a);
}

static void orphan_of_two_slabs(void)
{
    make_slab(a, ANOTHER, false, 1, 1);
    make_slab(a, ONE_WORD, false, 0, 1);
    registry_abandon_heap(a);
}

static void look_idle(struct heap *heap)
{
    atomic_store(&heap->seen_epoch, atomic_load(&heap->epoch));
}

/* Heap a is idle, with a full slab of which one block is freed and pending. */
static void idle(void)
{
    one_full_slab();
    free_remote(0, 1);
    look_idle(a);
}

static void both_idle(void)
{
    one_full_slab();
    make_slab(b, ONE_WORD, true, 2, 2);
    free_remote(0, 1);
    free_remote(2, 1);
    look_idle(a);
    look_idle(b);
}

static void move_slab(struct heap *from, struct heap *to, struct slab *slab)
{
    lock_acquire(&from->lock);
    if (!lock_try(&to->lock))
        scheduler_fail("the lock of heap %u is held", to->id);
    heap_adopt_slab(to, from, slab);
    lock_release(&to->lock);
    lock_release(&from->lock);
}

/* b owns a slab of which a block was freed while a owned it, so the entry is in a's queue. */
static void entry_left_behind(void)
{
    one_slab();
    free_remote(0, 1);
    move_slab(a, b, slab_of(blocks[0]));
}

/* ---- Threads ---- */

static void drain_a(void) { drain(a); }
static void drain_b(void) { drain(b); }

static void drain_a_twice(void)
{
    drain(a);
    REMOTE_STEP();
    drain(a);
}

static void free_0(void) { free_remote(0, 1); }
static void free_1(void) { free_remote(1, 1); }
static void free_0_with_1(void) { free_remote(0, 2); }
static void free_2_with_3(void) { free_remote(2, 2); }

static void free_0_then_1(void)
{
    free_remote(0, 1);
    REMOTE_STEP();
    free_remote(1, 1);
}

static void free_2_then_3(void)
{
    free_remote(2, 1);
    REMOTE_STEP();
    free_remote(3, 1);
}

static void free_1_then_3(void)
{
    free_remote(1, 1);
    REMOTE_STEP();
    free_remote(3, 1);
}

static void free_1_and_drain_b(void)
{
    free_remote(1, 1);
    REMOTE_STEP();
    drain(b);
}

static void free_0_locked(void) { free_locked(0); }
static void free_1_locked(void) { free_locked(1); }

static void exit_a(void) { registry_abandon_heap(a); }
static void exit_b(void) { registry_abandon_heap(b); }

/* The thread of heap a ends, and another begins. */
static void exit_and_begin(void)
{
    struct heap *heap;

    registry_abandon_heap(a);
    REMOTE_STEP();
    heap = registry_take_heap();
    if (heap != a)
        scheduler_fail("a new thread takes another heap than the last orphan");
    REMOTE_STEP();
    drain(heap);
}

static void take_one(struct heap *heap, unsigned class)
{
    void *block;
    if (ledger_take(heap, class, &block, 1) != 1)
        scheduler_fail("no block");
}

static void take_a(void) { take_one(a, ONE_WORD); }
static void take_b(void) { take_one(b, ONE_WORD); }

static void take_a_twice_of_two_words(void)
{
    take_one(a, TWO_WORDS);
    REMOTE_STEP();
    take_one(a, TWO_WORDS);
}

static void take_and_return(struct heap *heap)
{
    void *taken[2];
    size_t count = ledger_take(heap, ONE_WORD, taken, 2);

    for (size_t i = 0; i < count; i++) {
        REMOTE_STEP();
        free_as(heap, ONE_WORD, taken[i]);
    }
}

static void take_a_and_return(void) { take_and_return(a); }

static void take_b_and_exit(void)
{
    take_and_return(b);
    REMOTE_STEP();
    registry_abandon_heap(b);
}

static void take_a_and_pass_on(void)
{
    void *block;

    if (ledger_take(a, ONE_WORD, &block, 1) != 1)
        scheduler_fail("no block");
    REMOTE_STEP();
    atomic_store_explicit(&mailbox, block, memory_order_release);
    REMOTE_STEP();
    drain(a);
}

static void free_0_and_what_was_passed(void)
{
    void *block;

    free_remote(0, 1);
    REMOTE_STEP();
    block = atomic_exchange_explicit(&mailbox, NULL, memory_order_acquire);
    if (block) {
        ledger_drop(block);
        remote_free_blocks(slab_of(block)->class, &block, 1, "mf2");
    }
}

static void trim(void)
{
    size_t purged = 0;
    registry_trim_idle(true, true, &purged);
}

const struct scenario scenarios[] = {
    /* A freer and the draining owner. */
    { "drain_last", one_slab, { drain_a, free_0_with_1 }, false },
    { "drain_each", one_slab, { drain_a_twice, free_0_then_1 }, false },
    { "drain_some", one_full_slab, { drain_a_twice, free_0 }, false },
    { "drain_words", one_slab_of_two_words, { drain_a, free_0_with_1 }, false },
    { "drain_queue", two_pending, { drain_a, free_1_then_3 }, false },
    { "drain_early", one_pending, { drain_a_twice, free_0 }, false },
    { "drain_trim", one_slab, { trim, free_0_with_1 }, false },
    /* Two freers. */
    { "freers_of_a_word", one_slab, { free_0, free_1 }, false },
    { "freers_of_two_words", one_slab_of_two_words, { free_0_with_1, free_2_with_3 }, false },
    { "freers_twice", one_slab_of_two_words, { free_0_then_1, free_2_then_3 }, false },
    { "freers_of_an_orphan", orphan, { free_0, free_1 }, false },
    { "freers_locked", one_slab, { free_0_locked, free_1_locked }, false },
    { "freers_locked_and_not", one_slab, { free_0_locked, free_1 }, false },
    /* A freer and a thread that ends. */
    { "exit_last", one_slab, { exit_a, free_0_with_1 }, false },
    { "exit_each", one_slab, { exit_a, free_0_then_1 }, false },
    { "exit_and_begin", one_slab, { exit_and_begin, free_0 }, false },
    /* A freer and a refill that adopts. */
    { "adopt_orphan", orphan, { take_b, free_0_with_1 }, false },
    { "adopt_orphan_twice", orphan, { take_b, free_0_then_1 }, false },
    { "adopt_orphan_locked", orphan, { take_b, free_0_locked }, false },
    { "adopt_idle", idle, { take_b, free_1 }, false },
    { "adopt_idle_awake", idle, { take_b, take_a }, false },
    { "adopt_each_other", both_idle, { take_b, take_a }, false },
    /* A freer and an owner that allocates. */
    { "take", one_full_slab_of_two_words, { take_a_twice_of_two_words, free_0_with_1 }, false },
    { "take_and_return", one_full_slab, { take_a_and_return, free_0_then_1 }, false },
    { "take_and_pass_on", one_full_slab, { take_a_and_pass_on, free_0_and_what_was_passed }, false },
    /* Entries left in the queue of a former owner. */
    { "forward", entry_left_behind, { drain_a, drain_b }, false },
    { "forward_and_free", entry_left_behind, { drain_a, free_1_and_drain_b }, false },
    { "forward_and_exit", entry_left_behind, { drain_a, exit_b }, true },
    /* The longest. */
    { "orphan_of_two_slabs", orphan_of_two_slabs, { free_0, free_1 }, false },
    /* Too long for a test run. Run these by hand after a change of the protocol. */
    { "long_forward_both_exit", entry_left_behind, { exit_a, exit_b }, true },
    { "long_adopt_and_exit", orphan, { take_b_and_exit, free_0 }, true },
};
const unsigned scenario_count = sizeof scenarios / sizeof scenarios[0];
