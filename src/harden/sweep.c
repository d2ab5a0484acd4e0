#include "harden/sweep.h"

#include "base/format.h"
#include "harden/sweep_map.h"
#include "options/options.h"
#include "os/lock.h"
#include "os/os.h"
#include "pool/misuse.h"
#include "pool/remote.h"
#include "pool/slab.h"
#include "superslab/closed_units.h"
#include "superslab/metadata.h"
#include "superslab/window.h"

/* So many blocks are given back together: those of a word, at least. */
#define RELEASE_BATCH 128u
/* Blocks that pointers keep may always have so many bytes, and so many more for each thread that a sweep stops. */
#define KEEP_MIN (16 * HAK_MIB)
#define KEEP_THREAD (4 * HAK_MIB)

/* A sweep may take a sixteenth of the time since the last one. Beyond that sweeps become rarer, up to so many times. */
#define RARE_SHARE 16
#define RARER_MOST 8u
/* How often, and how long, a thread waits for another one's sweep. */
#define AWAIT_MOST 100u
#define AWAIT_NS UINT64_C(10000000)

/* For the sweeping thread alone; the first one makes it. */
static struct sweep_scratch *sweep_memory;

/* A part of `bytes`, which may be the whole address space. */
static size_t percent_of(size_t bytes, uint64_t percent) { return bytes / 100 * (size_t)percent; }

static size_t sweep_least_kept(void) { return KEEP_MIN + sweep.threads * KEEP_THREAD; }

/* The most bytes that may wait after a sweep. */
static size_t sweep_most_kept(void)
{
    return hak_options.sweep_keep ? base_max(percent_of(sweep.live, hak_options.sweep_keep), sweep_least_kept())
                                  : SIZE_MAX;
}

/* ---- Waiting ---- */

static struct sweep_slot *sweep_make_slot(uint32_t number)
{
    struct sweep_leaf *_Atomic *place = &sweep_leaves[(number >> SWEEP_LEAF_SHIFT) & (SWEEP_LEAVES - 1)];
    struct sweep_leaf *leaf = atomic_load(place), *other_leaf = NULL;
    struct sweep_slot *slot, *other = NULL;

    if (leaf == NULL) {
        leaf = metadata_allocate(sizeof *leaf, HAK_CACHE_LINE);
        if (leaf == NULL)
            return NULL;
        if (!atomic_compare_exchange_strong(place, &other_leaf, leaf))
            leaf = other_leaf;
    }
    slot = metadata_allocate(sizeof *slot, HAK_CACHE_LINE);
    if (slot && !atomic_compare_exchange_strong(&leaf->slots[number & ((1u << SWEEP_LEAF_SHIFT) - 1)], &other, slot))
        slot = other;
    return slot;
}

static struct sweep_slot *sweep_slot_of(const void *block)
{
    uint32_t number = window_slot_of(block);
    struct sweep_slot *slot = sweep_find_slot(number);

    return HAK_LIKELY(slot != NULL) ? slot : sweep_make_slot(number);
}

static size_t sweep_cost(unsigned class)
{
    /* The longest spans were purged: bins_erase_span, sweep_wait_alone. */
    return class_size(class) > HARDEN_ERASE_MOST ? sweep_cost_of_addresses(class_size(class)) : class_size(class);
}

static void sweep_count_more(unsigned class, size_t count)
{
    size_t cost = sweep_cost(class) * count;

    atomic_fetch_add_explicit(&sweep.blocks[class], count, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&sweep.waiting, cost, memory_order_relaxed) + cost >=
        atomic_load_explicit(&sweep.trigger, memory_order_relaxed))
        atomic_store_explicit(&sweep.due, true, memory_order_relaxed);
}

/* Bits to set in a word of `waiting`. An atomic operation takes longer than all else here, and blocks that are freed
 * together often share words, because they left their slab together. */
