#include "pool/remote.h"

#include "observe/counters.h"
#include "options/options.h"
#include "os/cycles.h"
#include "pool/misuse.h"
#include "pool/slab.h"
#include "superslab/shared_pool.h"

/* Where another thread's step may come between two of ours; the interleaving test puts its scheduler here. */
#ifndef REMOTE_STEP
#define REMOTE_STEP() ((void)0)
#endif

/* Keeps heap_signals.queues: of the changes of a count, one takes it to the threshold or over, and one back. */
static void remote_count_pending(struct heap *heap, int32_t more)
{
    uint32_t old = atomic_fetch_add_explicit(&heap->pending_count, (uint32_t)more, memory_order_relaxed);
    bool was = old >= hak_options.mf2_enqueue_threshold, is = old + (uint32_t)more >= hak_options.mf2_enqueue_threshold;

    if (was != is)
        atomic_fetch_add_explicit(&heap_signals.queues, is ? 1 : UINT32_MAX, memory_order_relaxed);
}

/* Hands a slab that became pending to its owner. `holding` is a heap whose lock the caller holds, or NULL. */
static void remote_push(struct slab *slab, struct heap *holding)
{
    struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_acquire);
    struct slab *head = atomic_load_explicit(&owner->pending, memory_order_relaxed);

    debug_count_of(COUNT_MF2_PENDING_ENQUEUED, slab->class, 1); /* once it is in the queue it may be freed and carved anew */
    if (holding == NULL) {
        debug_count_of(COUNT_MF2_FREE_SLOW, slab->class, 1);
        debug_count_of(COUNT_MF2_FREE_FAST, slab->class, UINT64_MAX);
    }
    remote_count_pending(owner, 1); /* M3 */
    REMOTE_STEP();
    do {
        slab->pending_next = head;
        REMOTE_STEP();
    } while (!atomic_compare_exchange_weak_explicit(&owner->pending, &head, slab, memory_order_seq_cst,
                                                    memory_order_relaxed));
    REMOTE_STEP();
    shared_pool_want_purge();
    /* O4. A heap's state changes before its last drain: that drain sees our push, or we see the state. */
    if (HAK_LIKELY(atomic_load_explicit(&owner->state, memory_order_seq_cst) == HEAP_LIVE && owner->kind != HEAP_FIRST_CLASS))
        return;
    if (holding == NULL) {
        debug_count(COUNT_MF2_ORPHAN_DRAINED);
        lock_acquire(&owner->lock);
        remote_drain(owner);
        lock_release(&owner->lock);
    } else if (owner != holding && lock_try(&owner->lock)) {
        remote_drain(owner);
        lock_release(&owner->lock);
    }
}

/* A batch by slab: chains of indices, each ended by END. Blocks of one slab are in one chain, maybe with those of others. */
enum { CHAINS = 32, BATCH_MOST = 128, END = 255 };

struct batch {
    void *const *blocks;
    uint8_t heads[CHAINS], next[BATCH_MOST];
};

/* Sets the bits of the slab's blocks in the chain, those of a word with one atomic instruction, and takes them out of it; returns how many
 * were not set before. */
static uint32_t remote_mark(struct slab *slab, struct batch *batch, uint8_t *link, const char *function)
{
    uint64_t masks[SLAB_MAP_WORDS], words = 0;
    uint32_t marked = 0;

    while (*link != END) {
        void *block = batch->blocks[*link];
        unsigned index;
        uint64_t bit;
        if (slab_of(block) != slab) {
            link = &batch->next[*link];
            continue;
        }
        *link = batch->next[*link];
        if (HAK_UNLIKELY(!slab_block_index(slab, block, &index))) {
            misuse_report(function, block, MISUSE_NO_BLOCK);
            continue;
        }
        bit = UINT64_C(1) << (index % 64);
        if (!((words >> (index / 64)) & 1)) {
            words |= UINT64_C(1) << (index / 64);
            masks[index / 64] = 0;
        }
        if (HAK_UNLIKELY(masks[index / 64] & bit))
            misuse_report(function, block, MISUSE_FREED);
        masks[index / 64] |= bit;
    }
    for (; words; words &= words - 1) {
        unsigned word = base_low_bit(words);
        uint64_t mask = masks[word], old = atomic_fetch_or_explicit(&slab->remote[word], mask, memory_order_release);
        marked += base_count_bits(mask & ~old);
        if (HAK_UNLIKELY(old & mask))
            misuse_report(function, slab->start + ((size_t)word * 64 + base_low_bit(old & mask)) * class_size(slab->class),
                          MISUSE_FREED);
        REMOTE_STEP();
    }
    debug_count_of(COUNT_FREE_SS_REMOTE, slab->class, marked);
    debug_count_of(COUNT_MF2_FREE_FAST, slab->class, marked != 0); /* until it turns out to be slow */
    return marked;
}

/* The blocks of the slab in the chain. */
static void remote_free_group(struct slab *slab, struct batch *batch, uint8_t *link, const char *function)
{
    uint32_t marked = remote_mark(slab, batch, link, function);

    if (marked && atomic_fetch_add_explicit(&slab->remote_count, marked, memory_order_acq_rel) == 0) {
        REMOTE_STEP();
        remote_push(slab, NULL);
    }
}

