#include "scenarios.h"

#include <stdlib.h>

#include "front/fork.h"
#include "ledger.h"
#include "memory.h"
#include "options/options.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/slab.h"
#include "scheduler.h"

enum {
    HEAPS = 3,
    PARTS_MOST = 24,
    BLOCKS_MOST = 128, /* in a slab */
    ONE_WORD = CLASS_8192,   /* 8 blocks, their marks in one word */
    ANOTHER = CLASS_7168,    /* 9 blocks, one word */
    TWO_WORDS = CLASS_896,   /* 73 blocks, two words */
};

_Static_assert(UNIT_SIZE / 896 > 64 && UNIT_SIZE / 896 <= BLOCKS_MOST, "73 blocks");

static struct heap *heaps[HEAPS], *a, *b, *c, *shared;
static void *blocks[8];
static void *_Atomic mailbox;

/* The memory that every schedule begins with. */
static struct part {
    void *start;
    size_t size;
    char *copy;
} parts[PARTS_MOST];
static unsigned part_count;

static void save(void *start, size_t size)
{
    struct part *part = &parts[part_count++];

    if (part_count > PARTS_MOST)
        scheduler_fail("more than %d parts of memory", PARTS_MOST);
    *part = (struct part){ start, size, malloc(size) };
    if (!part->copy)
        abort();
    __builtin_memcpy(part->copy, start, size);
}

/* Makes the SuperSlab that all schedules use. */
static struct superslab *begin_superslab(void)
{
    struct superslab *superslab;
    void *block;

    if (ledger_take(heaps[0], ONE_WORD, &block, 1) != 1)
        scheduler_fail("no slab");
    superslab = superslab_of(block);
    ledger_free_all();
    return superslab;
}

/* Makes the heap that a schedule's first new thread or shared heap takes. */
static void make_spare(void)
{
    struct heap *spare = registry_new_first_class();

    registry_drop_first_class(spare);
}

void scenarios_init(void)
{
    struct superslab *superslab;

    for (unsigned i = 0; i < HEAPS; i++)
        heaps[i] = registry_take_heap();
    a = heaps[0];
    b = heaps[1];
    c = heaps[2];
    superslab = begin_superslab();
    make_spare();
    fork_register();
    memory_exempt(superslab->touched, sizeof superslab->touched);
    for (struct heap *heap = registry.heaps; heap; heap = heap->next) {
        lock_acquire(&heap->lock);
        heap_release_warm(heap);
        lock_release(&heap->lock);
        save(heap, sizeof *heap);
        save(heap->body, sizeof *heap->body);
    }
    save(&registry, sizeof registry);
    save(&heap_signals, sizeof heap_signals);
    save(remote_freers, sizeof remote_freers);
    atomic_store(&shared_pool.next_purge_ms, 1);
    save(&shared_pool, sizeof shared_pool);
    save(shared_pool.slots, shared_pool.slots_committed * sizeof *shared_pool.slots);
    save(superslab, sizeof *superslab);
    /* The clock stands still, so a heap is idle as soon as its epoch was seen. */
    hak_options.mf2_idle_threshold_us = 0;
    hak_options.mf2_enqueue_threshold = 1;
}

void scenarios_reset(void)
{
    for (unsigned i = 0; i < part_count; i++)
        __builtin_memcpy(parts[i].start, parts[i].copy, parts[i].size);
    atomic_store(&mailbox, NULL);
}

void scenarios_release_warm(void)
{
    for (struct heap *heap = registry.heaps; heap; heap = heap->next) {
        lock_acquire(&heap->lock);
        heap_release_warm(heap);
        lock_release(&heap->lock);
    }
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
    ledger_note_batch((int)count);
    remote_free_blocks(slab_of(batch[0])->class, batch, count, "mf2");
    ledger_note_batch(-(int)count);
}