struct waiting_bits {
    struct sweep_slot *slot; /* of the word */
    _Atomic uint64_t *word;  /* NULL: none */
    uint64_t bits;
    unsigned first;          /* the slab's first unit */
};
#define WAITING_WORDS 16u

/* Finds the block's word and bit. word NULL: the block is free, or its slab is gone. False: there is no memory for the
 * slot's table. */
static bool waiting_find(struct waiting_bits *found, unsigned class, const char *block)
{
    const struct slab *slab = slab_of(block);
    unsigned index;

    found->slot = sweep_slot_of(block);
    found->word = NULL;
    if (HAK_UNLIKELY(found->slot == NULL))
        return false;
    if (HAK_UNLIKELY(slab->class != class || atomic_load_explicit(&slab->state, memory_order_relaxed) != SLAB_ACTIVE))
        return true;
    index = class_block_index(class, (size_t)(block - slab->start));
    found->first = slab_first_unit(slab);
    found->word = &found->slot->waiting[found->first][index / 64];
    found->bits = UINT64_C(1) << (index % 64);
    return true;
}

/* Sets the bits. Returns those that were set already. */
static uint64_t waiting_set(const struct waiting_bits *set)
{
    uint64_t before = atomic_fetch_or(set->word, set->bits);

    /* After `waiting`: leave_slab clears the bit in `firsts` first, and then looks for waiting blocks. */
    if (!((atomic_load(&set->slot->firsts) >> set->first) & 1))
        atomic_fetch_or(&set->slot->firsts, UINT32_C(1) << set->first);
    return before & set->bits;
}

/* Reports those of the blocks whose bits `twice` are in the word. */
static HAK_COLD size_t waiting_report(unsigned class, void *const *blocks, size_t count, const void *word,
                                      uint64_t twice)
{
    size_t reported = base_count_bits(twice);

    for (size_t i = 0; i < count && twice; i++) {
        struct waiting_bits found;
        if (waiting_find(&found, class, blocks[i]) && found.word == word && (found.bits & twice)) {
            misuse_report("free", blocks[i], MISUSE_FREED);
            twice &= ~found.bits;
        }
    }
    return reported;
}

bool sweep_wait(unsigned class, void **blocks, size_t count)
{
    struct waiting_bits sets[WAITING_WORDS] = { { .word = NULL } }, found;
    size_t refused = 0;
    uint64_t twice;

    for (size_t i = 0; i < count; i++)
        if (HAK_UNLIKELY(sweep_slot_of(blocks[i]) == NULL))
            return false;
    for (size_t i = 0; i < count; i++) {
        struct waiting_bits *set;
        (void)waiting_find(&found, class, blocks[i]);
        set = &sets[(uintptr_t)found.word / sizeof(uint64_t) % WAITING_WORDS];
        if (HAK_LIKELY(found.word == set->word) && HAK_LIKELY(found.word != NULL) &&
            HAK_LIKELY(!(set->bits & found.bits))) {
            set->bits |= found.bits;
            continue;
        }
        if (HAK_UNLIKELY(found.word == NULL) || HAK_UNLIKELY(found.word == set->word)) {
            misuse_report("free", blocks[i], MISUSE_FREED);
            refused++;
            continue;
        }
        if (set->word && HAK_UNLIKELY((twice = waiting_set(set)) != 0))
            refused += waiting_report(class, blocks, count, (const void *)set->word, twice);
        *set = found;
    }
    for (size_t i = 0; i < WAITING_WORDS; i++)
        if (sets[i].word && HAK_UNLIKELY((twice = waiting_set(&sets[i])) != 0))
            refused += waiting_report(class, blocks, count, (const void *)sets[i].word, twice);
    sweep_count_more(class, count - refused);
    __builtin_memset(blocks, 0, count * sizeof *blocks);
    return true;
}

bool sweep_wait_span(void *block, bool closed)
{
    struct slab *slab = slab_of(block);
    struct sweep_slot *slot = sweep_slot_of(block);

    if (slot == NULL)
        return false;
    if (closed)
        atomic_fetch_or(&slot->closed, UINT32_C(1) << slab_first_unit(slab));
    return sweep_wait(slab->class, &block, 1);
}