static void remote_free_batch(void *const *blocks, size_t count, const char *function)
{
    struct batch batch = { .blocks = blocks };

    for (unsigned chain = 0; chain < CHAINS; chain++)
        batch.heads[chain] = END;
    for (size_t i = count; i-- > 0;) {
        unsigned chain = (unsigned)((uintptr_t)blocks[i] >> UNIT_SHIFT) % CHAINS ^
                         (unsigned)((uintptr_t)slab_of(blocks[i]) >> SUPERSLAB_SHIFT) % CHAINS;
        batch.next[i] = batch.heads[chain];
        batch.heads[chain] = (uint8_t)i;
    }
    for (unsigned chain = 0; chain < CHAINS; chain++)
        while (batch.heads[chain] != END)
            remote_free_group(slab_of(blocks[batch.heads[chain]]), &batch, &batch.heads[chain], function);
}

void remote_free_blocks(unsigned class, void *const *blocks, size_t count, const char *function)
{
    CYCLES_PART(CYCLES_REMOTE);
    if (class_is_span(class) || !hak_options.mf2_enable) {
        for (size_t i = 0; i < count; i++)
            remote_free_locked(blocks[i], function);
        return;
    }
    for (size_t done = 0, part; done < count; done += part) {
        part = base_min(count - done, BATCH_MOST);
        remote_free_batch(blocks + done, part, function);
    }
}

/* Moves what was freed remotely into the local map. */
static void remote_collect(struct heap *heap, struct slab *slab)
{
    bool was_full = slab->summary == 0;
    uint32_t counted = atomic_exchange_explicit(&slab->remote_count, 0, memory_order_acq_rel);
    unsigned words = slab_words(slab), i;

    for (i = 0; i < words; i++) {
        uint64_t freed, local;
        REMOTE_STEP();
        if (atomic_load_explicit(&slab->remote[i], memory_order_relaxed) == 0)
            continue;
        freed = atomic_exchange_explicit(&slab->remote[i], 0, memory_order_acquire);
        local = atomic_load_explicit(&slab->local[i], memory_order_relaxed);
        if (HAK_UNLIKELY(freed & local)) {
            misuse_report("free", slab->start + ((size_t)i * 64 + base_low_bit(freed & local)) * class_size(slab->class),
                          MISUSE_FREED);
            counted -= base_count_bits(freed & local);
        }
        atomic_store_explicit(&slab->local[i], local | freed, memory_order_relaxed);
        slab->summary |= UINT64_C(1) << i;
        slab->scrubbed = false;
    }
    REMOTE_STEP();
    heap->body->counters.remote_collected += counted;
    heap->classes[slab->class].returned_blocks += counted;
    heap_slab_freed(heap, slab, was_full, counted);
}

size_t remote_drain(struct heap *heap)
{
    struct slab *slab;
    size_t drained = 0;

    CYCLES_PART(CYCLES_DRAIN);
    REMOTE_STEP();
    if (atomic_load_explicit(&heap->pending, memory_order_seq_cst) == NULL) /* O4 */
        return 0;
    slab = atomic_exchange_explicit(&heap->pending, NULL, memory_order_seq_cst);
    REMOTE_STEP();
    while (slab) {
        struct slab *next = slab->pending_next; /* M2 */
        drained++;
        debug_count_of(COUNT_MF2_PENDING_DRAINED, slab->class, 1);
        if (HAK_LIKELY(atomic_load_explicit(&slab->owner, memory_order_relaxed) == heap)) {
            remote_collect(heap, slab);
        } else {
            heap->body->counters.pending_requeued++;
            debug_count_of(COUNT_MF2_PENDING_REQUEUED, slab->class, 1);
            remote_push(slab, heap);
        }
        slab = next;
    }
    remote_count_pending(heap, -(int32_t)drained);
    heap->body->counters.pending_drained += drained;
    return drained;
}

void remote_free_locked(void *block, const char *function)
{
    struct slab *slab = slab_of(block);
    struct heap *owner;
    enum slab_put_result result;
    bool was_full;

    for (;;) {
        owner = atomic_load_explicit(&slab->owner, memory_order_acquire);
        if (HAK_UNLIKELY(owner == NULL)) {
            misuse_report(function, block, MISUSE_FREED);
            return;
        }
        lock_acquire(&owner->lock);
        if (atomic_load_explicit(&slab->owner, memory_order_relaxed) == owner)
            break;
        lock_release(&owner->lock);
    }
    was_full = slab->summary == 0;
    result = atomic_load_explicit(&slab->state, memory_order_relaxed) == SLAB_ACTIVE ? slab_put(slab, block)
                                                                                     : SLAB_PUT_FREED;
    if (HAK_LIKELY(result == SLAB_PUT_DONE)) {
        owner->body->counters.locked_blocks++;
        debug_count_of(COUNT_FREE_SS_LOCKED, slab->class, 1);
        owner->classes[slab->class].returned_blocks++;
        heap_slab_freed(owner, slab, was_full, 1);
    }
    lock_release(&owner->lock);
    if (HAK_UNLIKELY(result != SLAB_PUT_DONE))
        misuse_report(function, block, result == SLAB_PUT_FREED ? MISUSE_FREED : MISUSE_NO_BLOCK);
}