static void free_locked(unsigned index)
{
    ledger_drop(blocks[index]);
    ledger_note_batch(1);
    remote_free_locked(blocks[index], "mf2");
    ledger_note_batch(-1);
}

/* Frees as the owner does: blocks that turn out to be another's take the remote way. */
static void free_as(struct heap *heap, unsigned class, void *block)
{
    ledger_drop(block);
    ledger_note_batch(1);
    lock_acquire(&heap->lock);
    size_t remote = heap_return_blocks(heap, class, &block, 1, "mf2");
    lock_release(&heap->lock);
    if (remote)
        remote_free_blocks(class, &block, 1, "mf2");
    ledger_note_batch(-1);
}

/* ---- Fork ---- */

static struct {
    void (*prepare)(void), (*parent)(void), (*child)(void);
} forks;

void __wrap_os_fork_register(void (*prepare)(void), void (*parent)(void), void (*child)(void));
void __wrap_os_fork_register(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    forks.prepare = prepare;
    forks.parent = parent;
    forks.child = child;
}

/* What the child of a fork finds, in which none of the other threads is left. Its heaps serve new threads. */
static void check_child(void)
{
    struct heap *heap;
    void *taken[8];

    forks.child();
    ledger_start_watch();
    ledger_check_child();
    scenarios_drain_all();
    ledger_check_child();
    heap = registry_take_heap();
    if (ledger_take(heap, ONE_WORD, taken, 8) == 0)
        scheduler_fail("no block in the child");
    ledger_check_child();
    ledger_free_all();
    ledger_check_child();
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
static void one_slab_of_four(void) { make_slab(a, ONE_WORD, false, 0, 4); }
static void one_full_slab_of_two_words(void) { make_slab(a, TWO_WORDS, true, 0, 2); }

/* One block is pending: a drain may come between the mark and the announcement of the other block. */
static void one_pending(void)
{
    one_slab();
    free_remote(1, 1);
}

static void one_pending_of_four(void)
{
    one_slab_of_four();
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

static struct heap *flush_nothing(void *cache)
{
    (void)cache;
    return NULL;
}

/* The tick settled the orphan. Its cache has no memory here, so nothing is flushed. */
static void settled(void)
{
    orphan();
    registry_settle(true, flush_nothing);
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

/* A heap that serves the caches of threads without slabs of their own (O8), with one slab. */
static void share(struct heap *first, struct heap *second)
{
    unsigned own_most = registry.own_most;

    registry.own_most = 0;
    registry.shared_count = 1;
    shared = registry_serving(first);
    if (shared == first || (second && registry_serving(second) != shared))
        scheduler_fail("no shared heap");
    registry.own_most = own_most;
    make_slab(shared, ONE_WORD, false, 0, 2);
}

static void shared_by_one(void) { share(a, NULL); }
static void shared_by_two(void) { share(a, b); }

/* ---- Threads ---- */

static void drain_a(void) { drain(a); }
static void drain_b(void) { drain(b); }

static void drain_a_twice(void)
{
    drain(a);
    drain(a);
}

static void free_0(void) { free_remote(0, 1); }
static void free_1(void) { free_remote(1, 1); }
static void free_3(void) { free_remote(3, 1); }
static void free_0_with_1(void) { free_remote(0, 2); }
static void free_2_with_3(void) { free_remote(2, 2); }

static void free_0_then_1(void)
{
    free_remote(0, 1);
    free_remote(1, 1);
}

static void free_2_then_3(void)
{
    free_remote(2, 1);
    free_remote(3, 1);
}

static void free_1_then_3(void)
{
    free_remote(1, 1);
    free_remote(3, 1);
}

static void free_1_and_drain_b(void)
{
    free_remote(1, 1);
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
    heap = registry_take_heap();
    if (heap != a)
        scheduler_fail("a new thread takes another heap than the last orphan");
    drain(heap);
}

static void begin(void) { registry_take_heap(); }

static void take_one(struct heap *heap, unsigned class)
{
    void *block;
    if (ledger_take(heap, class, &block, 1) != 1)
        scheduler_fail("no block");
}

static void take_a(void) { take_one(a, ONE_WORD); }
static void take_b(void) { take_one(b, ONE_WORD); }
static void take_c(void) { take_one(c, ONE_WORD); }

/* The owner takes what it drained, too. */
static void drain_a_and_take_all(void)
{
    void *taken[8];

    drain(a);
    ledger_take(a, ONE_WORD, taken, 8);
}

/* The owner may release its slab, and carve the same units again. */
static void drain_a_and_take(void)
{
    drain(a);
    take_a();
}

static void take_a_twice_of_two_words(void)
{
    take_one(a, TWO_WORDS);
    take_one(a, TWO_WORDS);
}

static void take_and_return(struct heap *heap)
{
    void *taken[2];
    size_t count = ledger_take(heap, ONE_WORD, taken, 2);

    for (size_t i = 0; i < count; i++)
        free_as(heap, ONE_WORD, taken[i]);
}

static void take_a_and_return(void) { take_and_return(a); }

static void take_b_and_exit(void)
{
    take_and_return(b);
    registry_abandon_heap(b);
}

static void take_a_and_pass_on(void)
{
    void *block;

    if (ledger_take(a, ONE_WORD, &block, 1) != 1)
        scheduler_fail("no block");
    atomic_store_explicit(&mailbox, block, memory_order_release);
    drain(a);
}

static void free_0_and_what_was_passed(void)
{
    void *block;

    free_remote(0, 1);
    block = atomic_exchange_explicit(&mailbox, NULL, memory_order_acquire);
    if (block) {
        ledger_drop(block);
        remote_free_blocks(slab_of(block)->class, &block, 1, "mf2");
    }
}

static void trim(void)
{
    size_t purged = 0;
    registry_trim_idle(true, true, NULL, &purged);
}

/* As a tick: takes the request for a purge, then looks for all that may have made one (G2). */
static void tick(void)
{
    atomic_exchange(&shared_pool.next_purge_ms, 0);
    trim();
}

/* Takes the function's place, which is compiled without the model. */
void __wrap_shared_pool_want_purge_slow(void);
void __wrap_shared_pool_want_purge_slow(void)
{
    atomic_store_explicit(&shared_pool.next_purge_ms, 1, memory_order_release);
}

/* The window is not there yet. A foreign block lies as far behind the place that hak_window points at (W3) as blocks[0]
 * lies behind the window. */
static char *window, before_window[1];
static size_t window_end;

static void window_to_come(void)
{
    one_slab();
    window = hak_window;
    window_end = hak_units;
    hak_window = before_window;
    hak_units = 0;
}

/* As window_init does at its end. */
static void publish_window(void)
{
    __atomic_store_n(&hak_window, window, __ATOMIC_RELEASE);
    __atomic_store_n(&hak_units, window_end, __ATOMIC_RELEASE);
}

static void find_foreign(void)
{
    if (window_in_superslab((void *)((uintptr_t)before_window + ((uintptr_t)blocks[0] - (uintptr_t)window))))
        scheduler_fail("W3: a foreign block is taken for one in a SuperSlab");
}

static void find_own(void)
{
    if (window_find_slot(blocks[0]) && !window_in_superslab(blocks[0]))
        scheduler_fail("W1: the slot of a block has no descriptor");
}

static void settle(void) { registry_settle(true, flush_nothing); }

/* A thread begins, and takes a block. */
static void begin_and_take(void) { take_one(registry_take_heap(), ONE_WORD); }

/* A thread's cache that the heap `shared` served ends (O8). */
static void serve_less(void) { registry_serve_less(shared); }
static void take_shared(void) { take_one(shared, ONE_WORD); }

static void fork_now(void) { scheduler_fork(forks.prepare, forks.parent, check_child); }

const struct scenario scenarios[] = {
    /* A freer and the draining owner. */
    { "drain_last", one_slab, { drain_a, free_0_with_1 }, false },
    { "drain_each", one_slab, { drain_a_twice, free_0_then_1 }, false },
    { "drain_some", one_full_slab, { drain_a_twice, free_0 }, false },
    { "drain_words", one_slab_of_two_words, { drain_a, free_0_with_1 }, false },
    { "drain_queue", two_pending, { drain_a, free_1_then_3 }, false },
    { "drain_early", one_pending, { drain_a_twice, free_0 }, false },
    { "drain_trim", one_slab, { trim, free_0_with_1 }, false },
    { "drain_tick", one_slab, { tick, free_0 }, false },
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
    /* Threads that begin and end. */
    { "exit_begin", one_slab, { exit_a, begin }, false },
    { "exit_both", one_slab, { exit_a, exit_b }, false },
    /* A freer and a refill that adopts. */
    { "adopt_orphan", orphan, { take_b, free_0_with_1 }, false },
    { "adopt_orphan_twice", orphan, { take_b, free_0_then_1 }, false },
    { "adopt_orphan_locked", orphan, { take_b, free_0_locked }, false },
    { "adopt_idle", idle, { take_b, free_1 }, false },
    { "adopt_idle_awake", idle, { take_b, take_a }, false },
    { "adopt_each_other", both_idle, { take_b, take_a }, false },
    /* A freer and an owner that allocates. */
    { "take_early", one_pending, { drain_a_and_take_all, free_0 }, false },
    { "take", one_full_slab_of_two_words, { take_a_twice_of_two_words, free_0_with_1 }, false },
    { "take_and_return", one_full_slab, { take_a_and_return, free_0_then_1 }, false },
    { "take_and_pass_on", one_full_slab, { take_a_and_pass_on, free_0_and_what_was_passed }, false },
    /* Entries left in the queue of a former owner. */
    { "forward", entry_left_behind, { drain_a, drain_b }, false },
    { "forward_and_free", entry_left_behind, { drain_a, free_1_and_drain_b }, false },
    { "forward_and_exit", entry_left_behind, { drain_a, exit_b }, true },
    { "orphan_of_two_slabs", orphan_of_two_slabs, { free_0, free_1 }, false },
    { "forward_both_exit", entry_left_behind, { exit_a, exit_b }, true },
    { "adopt_and_exit", orphan, { take_b_and_exit, free_0 }, true },
    /* The first allocation, and calls that look up an address meanwhile. */
    { "window_foreign", window_to_come, { publish_window, find_foreign }, false },
    { "window_own", window_to_come, { publish_window, find_own }, false },
    /* Two freers and the owner. */
    { "three_drain", one_slab, { drain_a_twice, free_0, free_1 }, false },
    { "three_drain_each", one_slab_of_two_words, { drain_a_twice, free_0_then_1, free_2_then_3 }, false },
    { "three_drain_early", one_slab_of_four, { drain_a_twice, free_0_with_1, free_2_with_3 }, false },
    { "three_drain_queue", two_pending, { drain_a_twice, free_1, free_3 }, false },
    { "three_release", one_slab, { drain_a_and_take, free_0, free_1 }, false },
    { "three_reuse", one_pending_of_four, { drain_a_and_take_all, free_0, free_2_with_3 }, false },
    { "three_take", one_full_slab, { take_a_and_return, free_0, free_1 }, false },
    { "three_pass_on", one_full_slab, { take_a_and_pass_on, free_0_and_what_was_passed, free_1 }, false },
    { "three_freers", one_slab_of_four, { free_0, free_1, free_2_with_3 }, false },
    /* Freers, an owner that ends, and one that adopts. */
    { "three_exit", one_slab, { exit_a, free_0, free_1 }, false },
    { "three_exit_adopt", one_slab, { exit_a, take_b, free_0_with_1 }, false },
    { "three_exit_adopt_each", one_slab, { exit_a, take_b, free_0_then_1 }, false },
    { "three_exit_begin", one_slab, { exit_a, begin_and_take, free_0_with_1 }, false },
    { "three_exit_locked", one_slab, { exit_a, take_b, free_0_locked }, false },
    { "three_adopt", orphan, { take_b, free_0, free_1 }, false },
    { "three_adopt_twice", orphan, { take_b, take_c, free_0_with_1 }, false },
    { "three_adopt_begin", orphan, { take_b, begin_and_take, free_0_with_1 }, false },
    { "three_adopt_locked", orphan, { take_b, free_0_locked, free_1 }, false },
    { "three_adopt_exit", orphan, { take_b_and_exit, take_c, free_0 }, true },
    { "three_idle", idle, { take_b, take_a, free_1 }, false },
    { "three_idle_exit", idle, { take_b, exit_a, free_1 }, true },
    { "three_orphan", orphan_of_two_slabs, { take_b, free_0, free_1 }, false },
    /* The tick, and heaps that become unused. */
    { "three_trim", one_slab, { trim, exit_a, free_0_with_1 }, false },
    { "three_trim_adopt", orphan, { trim, take_b, free_0_with_1 }, false },
    { "three_settle", orphan, { settle, free_0, free_1 }, false },
    { "three_settle_adopt", orphan, { settle, take_b, free_0_with_1 }, false },
    { "three_settle_begin", orphan, { settle, begin_and_take, free_0_with_1 }, false },
    { "three_settle_trim", orphan, { settle, trim, free_0_with_1 }, false },
    { "three_trim_begin", settled, { trim, begin_and_take, free_0_with_1 }, false },
    { "three_trim_settled", settled, { trim, take_b, free_0_then_1 }, false },
    /* A shared heap whose last cache ends. */
    { "three_shared", shared_by_one, { serve_less, free_0, free_1 }, false },
    { "three_shared_adopt", shared_by_one, { serve_less, take_b, free_0_with_1 }, false },
    { "three_shared_by_two", shared_by_two, { serve_less, take_shared, free_0_with_1 }, false },
    /* Entries left in the queue of a former owner. */
    { "three_forward", entry_left_behind, { drain_a, drain_b, free_1 }, false },
    { "three_forward_exit", entry_left_behind, { drain_a, exit_b, free_1 }, true },
    { "three_forward_both_exit", entry_left_behind, { exit_a, exit_b, free_1 }, true },
    { "three_forward_adopt", entry_left_behind, { drain_a, exit_b, take_c }, true },
    /* A thread forks beside a freer and an owner. */
    { "fork_free", one_slab, { fork_now, free_0_with_1 }, false },
    { "fork_exit", one_slab, { fork_now, exit_a }, false },
    { "fork_owner", one_slab, { fork_now, free_0, drain_a_twice }, false },
    { "fork_take", one_full_slab, { fork_now, free_0, take_a_and_return }, false },
    { "fork_exits", one_slab, { fork_now, free_0, exit_a }, false },
    { "fork_adopt", orphan, { fork_now, free_0, take_b }, false },
    { "fork_begin", orphan, { fork_now, free_0, begin_and_take }, false },
    { "fork_settle", orphan, { fork_now, free_0, settle }, false },
    /* Four threads. */
    { "four_drain", one_slab_of_four, { drain_a_twice, free_0, free_1, free_2_with_3 }, false },
    /* Minutes, when memory is weak: for runs by hand. */
    { "deep_four_exit_adopt", one_slab, { exit_a, take_b, free_0, free_1 }, false },
    { "deep_four_adopt", orphan, { take_b, take_c, free_0, free_1 }, false },
    { "deep_four_settle", orphan, { settle, take_b, free_0, free_1 }, false },
};
const unsigned scenario_count = sizeof scenarios / sizeof scenarios[0];