bool sweep_wait_alone(unsigned class, void *block)
{
    if (!class_is_span(class))
        return sweep_wait(class, &block, 1);
    if (class_size(class) > HARDEN_ERASE_MOST)
        (void)os_purge(block, class_size(class));
    return sweep_wait_span(block, false);
}

/* ---- Candidates ---- */

/* Makes all blocks that wait now candidates. */
static void sweep_choose(void)
{
    sweep.chosen = 0;
    for (uint32_t number = window_slots_begin(), end = window_slots_end(); number < end; number++) {
        struct sweep_slot *slot = sweep_find_slot(number);
        uint32_t firsts;
        if (slot == NULL)
            continue;
        slot->units = 0;
        for (firsts = atomic_load(&slot->firsts); firsts; firsts &= firsts - 1) {
            unsigned first = base_low_bit(firsts);
            const struct slab *slab = &superslab_of(window_slot_address(number))->slabs[first];
            size_t count = 0;
            for (unsigned i = 0; i < SLAB_MAP_WORDS && i < slab_words(slab); i++) {
                uint64_t waiting = atomic_load_explicit(&slot->waiting[first][i], memory_order_acquire);
                slot->candidate[first][i] = waiting;
                count += base_count_bits(waiting);
            }
            sweep.chosen += count * sweep_cost(slab->class);
            if (count)
                slot->units |= (uint32_t)base_low_mask(slab->units) << first;
        }
    }
}

/* ---- Leaving ---- */

/* Blocks of one slab on their way back. */
struct leaving_blocks {
    struct heap *heap;
    struct sweep_slot *slot;
    struct slab *slab;
    unsigned first;
    size_t count, gone; /* gone: given back already */
    void *blocks[RELEASE_BATCH];
    /* The bits of the blocks, by their words' numbers. */
    size_t words;
    struct leaving_word {
        unsigned number;
        uint64_t bits;
    } word[RELEASE_BATCH];
};

/* Opens the slab if it is a closed span, unless its heap keeps it closed (V21): then its next owner need not look
 * whether it is zero. One that cannot be opened goes on waiting. */
static bool leave_open(struct leaving_blocks *leaving)
{
    uint32_t bit = UINT32_C(1) << leaving->first;

    if (!class_is_span(leaving->slab->class) || !(atomic_load(&leaving->slot->closed) & bit))
        return true;
    if (closed_units_may_stay(leaving->slab, CLOSED_BY_PROTECT))
        leaving->slab->closed = CLOSED_BY_PROTECT;
    else if (!os_protect(leaving->slab->start, slab_bytes(leaving->slab), true))
        return false;
    atomic_fetch_and(&leaving->slot->closed, ~bit);
    return true;
}

/* Bits and blocks change under one hold of the heap's lock: a fork finds both, or loses the batch (front/fork.c). */
static void leave_batch(struct leaving_blocks *leaving)
{
    unsigned class = leaving->slab->class;
    size_t count = leaving->count, words = leaving->words, remote;

    leaving->count = 0;
    leaving->words = 0;
    if (count == 0)
        return;
    if (!leave_open(leaving)) {
        atomic_fetch_or(&leaving->slot->firsts, UINT32_C(1) << leaving->first);
        return;
    }
    lock_acquire(&leaving->heap->lock);
    for (size_t i = 0; i < words; i++)
        atomic_fetch_and_explicit(&leaving->slot->waiting[leaving->first][leaving->word[i].number],
                                  ~leaving->word[i].bits, memory_order_relaxed);
    atomic_fetch_sub_explicit(&sweep.blocks[class], count, memory_order_relaxed);
    atomic_fetch_sub_explicit(&sweep.waiting, sweep_cost(class) * count, memory_order_relaxed);
    leaving->gone += count;
    sweep.left += sweep_cost(class) * count;
    remote = heap_return_blocks(leaving->heap, class, leaving->blocks, count, "free");
    lock_release(&leaving->heap->lock);
    if (remote)
        remote_free_blocks(class, leaving->blocks, remote, "free");
}

