#include "pool/remote.h"

#include "observe/counters.h"
#include "options/options.h"
#include "os/cycles.h"
#include "pool/misuse.h"
#include "pool/slab.h"
#include "superslab/shared_pool.h"
#include "superslab/window.h"

/* Keeps heap_signals.queues, which changes when the count passes the threshold, up or down. */
static void remote_count_pending(struct heap *heap, int32_t more)
{
    /* Relaxed: the push and the drain, which come between, order the two additions for one slab (M3). */
    uint32_t old = atomic_fetch_add_explicit(&heap->pending_count, (uint32_t)more, memory_order_relaxed);
    bool was = old >= hak_options.mf2_enqueue_threshold, is = old + (uint32_t)more >= hak_options.mf2_enqueue_threshold;

    if (was != is)
        atomic_fetch_add_explicit(&heap_signals.queues, is ? 1 : UINT32_MAX, memory_order_relaxed);
}

/* Pushes a slab that became pending onto the owner's queue. `holding`: a heap whose lock the caller holds, or NULL. */
static void remote_push(struct slab *slab, struct heap *holding)
{
    /* Acquire: the fields of a heap are set before a slab has it as its owner. */
    struct heap *owner = atomic_load_explicit(&slab->owner, memory_order_acquire);
    struct slab *head = atomic_load_explicit(&owner->pending, memory_order_relaxed);

    debug_count_of(COUNT_MF2_PENDING_ENQUEUED, slab->class, 1); /* once queued, it may be freed and carved anew */
    if (holding == NULL) {
        debug_count_of(COUNT_MF2_FREE_SLOW, slab->class, 1);
        debug_count_of(COUNT_MF2_FREE_FAST, slab->class, UINT64_MAX);
    }
    remote_count_pending(owner, 1); /* M3 */
    /* Release: the drain reads pending_next (M2). Sequentially consistent: O4, below. */
    do {
        slab->pending_next = head;
    } while (!atomic_compare_exchange_weak_explicit(&owner->pending, &head, slab, memory_order_seq_cst,
                                                    memory_order_relaxed));
    shared_pool_want_purge();
    /* O4: a heap's state changes before its last drain. So that drain sees this push, or this thread sees the state. */
    if (HAK_LIKELY(atomic_load_explicit(&owner->state, memory_order_seq_cst) == HEAP_LIVE &&
                   owner->kind != HEAP_FIRST_CLASS))
        return;
    if (HAK_UNLIKELY(atomic_load_explicit(&owner->state, memory_order_relaxed) == HEAP_LOST)) /* O7 */
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

/* ---- Freers (M4) ---- */

HAK_DATA_HERE struct remote_freer remote_freers[REMOTE_FREERS];

/* Takes a place for the thread. NULL: other threads in the midst of remote frees have all of them. */
static struct remote_freer *freer_begin(void)
{
    uintptr_t token = os_thread_token();
    /* Thread pointers differ by the sizes of stacks: the high bits of the product depend on every bit. */
    unsigned first = (unsigned)(token * UINT64_C(0x9e3779b97f4a7c15) >> 32);

    for (unsigned i = 0; i < REMOTE_FREERS; i++) {
        struct remote_freer *freer = &remote_freers[(first + i) % REMOTE_FREERS];
        uintptr_t none = 0;
        if (HAK_LIKELY(atomic_compare_exchange_strong_explicit(&freer->token, &none, token, memory_order_relaxed,
                                                               memory_order_relaxed)))
            return freer;
    }
    return NULL;
}

static void freer_end(struct remote_freer *freer)
{
    /* Release: a fork that copies this has copied the push. `slab` stays: the child does not trust it. */
    atomic_store_explicit(&freer->token, 0, memory_order_release);
}

static bool slab_is_queued(const struct slab *slab, const struct heap *heaps)
{
    for (const struct heap *heap = heaps; heap; heap = heap->next)
        for (const struct slab *at = heap->pending; at; at = at->pending_next)
            if (at == slab)
                return true;
    return false;
}

static bool freer_has_slab(const struct slab *slab)
{
    for (unsigned i = 0; i < REMOTE_FREERS; i++)
        if (remote_freers[i].token == os_thread_token() && remote_freers[i].slab == slab)
            return true;
    return false;
}

void remote_reset_in_child(const struct heap *heaps, bool whole)
{
    for (unsigned i = 0; i < REMOTE_FREERS; i++) {
        struct remote_freer *freer = &remote_freers[i];
        struct slab *slab = freer->slab;
        if (freer->token == 0 || freer->token == os_thread_token())
            continue;
        freer_end(freer);
        /* The freer may have finished with the slab, which may be gone by now, or may not have named its slab yet. */
        if (whole && slab && window_contains(slab) && slab->state == SLAB_ACTIVE && slab->remote_count != 0 &&
            !freer_has_slab(slab) && !slab_is_queued(slab, heaps)) {
            struct heap *owner = slab->owner;
            remote_count_pending(owner, 1); /* the freer may have counted it, too: M3 allows that */
            slab->pending_next = owner->pending;
            owner->pending = slab;
        }
    }
}

/* ---- Batches ---- */

/* Blocks that were next to each other in the batch, and whose bits lie in one word of a slab's map. */
struct marks {
    uintptr_t place; /* the slab's address and the word's number in one value: slabs are aligned */
    uint64_t mask;
};
_Static_assert(SLAB_MAP_WORDS <= _Alignof(struct slab), "a word's number fits below a slab's address");

/* A batch, grouped by slab in chains of marks that end with END. A chain has all marks of one slab or more. */
enum { CHAINS = 32, BATCH_MOST = 48, END = 255 };

struct batch {
    struct marks marks[BATCH_MOST];
    uint32_t used; /* a bit for each chain */
    uint8_t count, heads[CHAINS], next[BATCH_MOST];
};

HAK_INLINE struct slab *marks_slab(const struct marks *marks)
{
    return (struct slab *)(marks->place & ~(uintptr_t)(SLAB_MAP_WORDS - 1));
}

HAK_INLINE void batch_add(struct batch *batch, uintptr_t place, uint64_t mask)
{
    unsigned chain = (unsigned)(place >> 7 ^ place >> SUPERSLAB_SHIFT) % CHAINS;
    uint32_t bit = UINT32_C(1) << chain;

    batch->marks[batch->count] = (struct marks){ place, mask };
    batch->next[batch->count] = batch->used & bit ? batch->heads[chain] : END;
    batch->heads[chain] = batch->count++;
    batch->used |= bit;
}

static void report_freed(const struct slab *slab, size_t word, uint64_t bits, const char *function)
{
    misuse_report(function, slab->start + (word * 64 + base_low_bit(bits)) * class_size(slab->class), MISUSE_FREED);
}

/* Makes marks of the blocks. Neighbours of one slab share the look at its header. */
static void batch_fill(struct batch *batch, void *const *at, void *const *end, const char *function)
{
    const struct size_class *class = size_classes;
    const char *start = NULL;
    uintptr_t slab = 0, place = 0;
    size_t bytes = 0;
    uint64_t mask = 0;
    struct slab_row row;

    for (; at != end; at += row.count) {
        size_t offset = (size_t)((const char *)*at - start);
        if (offset >= bytes) {
            const struct slab *next = slab_of(*at);
            slab = (uintptr_t)next;
            class = &size_classes[next->class];
            start = next->start;
            bytes = slab_bytes(next);
            offset = (size_t)((const char *)*at - start);
        }
        if (HAK_UNLIKELY(!slab_row_at(class, offset, at, end, &row))) {
            misuse_report(function, *at, MISUSE_NO_BLOCK);
            row.count = 1;
            continue;
        }
        if ((slab | row.word) != place) {
            if (mask)
                batch_add(batch, place, mask);
            place = slab | row.word;
            mask = 0;
        }
        if (HAK_UNLIKELY(mask & row.bits))
            report_freed((const struct slab *)slab, row.word, mask & row.bits, function);
        mask |= row.bits;
    }
    if (mask)
        batch_add(batch, place, mask);
}

/* Takes the slab's marks out of the chain and sets their bits, one atomic OR a word. Returns how many were clear. Apart
 * from its caller, so that the masks are off the stack when a push drains a slab. */
static HAK_NOINLINE uint32_t remote_mark(struct slab *slab, struct batch *batch, uint8_t *link, const char *function)
{
    uint64_t masks[SLAB_MAP_WORDS], words = 0;
    uint32_t marked = 0;

    while (*link != END) {
        const struct marks *marks = &batch->marks[*link];
        unsigned word = marks->place % SLAB_MAP_WORDS;
        if (marks_slab(marks) != slab) {
            link = &batch->next[*link];
            continue;
        }
        *link = batch->next[*link];
        if (!((words >> word) & 1)) {
            words |= UINT64_C(1) << word;
            masks[word] = 0;
        }
        if (HAK_UNLIKELY(masks[word] & marks->mask))
            report_freed(slab, word, masks[word] & marks->mask, function);
        masks[word] |= marks->mask;
    }
    for (; words; words &= words - 1) {
        unsigned word = base_low_bit(words);
        /* Release: the program's accesses to the blocks come before those of their next user. */
        uint64_t mask = masks[word], old = atomic_fetch_or_explicit(&slab->remote[word], mask, memory_order_release);
        marked += base_count_bits(mask & ~old);
        if (HAK_UNLIKELY(old & mask))
            report_freed(slab, word, old & mask, function);
    }
    debug_count_of(COUNT_MAP_REMOTE, slab->class, marked);
    debug_count_of(COUNT_MF2_FREE_FAST, slab->class, marked != 0); /* until it turns out to be slow */
    return marked;
}

/* Frees the blocks of one slab in the chain. */
static void remote_free_group(struct remote_freer *freer, struct slab *slab, struct batch *batch, uint8_t *link,
                              const char *function)
{
    uint32_t marked = remote_mark(slab, batch, link, function);

    /* Relaxed: the announcement releases it (M4). */
    atomic_store_explicit(&freer->slab, slab, memory_order_relaxed);
    /* Release: a drain that takes this count finds the marks (M1). Acquire: it has read pending_next before (M2). */
    if (marked && atomic_fetch_add_explicit(&slab->remote_count, marked, memory_order_acq_rel) == 0) {
        remote_push(slab, NULL);
    }
}

static void remote_free_batch(struct remote_freer *freer, void *const *blocks, size_t count, const char *function)
{
    struct batch batch;

    batch.used = 0;
    batch.count = 0;
    batch_fill(&batch, blocks, blocks + count, function);
    for (; batch.used; batch.used &= batch.used - 1) {
        uint8_t *head = &batch.heads[base_low_bit(batch.used)];
        while (*head != END)
            remote_free_group(freer, marks_slab(&batch.marks[*head]), &batch, head, function);
    }
}

void remote_free_blocks(unsigned class, void *const *blocks, size_t count, const char *function)
{
    struct remote_freer *freer = NULL;

    CYCLES_PART(CYCLES_REMOTE);
    if (class_is_span(class) || !hak_options.mf2_enable || HAK_UNLIKELY((freer = freer_begin()) == NULL)) {
        for (size_t i = 0; i < count; i++)
            remote_free_locked(blocks[i], function);
        return;
    }
    for (size_t done = 0, part; done < count; done += part) {
        part = base_min(count - done, BATCH_MOST);
        remote_free_batch(freer, blocks + done, part, function);
    }
    freer_end(freer);
}

/* Moves remote bits into the local map, and takes the announced number. */
static void remote_collect(struct heap *heap, struct slab *slab, struct slab_list *leaving)
{
    bool was_full = slab->summary == 0;
    /* Acquire: the marks of this count (M1). Release: pending_next was read (M2). */
    uint32_t counted = atomic_exchange_explicit(&slab->remote_count, 0, memory_order_acq_rel);
    unsigned words = slab_words(slab), i;

    for (i = 0; i < words; i++) {
        uint64_t freed, local;
        if (atomic_load_explicit(&slab->remote[i], memory_order_relaxed) == 0)
            continue;
        /* Acquire: the next user's accesses to the blocks come after those of the program that freed them. */
        freed = atomic_exchange_explicit(&slab->remote[i], 0, memory_order_acquire);
        local = atomic_load_explicit(&slab->local[i], memory_order_relaxed);
        if (HAK_UNLIKELY(freed & local)) {
            misuse_report("free",
                          slab->start + ((size_t)i * 64 + base_low_bit(freed & local)) * class_size(slab->class),
                          MISUSE_FREED);
            counted -= base_count_bits(freed & local);
        }
        atomic_store_explicit(&slab->local[i], local | freed, memory_order_relaxed);
        slab->summary |= UINT64_C(1) << i;
        slab->scrubbed = false;
    }
    heap->body->counters.remote_collected += counted;
    heap_count_returned(heap, slab->class, counted);
    heap_slab_freed(heap, slab, was_full, counted, leaving);
}

size_t remote_drain(struct heap *heap)
{
    struct slab_list leaving = { 0 };
    struct slab *slab;
    size_t drained = 0;

    CYCLES_PART(CYCLES_DRAIN);
    if (atomic_load_explicit(&heap->pending, memory_order_seq_cst) == NULL) /* O4 */
        return 0;
    /* Acquire: pending_next of what was pushed (M2). The load above orders this drain with the state (O4). */
    slab = atomic_exchange_explicit(&heap->pending, NULL, memory_order_acquire);
    while (slab) {
        struct slab *next = slab->pending_next; /* M2 */
        drained++;
        debug_count_of(COUNT_MF2_PENDING_DRAINED, slab->class, 1);
        if (HAK_LIKELY(atomic_load_explicit(&slab->owner, memory_order_relaxed) == heap)) {
            remote_collect(heap, slab, &leaving);
        } else {
            heap->body->counters.pending_requeued++;
            debug_count_of(COUNT_MF2_PENDING_REQUEUED, slab->class, 1);
            remote_push(slab, heap);
        }
        slab = next;
    }
    heap_let_leave(&leaving);
    remote_count_pending(heap, -(int32_t)drained);
    heap->body->counters.pending_drained += drained;
    return drained;
}

bool remote_free_locked(void *block, const char *function)
{
    struct slab_list leaving = { 0 };
    struct slab *slab = slab_of(block);
    struct heap *owner;
    enum slab_put_result result;
    bool was_full;

    for (;;) {
        /* Acquire: as in remote_push. Under the lock the owner stays (O2), so relaxed is enough. */
        owner = atomic_load_explicit(&slab->owner, memory_order_acquire);
        if (HAK_UNLIKELY(owner == NULL)) {
            misuse_report(function, block, MISUSE_FREED);
            return false;
        }
        if (HAK_UNLIKELY(atomic_load_explicit(&owner->state, memory_order_relaxed) == HEAP_LOST)) /* O7 */
            return true;
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
        debug_count_of(COUNT_MAP_LOCKED, slab->class, 1);
        heap_count_returned(owner, slab->class, 1);
        heap_slab_freed(owner, slab, was_full, 1, &leaving);
        heap_let_leave(&leaving);
    }
    lock_release(&owner->lock);
    if (HAK_UNLIKELY(result != SLAB_PUT_DONE))
        misuse_report(function, block, result == SLAB_PUT_FREED ? MISUSE_FREED : MISUSE_NO_BLOCK);
    return result == SLAB_PUT_DONE;
}