/* Gives back the slab's blocks that may leave. The slab may be gone afterwards. */
static void leave_slab(struct leaving_blocks *leaving, bool deaf)
{
    unsigned words = slab_words(leaving->slab);
    size_t size = class_size(leaving->slab->class), cost = sweep_cost(leaving->slab->class);
    uint64_t *candidate = leaving->slot->candidate[leaving->first], *passed = leaving->slot->passed[leaving->first];
    char *start = leaving->slab->start;
    bool stay = false;

    atomic_fetch_and(&leaving->slot->firsts, ~(UINT32_C(1) << leaving->first));
    for (unsigned i = 0; i < words; i++) {
        uint64_t unseen = candidate[i], free = deaf ? unseen & passed[i] : unseen, passes = deaf ? unseen & ~free : 0;
        candidate[i] = 0;
        if (passed[i] != passes) /* else the first write would give the array memory */
            passed[i] = passes;
        sweep.unseen += base_count_bits(unseen) * cost;
        stay |= (atomic_load(&leaving->slot->waiting[leaving->first][i]) & ~free) != 0;
        if (free == 0)
            continue;
        if (leaving->count + base_count_bits(free) > RELEASE_BATCH)
            leave_batch(leaving);
        leaving->word[leaving->words++] = (struct leaving_word){ i, free };
        for (; free; free &= free - 1)
            leaving->blocks[leaving->count++] = start + ((size_t)i * 64 + base_low_bit(free)) * size;
    }
    if (stay)
        atomic_fetch_or(&leaving->slot->firsts, UINT32_C(1) << leaving->first);
    leave_batch(leaving);
}

/* Gives back blocks that the sweep or a bound lets go, until at most `until` bytes wait. Returns their number. */
static size_t sweep_leave(struct heap *heap, bool deaf, size_t until)
{
    struct leaving_blocks leaving = { .heap = heap };

    sweep.unseen = 0;
    sweep.left = 0;
    for (uint32_t number = window_slots_begin(), end = window_slots_end(); number < end; number++) {
        struct sweep_slot *slot = sweep_find_slot(number);
        uint32_t firsts;
        if (slot == NULL || slot->units == 0)
            continue;
        for (firsts = atomic_load(&slot->firsts); firsts; firsts &= firsts - 1) {
            unsigned first = base_low_bit(firsts);
            struct slab *slab = &superslab_of(window_slot_address(number))->slabs[first];
            if (!((slot->units >> first) & 1) || atomic_load_explicit(&sweep.waiting, memory_order_relaxed) <= until)
                continue;
            leaving.slot = slot;
            leaving.slab = slab;
            leaving.first = first;
            leave_slab(&leaving, deaf);
        }
    }
    __builtin_memset(leaving.blocks, 0, sizeof leaving.blocks);
    return leaving.gone;
}

/* ---- A sweep ---- */

/* Sets when the next sweep is due. One that took a large part of the time since the last (threads stop late, others use
 * the processor) makes the next ones rarer, within the bound of what may wait. */
static void sweep_set_trigger(void)
{
    size_t more = base_max(percent_of(sweep.live, hak_options.sweep_percent), (size_t)hak_options.sweep_min);

    sweep.rarer = (uint32_t)base_max(sweep.rarer, 1);
    more = base_max(more, base_min(more * sweep.rarer, base_max(sweep.live / 2, sweep_least_kept())));
    atomic_store(&sweep.trigger, atomic_load_explicit(&sweep.kept, memory_order_relaxed) + more);
}

static void sweep_note_time(uint64_t begin, uint64_t end)
{
    uint64_t took = end - begin, since = begin - base_min(sweep.ended, begin);

    if (took > since / RARE_SHARE)
        sweep.rarer = (uint32_t)base_min((size_t)sweep.rarer * 2, RARER_MOST);
    else if (took < since / RARE_SHARE / 4)
        sweep.rarer = (uint32_t)base_max(sweep.rarer / 2, 1);
    sweep.ended = end;
}

/* Lets blocks leave, from the lowest slots on, until at most `until` bytes wait. */
static void sweep_yield(struct heap *heap, size_t until, const char *why)
{
    static _Atomic bool said; /* Order: any; one thread says it */
    size_t before = atomic_load(&sweep.waiting), gone;

    sweep_choose();
    gone = sweep_leave(heap, false, until);
    if (until == 0) {
        sweep_large_begin();
        gone += sweep_large_end(false, true);
    }
    atomic_fetch_add_explicit(&sweep.yielded, gone, memory_order_relaxed);
    if (gone && !atomic_exchange(&said, true))
        base_message("sweep: freed blocks of %zu bytes are reused although pointers to them may be left: %s",
                     before - base_min(before, atomic_load(&sweep.waiting)), why);
}

/* Not inlined: its frame address bounds the sweep's own frames, which hold addresses that it works with. */
static __attribute__((noinline)) bool sweep_scan_still(bool *deaf)
{
    struct os_stop stop;
    struct sweep_scan scan = { .scratch = sweep_memory, .boundary = (uintptr_t)__builtin_frame_address(0) };
    uint64_t begin = os_now(), end;
    size_t bytes;
    bool read;

    os_stop_begin(&stop, (int)hak_options.sweep_signal, sweep_memory->stop);
    scan.still = stop.deaf == 0;
    scan.alone = scan.still && !stop.own;
    read = sweep_scan_roots(&scan, &bytes);
    os_stop_end(&stop);
    /* If threads ran on, waiting blocks were read with the rest. */
    sweep.live = scan.still ? bytes : bytes - base_min(bytes, atomic_load(&sweep.waiting));
    end = os_now();
    sweep_note_time(begin, end);
    sweep.threads = stop.stopped + stop.deaf;
    *deaf = !scan.still;
    atomic_fetch_add_explicit(&sweep.sweeps, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&sweep.sweeps_deaf, stop.deaf != 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&sweep.scanned, bytes, memory_order_relaxed);
    return read;
}

/* Saves the callee-saved registers in this frame, which is a root. All other registers are dead at the call. */
static __attribute__((noinline)) bool sweep_scan_all(bool *deaf)
{
    bool read;

    __builtin_unwind_init();
    read = sweep_scan_still(deaf);
    __asm__ volatile("" ::: "memory"); /* no tail call */
    return read;
}

static void sweep_once(struct heap *heap)
{
    static _Atomic bool said; /* Order: any; one thread says it */
    bool deaf, read;

    sweep_choose();
    sweep_large_begin();
    read = sweep_scan_all(&deaf);
    if (read) {
        size_t released = sweep_leave(heap, deaf, 0);
        released += sweep_large_end(deaf, false);
        atomic_fetch_add_explicit(&sweep.released, released, memory_order_relaxed);
    } else {
        sweep_large_end(true, false); /* drops the candidates: sweep_yield chooses anew */
        if (!atomic_exchange(&said, true))
            base_message(
                "sweep: the process may not read its own memory (/proc/self/maps, process_vm_readv, /proc/self/mem)");
        sweep_yield(heap, 0, "no sweep is possible");
    }
}

static void sweep_leave_turn(void)
{
    atomic_store(&sweep.due, false);
    atomic_store(&sweep.sweeper, 0);
    atomic_store(&sweep.running, false);
    atomic_fetch_add(&sweep.turns, 1);
    os_futex_wake(&sweep.turns, INT32_MAX);
}

static bool sweep_take_turn(void)
{
    if (lock_in_fork() || atomic_exchange_explicit(&sweep.running, true, memory_order_acquire))
        return false;
    if (sweep_memory == NULL)
        sweep_memory = metadata_allocate(sizeof *sweep_memory, 64);
    atomic_store_explicit(&sweep.sweeper, os_thread_token(), memory_order_relaxed);
    if (sweep_memory == NULL)
        sweep_leave_turn();
    return sweep_memory != NULL;
}

/* While another thread sweeps, a thread that frees waits for it once the waiting bytes are twice the trigger; else
 * frees would outrun sweeps. It holds no lock, and the sweeping thread waits for it only to answer its signal. */
static void sweep_await_turn(void)
{
    for (unsigned waits = 0; waits < AWAIT_MOST && atomic_load(&sweep.waiting) / 2 >= atomic_load(&sweep.trigger);
         waits++) {
        uint32_t turns = atomic_load(&sweep.turns);
        if (!atomic_load(&sweep.running) || lock_in_fork() || atomic_load(&sweep.sweeper) == os_thread_token())
            break; /* the last: a signal handler that interrupted the sweep frees */
        os_futex_wait(&sweep.turns, turns, AWAIT_NS);
    }
}

static void sweep_end_turn(void)
{
    /* Leaves out blocks that began to wait meanwhile: the faster others free, the later the next sweep would be. */
    atomic_store_explicit(&sweep.kept, sweep.chosen - sweep.left + sweep_large_waiting(), memory_order_relaxed);
    sweep_set_trigger();
    sweep_leave_turn();
}

void sweep_run(struct heap *heap)
{
    size_t kept;

    if (!sweep_take_turn()) {
        sweep_await_turn();
        return;
    }
    if (atomic_load(&sweep.trigger) == 0) /* no trigger is set yet */
        sweep_set_trigger();
    if (atomic_load(&sweep.waiting) >= atomic_load(&sweep.trigger) || sweep_large_is_full()) {
        sweep_once(heap);
        kept = sweep.chosen - sweep.unseen;
        if (kept > sweep_most_kept())
            sweep_yield(heap,
                        atomic_load(&sweep.waiting) - base_min(kept - sweep_most_kept(), atomic_load(&sweep.waiting)),
                        "pointers keep more than HAKMEM_SWEEP_KEEP allows");
        sweep_end_turn();
    } else {
        sweep_leave_turn();
    }
}

bool sweep_make_room(struct heap *heap, unsigned tries)
{
    if (!harden.sweep || tries > 1)
        return false;
    if (atomic_load(&sweep.waiting) == 0 || !sweep_take_turn())
        return true;
    if (tries)
        sweep_yield(heap, 0, "memory is out");
    else
        sweep_once(heap);
    sweep_end_turn();
    return true;
}

/* Counts by the bits: a thread that is gone may have set some and not counted them yet. */
static void sweep_count_anew(void)
{
    size_t waiting = sweep_large_waiting();

    for (unsigned class = 1; class < CLASS_COUNT; class++)
        atomic_store(&sweep.blocks[class], 0);
    for (uint32_t number = window_slots_begin(), end = window_slots_end(); number < end; number++) {
        struct sweep_slot *slot = sweep_find_slot(number);
        for (uint32_t firsts = slot ? atomic_load(&slot->firsts) : 0; firsts; firsts &= firsts - 1) {
            unsigned first = base_low_bit(firsts);
            const struct slab *slab = &superslab_of(window_slot_address(number))->slabs[first];
            size_t count = 0;
            for (unsigned i = 0; i < SLAB_MAP_WORDS && i < slab_words(slab); i++)
                count += base_count_bits(atomic_load(&slot->waiting[first][i]));
            atomic_fetch_add(&sweep.blocks[slab->class], count);
            waiting += count * sweep_cost(slab->class);
        }
    }
    atomic_store(&sweep.waiting, waiting);
}

void sweep_reset_in_child(void)
{
    if (!harden.sweep)
        return;
    atomic_store(&sweep.running, false);
    atomic_store(&sweep.sweeper, 0);
    os_stop_reset_in_child();
    sweep_count_anew();
}
