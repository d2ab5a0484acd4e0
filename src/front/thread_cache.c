#include "front/thread_cache.h"

#include "observe/counters.h"
#include "options/options.h"
#include "os/cycles.h"
#include "os/foreign.h"
#include "pool/heap_memory.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "profile/profile.h"
#include "superslab/shared_pool.h"

/* A bin starts at first_limit blocks and doubles; where threads share heaps (O8), at no more than this many bytes. */
#define BIN_FIRST_SHARED 1024u
/* Slow calls between two calls of cache_shrink_next. */
#define SHRINK_INTERVAL 8u
/* How often the hand passes an unused bin before cache_shrink_next closes it. Deep bins get more passes once deep_most
 * has grown: a program that holds a thousand blocks of each class in turn returns to the first class after some hundred
 * slow calls. */
#define HAND_PASSES 1u
#define HAND_PASSES_DEEP 32u
/* A bin that overflows so often without a refill only passes blocks on: it is flushed whole, and stops growing here. */
#define ONE_WAY_OVERFLOWS 8u
#define ONE_WAY_CAPACITY 64u

/* HAKMEM_FC_CAP's largest value, which means no bound. Deep bins may hold DEEP_SHARE times HAKMEM_CACHE_BYTES. */
#define FC_CAP_MOST 256u
#define DEEP_SHARE 256u
#define DEEP_FIRST_BYTES HAK_MIB

/* A slow call for a run is taken to cost as much as so many bytes that the thread did not use before. Most of them are
 * in the processor's caches; the first touch of a page costs much more. */
#define RUN_CALL_BYTES 1024u

/* Added to a thread's number of calls between two profiles, so that blocks that lived meanwhile come into the last
 * bucket. */
#define UNCOUNTED (1u << OWN_BUCKETS)

/* Entries that a flush moves at a time, which bounds its array on the stack. */
#define FLUSH_MOST 128u

/* ---- Flushes that others want ---- */

HAK_DATA_HERE _Atomic uint32_t cache_flushes;
static _Atomic uint32_t flush_wanted_ms; /* Order: relaxed; cache_flushes publishes it */

void cache_want_flush(void)
{
    atomic_store_explicit(&flush_wanted_ms, shared_pool_now_ms(), memory_order_relaxed);
    atomic_fetch_add_explicit(&cache_flushes, 1, memory_order_release);
}

uint32_t cache_flush_wanted_ms(void) { return atomic_load_explicit(&flush_wanted_ms, memory_order_relaxed); }

/* ---- Bins ---- */

/* Tells from which of a class's two stacks malloc takes (T8). Another process may write zeros here to make a thread's
 * calls miss (front/control.h), because class 0 has no block (T1). */
static void cache_fill_classes(struct thread_cache *cache)
{
    for (size_t i = 0; i < sizeof cache->class_of; i++)
        __atomic_store_n(&cache->class_of[i], (uint8_t)(class_of_size(i * BLOCK_ALIGN) + cache->counted),
                         __ATOMIC_RELAXED);
}

/* Starts or stops counting calls, as the profile wants (T8). Runs are empty. */
static void cache_follow_profile(struct thread_cache *cache)
{
    cache->generation = profile_generation();
    cache->counted = profile_drawing() && !HAK_SECURE ? RUN_BINS : 0;
    if (profile_drawing())
        cache->draw.calls += UNCOUNTED; /* the calls between two profiles are in none */
    if (cache_counts(cache))
        countdowns_begin(&cache->countdowns);
    cache_fill_classes(cache);
}

/* Makes a zeroed record an empty cache. */
static void cache_init(struct thread_cache *cache)
{
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        cache->base[class] = size_classes[class].first_base;
        bin_set_top(&cache->bins[class], cache->base[class]);
        cache->bins[class].limit = cache->base[class];
        bin_set_top(&cache->runs[class], size_classes[class].run_base);
    }
    cache_follow_profile(cache);
    cache->hand = 1;
    cache->tick = cache_flush_number();
}

/* Returns the heap that served the cache before; NULL: none. */
static struct heap *cache_change_heap(struct thread_cache *cache, struct heap *heap)
{
    struct heap *before = cache->heap;

    lock_acquire(&(before ? before : heap)->lock);
    if (before == NULL)
        cache_init(cache);
    __atomic_store_n(&cache->heap, heap, __ATOMIC_RELAXED); /* observers read it before they have the lock */
    lock_release(&(before ? before : heap)->lock);
    return before;
}

void cache_serve_from(struct thread_cache *cache, struct heap *own, struct heap *heap)
{
    struct heap *before;

    cache->own = own;
    before = cache_change_heap(cache, heap);
    if (before && before != own)
        registry_serve_less(before);
}

struct heap *cache_serve_itself(struct thread_cache *cache)
{
    return cache->heap ? cache_change_heap(cache, cache->own) : NULL;
}

static bool bin_is_deep(const struct thread_cache *cache, unsigned class) { return cache->base[class] >= CACHE_SLOTS; }
static unsigned bin_capacity(const struct thread_cache *cache, unsigned class)
{
    return cache->bins[class].limit - cache->base[class];
}

static void cache_note_busy(struct thread_cache *cache, unsigned class)
{
    cache->busy[class] =
        bin_is_deep(cache, class) && cache->deep_most > DEEP_FIRST_BYTES ? HAND_PASSES_DEEP : HAND_PASSES;
}

static void bin_set_capacity(struct thread_cache *cache, unsigned class, unsigned capacity)
{
    size_t *bytes = bin_is_deep(cache, class) ? &cache->deep_bytes : &cache->capacity_bytes;

    *bytes += (size_t)capacity * class_size(class);
    *bytes -= (size_t)bin_capacity(cache, class) * class_size(class);
    cache->bins[class].limit = (uint16_t)(cache->base[class] + capacity);
    cache->open &= ~(UINT64_C(1) << class);
    cache->open |= (uint64_t)(capacity != 0) << class;
}

/* ---- Deep bins (T7) ---- */

static _Atomic bool deep_open; /* there may be deep bins. Order: relaxed; a hint */

void cache_want_no_deep(void)
{
    if (HAK_UNLIKELY(atomic_load_explicit(&deep_open, memory_order_relaxed)))
        cache_want_flush();
}

/* Moves the stack to another place of the class. Its capacity becomes 0. */
static void bin_move(struct thread_cache *cache, unsigned class, unsigned to)
{
    unsigned count = cache_count(cache, class), from = cache->base[class];

    lock_acquire(&cache->heap->lock);
    bin_set_capacity(cache, class, 0);
    __builtin_memcpy(&cache->slots[to + 1], &cache->slots[from + 1], count * sizeof(void *));
    cache->base[class] = (uint16_t)to;
    bin_set_top(&cache->bins[class], to + count);
    cache->bins[class].limit = (uint16_t)to;
    lock_release(&cache->heap->lock);
}

/* The bytes that deep bins may have. */
static size_t deep_most(const struct thread_cache *cache)
{
    return cache->deep_room && !atomic_load_explicit(&heap_signals.several, memory_order_relaxed) && heap_may_keep()
               ? base_max(cache->deep_most, DEEP_FIRST_BYTES)
               : 0;
}

/* Raises the capacity to `wanted`, or as far as the bounds allow, in the class's deep place. */
static void bin_grow_deep(struct thread_cache *cache, unsigned class, unsigned wanted)
{
    size_t most = deep_most(cache), spare = most > cache->deep_bytes ? most - cache->deep_bytes : 0;
    unsigned has = bin_is_deep(cache, class) ? bin_capacity(cache, class) : 0;

    wanted = (unsigned)base_min(base_min(wanted, size_classes[class].deep_limit), has + spare / class_size(class));
    if (wanted <= bin_capacity(cache, class))
        return;
    if (!bin_is_deep(cache, class)) {
        atomic_store_explicit(&deep_open, true, memory_order_relaxed);
        cache->deep_touched = true;
        bin_move(cache, class, size_classes[class].deep_base);
    }
    bin_set_capacity(cache, class, wanted);
    debug_count_of(COUNT_CACHE_GROWN, class, 1);
}

/* Counts hits. The fast paths leave no trace but the top, so they popped or pushed at least the difference since the
 * bin's last slow call. The bin holds `count` blocks, and `left` after this call. Under the heap's lock. */
HAK_INLINE void bin_note_hits(struct thread_cache *cache, unsigned class, unsigned count, unsigned left)
{
    unsigned seen = cache->seen[class];

    cache->seen[class] = (uint16_t)left;
    if (count <= seen)
        cache->heap->classes[class].malloc_hits += seen - count;
    else
        cache->heap->classes[class].free_hits += count - seen;
}

/* Moves the oldest `count` entries of the bin to out[]. Under the heap's lock (T4). */
static void bin_take_oldest(struct thread_cache *cache, unsigned class, void **out, unsigned count)
{
    unsigned base = cache->base[class], left = cache_count(cache, class) - count;
    void **stack = &cache->slots[base + 1];

    __builtin_memcpy(out, stack, count * sizeof *out);
    __builtin_memmove(stack, stack + count, left * sizeof *stack);
    bin_set_top(&cache->bins[class], base + left);
}

/* Returns the oldest `count` entries of the bin to their slabs. */
static void bin_flush(struct thread_cache *cache, unsigned class, unsigned count)
{
    void *blocks[FLUSH_MOST];

    if (count == 0)
        return;
    CYCLES_PART(CYCLES_FLUSH);
    while (count) {
        unsigned part = (unsigned)base_min(count, FLUSH_MOST), held;
        size_t remote;
        lock_acquire(&cache->heap->lock);
        held = cache_count(cache, class);
        bin_note_hits(cache, class, held, held - part);
        count -= part;
        bin_take_oldest(cache, class, blocks, part);
        remote = heap_return_blocks(cache->heap, class, blocks, part, "free");
        lock_release(&cache->heap->lock);
        if (remote)
            remote_free_blocks(class, blocks, remote, "free");
    }
}

/* ---- Runs (T8) ---- */

/* Counts the calls that the run served, as hits and for the profile. Under the heap's lock. */
static void run_settle(struct thread_cache *cache, unsigned class)
{
    unsigned served = cache->run_count[class] - cache_run_left(cache, class);

    if (served == 0)
        return;
    cache->run_count[class] = (uint8_t)(cache->run_count[class] - served);
    cache->heap->classes[class].malloc_hits += served;
    cache->draw.calls += served;
    countdowns_pass(&cache->countdowns, class, served);
}

static void run_flush(struct thread_cache *cache, unsigned class)
{
    unsigned base = size_classes[class].run_base, count;
    size_t remote;

    if (HAK_LIKELY(cache->run_count[class] == 0))
        return;
    lock_acquire(&cache->heap->lock);
    run_settle(cache, class);
    count = cache->run_count[class];
    cache->run_count[class] = cache->run_want[class] = 0;
    bin_set_top(&cache->runs[class], base);
    remote = heap_return_blocks(cache->heap, class, &cache->slots[base + 1], count, "free");
    lock_release(&cache->heap->lock);
    if (remote)
        remote_free_blocks(class, &cache->slots[base + 1], remote, "free");
}

/* Whether a run that lacks `missing` blocks is to get them from the heap. They are memory that the program would not
 * touch without the profile. So where blocks come back, the heap waits until short runs have cost as much. */
static bool run_is_due(const struct thread_cache *cache, unsigned class, size_t missing)
{
    unsigned owed = cache->countdowns.owed[class];

    return owed == RUN_BUILDS || (size_t)owed * RUN_CALL_BYTES >= missing * class_size(class);
}

/* Counts a run that served `served` calls while `back` blocks came back, for run_is_due. */
static void run_owe(struct thread_cache *cache, unsigned class, unsigned served, unsigned back)
{
    uint8_t *owed = &cache->countdowns.owed[class];

    if (back * 4 <= served)
        *owed = RUN_BUILDS;
    else if (*owed < RUN_BUILDS - 1)
        ++*owed;
}

/* The length of the class's next run, after one that served `served` calls while `back` blocks came back. If few came
 * back, the thread takes blocks that it has not touched for long in any case, and a long run costs nothing. If more
 * came back than the bin can hold, blocks that a run takes from the heap soon return there. A run that was
 * much shorter than it was to be is no reason for a longer one. */
static unsigned run_next(struct thread_cache *cache, unsigned class, unsigned served, unsigned back)
{
    size_t length = cache_run_length(cache, class), usual = size_classes[class].run_usual;

    run_owe(cache, class, served, back);
    if (HAK_UNLIKELY(cache->countdowns.full[class])) {
        cache->countdowns.full[class] = false;
        length = base_min(base_max(length / 2, 1), usual);
    } else if (length == 0 && usual == 0 && cache_stays_runless(cache, class, back)) {
        length = 0;
    } else if (served <= length / 2) {
        length = back * 2 <= served ? length : base_min(length, base_max(length / 2, usual));
    } else if (back * 2 <= served) {
        length = base_min(base_max(length * 2, 1), size_classes[class].run_limit);
    } else if (length > usual) {
        length = base_max(length / 2, usual);
    } else {
        length = base_min(base_max(length * 2, 4), usual);
    }
    cache->run_want[class] = (uint8_t)(length | (length == usual ? RUN_STEADY : 0));
    return (unsigned)length;
}

bool cache_end_run(struct thread_cache *cache, unsigned class, uint64_t *weight)
{
    unsigned count = cache_count(cache, class), seen = cache->seen[class];

    cache->draw.calls++;
    cache_note_busy(cache, class);
    run_next(cache, class, cache->run_count[class] + 1u, count > seen ? count - seen : 0);
    if (cache->run_count[class]) {
        lock_acquire(&cache->heap->lock);
        run_settle(cache, class);
        lock_release(&cache->heap->lock);
    }
    if (cache->generation != profile_generation()) /* Z3: the next housekeeping makes the cache follow */
        return false;
    return !profile_call_passes(&cache->countdowns, class) &&
           profile_count_call(&cache->countdowns, &cache->draw, class, weight);
}

/* Returns how many calls the runs in progress have served. Most classes have no run, so it tests a word of classes at a
 * time. */
static unsigned runs_served(const struct thread_cache *cache)
{
    unsigned served = 0;

    _Static_assert(CLASS_COUNT % sizeof(uint64_t) == 0, "words hold all classes");
    for (unsigned first = 0; first < CLASS_COUNT; first += sizeof(uint64_t)) {
        uint64_t counts;
        __builtin_memcpy(&counts, &cache->run_count[first], sizeof counts);
        while (HAK_UNLIKELY(counts != 0)) { /* a byte for each class, the first the lowest on all our machines */
            unsigned byte = base_low_bit(counts) / CHAR_BIT, class = first + byte;
            served += cache->run_count[class] - cache_run_left(cache, class);
            counts &= ~(UINT64_C(0xff) << byte * CHAR_BIT);
        }
    }
    return served;
}

struct caller cache_caller(const struct thread_cache *cache)
{
    struct caller caller = { 0 };

    if (cache->own == NULL || !profile_on()) /* the empty cache; calls that nobody counts */
        return caller;
    caller.calls = cache->draw.calls;
    caller.thread = (uint16_t)cache->own->id;
    if (profile.draw_mean != 1) /* with 1 every call is a sample, so a run serves none */
        caller.calls += runs_served(cache);
    return caller;
}

void cache_begin_run(struct thread_cache *cache, unsigned class)
{
    unsigned count = cache_count(cache, class), length = cache_run_length(cache, class), moved, got = 0;
    unsigned base = size_classes[class].run_base;
    bool zero;

    if (cache->run_count[class] != 0 || cache->generation != profile_generation())
        return;
    cache->overflows[class] = 0;
    length = countdowns_may_pass(&cache->countdowns, class, length);
    moved = (unsigned)base_min(count, length);
    length = (unsigned)base_min(length, base_max(size_classes[class].run_usual, moved));
    if (length == 0)
        return;
    lock_acquire(&cache->heap->lock);
    /* A few blocks more are not worth the search for them. */
    if ((length - moved) * 8 > length && (moved == 0 || run_is_due(cache, class, length - moved))) {
        cache->countdowns.owed[class] = 0;
        got = (unsigned)heap_take_blocks(cache->heap, class, &cache->slots[base + 1], length - moved, &zero);
        cache->heap->classes[class].direct++; /* no call missed for this */
    }
    bin_note_hits(cache, class, count, count - moved);
    cache_fill_run(cache, class, base, moved, got);
    lock_release(&cache->heap->lock);
}

/* Whether the calls that `left` counts need only blocks: none is a sample, and no other work waits. */
static bool run_is_plain(const struct thread_cache *cache, unsigned class, int64_t left)
{
    return left >= 0 && cache_run_left(cache, class) == 0 && cache->tick == cache_flush_number() &&
           cache->countdowns.shifts[class] == govern_shift(class);
}

void *cache_serve_counted(struct thread_cache *cache, unsigned class)
{
    unsigned served = cache->run_count[class] + 1u, count = cache_count(cache, class), seen = cache->seen[class];
    unsigned back = count > seen ? count - seen : 0, length = cache_run_length(cache, class);
    unsigned usual = size_classes[class].run_usual;
    int64_t parts = cache->countdowns.parts[class], left = cache->countdowns.left[class] - parts * (int64_t)served;
    void *block;

    if (!run_is_plain(cache, class, left))
        return NULL;
    if (count - 1 < length / 2 && count - 1 < usual && (count == 1 || run_is_due(cache, class, length - (count - 1))))
        return NULL; /* the heap must fill it */
    length = (unsigned)base_min(run_next(cache, class, served, back), count - 1);
    cache->countdowns.left[class] = left;
    length = countdowns_may_pass(&cache->countdowns, class, length);
    cache_note_busy(cache, class);
    cache->overflows[class] = 0;
    cache->seen[class] = (uint16_t)(count - 1 - length);
    cache_note_run(cache, class, served, back);
    block = cache_pop(cache, &cache->bins[class]);
    cache_fill_run(cache, class, size_classes[class].run_base, length, 0);
    return block;
}

/* ---- Capacities ---- */

/* Flushes the bin and its run. The capacity becomes 0. */
static void bin_close(struct thread_cache *cache, unsigned class)
{
    run_flush(cache, class);
    bin_flush(cache, class, cache_count(cache, class));
    if (bin_is_deep(cache, class))
        bin_move(cache, class, size_classes[class].slot_base);
    else
        bin_set_capacity(cache, class, 0);
}

/* Closes the next open bin if the hand has passed it often enough since its last slow call: unused blocks pin slabs. */
static void cache_shrink_next(struct thread_cache *cache)
{
    uint64_t after = cache->open & ~base_low_mask(cache->hand);
    unsigned class;

    if (cache->open == 0)
        return;
    class = base_low_bit(after ? after : cache->open);
    cache->hand = class + 1;
    if (cache->busy[class] == 0) {
        bin_close(cache, class);
        debug_count_of(COUNT_CACHE_SHRUNK, class, 1);
    } else {
        cache->busy[class]--;
    }
}

/* Returns how many bytes the bins may hold, without deep ones. While calls are counted, a bin also needs room for the
 * blocks that were freed since its run began. */
static size_t cache_budget(const struct thread_cache *cache)
{
    return base_min(hak_options.cache_bytes, atomic_load_explicit(&heap_signals.cache_share, memory_order_relaxed))
           << cache->counted / RUN_BINS;
}

static unsigned bin_first_capacity(const struct thread_cache *cache, unsigned class)
{
    unsigned first = size_classes[class].first_limit;

    return HAK_LIKELY(cache->heap == cache->own)
               ? first
               : (unsigned)base_min(base_max(BIN_FIRST_SHARED / class_size(class), 1), first);
}

/* Doubles the bin's capacity, within the class's, the options' and the cache's bounds. */
static void bin_grow(struct thread_cache *cache, unsigned class)
{
    const struct size_class *row = &size_classes[class];
    unsigned base = cache->base[class], capacity = cache->bins[class].limit - base, wanted = capacity * 2, most = 0;

    if (capacity == 0)
        wanted = bin_first_capacity(cache, class);
    wanted = (unsigned)base_min(wanted, hak_options.fc_cap < FC_CAP_MOST ? hak_options.fc_cap : DEEP_BLOCKS);
    if (base != row->deep_base && capacity < row->slot_limit) {
        size_t budget = cache_budget(cache);
        size_t spare = budget > cache->capacity_bytes ? budget - cache->capacity_bytes : 0;
        most = (unsigned)base_min(base_min(wanted, row->slot_limit), capacity + spare / row->size);
    }
    if (most > capacity) {
        if (base == row->first_base && most > row->first_limit)
            bin_move(cache, class, row->slot_base);
        bin_set_capacity(cache, class, most);
        debug_count_of(COUNT_CACHE_GROWN, class, 1);
    } else if (wanted > capacity) {
        bin_grow_deep(cache, class, wanted);
    }
}

static void cache_note_slow_call(struct thread_cache *cache, unsigned class)
{
    cache_note_busy(cache, class);
    if (++cache->slow_calls % SHRINK_INTERVAL == 0)
        cache_shrink_next(cache);
}

void *cache_refill(struct thread_cache *cache, unsigned class, bool *zero)
{
    void *single = NULL, **out = &single;
    size_t want = 1, got;
    unsigned base, capacity;

    CYCLES_PART(CYCLES_REFILL);
    foreign_forbid();
    cache_note_slow_call(cache, class);
    cache->overflows[class] = 0;
    if (cache->deep_refused == class && !cache->deep_refrain) {
        cache->deep_refused = CLASS_NONE;
        cache->deep_most =
            base_min(base_max(cache->deep_most, DEEP_FIRST_BYTES) * 2, DEEP_SHARE * hak_options.cache_bytes);
    }
    bin_grow(cache, class);
    base = cache->base[class];
    capacity = cache->bins[class].limit - base;
    if (capacity > 1) {
        want = base_min(capacity / 2, hak_options.fc_refill);
        out = &cache->slots[base + 1];
    }
    lock_acquire(&cache->heap->lock);
    got = heap_take_blocks(cache->heap, class, out, want, zero);
    bin_note_hits(cache, class, 0, (unsigned)(got - (got != 0)));
    if (out != &single) {
        /* The block that would be popped first serves this call. */
        single = got ? out[got - 1] : NULL;
        bin_set_top(&cache->bins[class], base + got - (got != 0));
    }
    lock_release(&cache->heap->lock);
    foreign_allow();
    return single;
}

/* Makes room in a full bin by moving its newest blocks back to the run, if the run has served calls. The run then
 * begins with these blocks, and is at most as long as the class's next run would be. */
static bool run_take_back(struct thread_cache *cache, unsigned class)
{
    unsigned count = cache_count(cache, class), left = cache_run_left(cache, class), seen = cache->seen[class];
    unsigned served = cache->run_count[class] - left, length = cache_run_length(cache, class), moved;
    struct bin *bin = &cache->bins[class], *run = &cache->runs[class];

    if (served == 0 || length <= left)
        return false;
    moved = (unsigned)base_min((count + 1) / 2, length - left);
    cache_note_run(cache, class, served, count > seen ? count - seen : 0);
    countdowns_pass(&cache->countdowns, class, served);
    moved = countdowns_may_pass(&cache->countdowns, class, left + moved) - left;
    cache->seen[class] = (uint16_t)(count - moved);
    bin_set_top(bin, bin->top - moved);
    __builtin_memcpy(&cache->slots[run->top + 1], &cache->slots[bin->top + 1], moved * sizeof(void *));
    cache->run_count[class] = (uint8_t)(left + moved);
    bin_set_top(run, run->top + moved);
    return moved != 0;
}

/* A push on the slow path, which is no hit. */
static void bin_push(struct thread_cache *cache, unsigned class, void *block)
{
    struct bin *bin = &cache->bins[class];

    cache->slots[bin->top + 1] = block;
    bin_set_top(bin, bin->top + 1u);
    cache->seen[class]++;
}

/* Whether an unused bin should stay closed: the block shares a cache line with blocks of another heap. It returns
 * there, so that two threads never write one line. A thread that only frees gets a bin: it takes no block out. */
static bool bin_stays_closed(const struct thread_cache *cache, unsigned class, const void *block)
{
    return class_size(class) < HAK_CACHE_LINE && bin_capacity(cache, class) == 0 &&
           atomic_load_explicit(&slab_of(block)->owner, memory_order_relaxed) != cache->heap;
}

static void return_uncached(struct thread_cache *cache, unsigned class, void *block)
{
    size_t remote;

    lock_acquire(&cache->heap->lock);
    remote = heap_return_blocks(cache->heap, class, &block, 1, "free");
    lock_release(&cache->heap->lock);
    if (remote)
        remote_free_blocks(class, &block, 1, "free");
}

void cache_overflow(struct thread_cache *cache, unsigned class, void *block)
{
    struct bin *bin = &cache->bins[class];
    bool one_way = cache->overflows[class] >= ONE_WAY_OVERFLOWS;
    bool closed = !one_way && bin_stays_closed(cache, class, block);

    foreign_forbid();
    cache_note_overflow(cache, class);
    cache_note_slow_call(cache, class);
    if (!one_way)
        cache->overflows[class]++;
    if (!closed && (!one_way || bin_capacity(cache, class) < ONE_WAY_CAPACITY))
        bin_grow(cache, class);
    if (bin->top == bin->limit && bin_capacity(cache, class) != 0) {
        unsigned count = cache_count(cache, class);
        cache->deep_refused = (uint8_t)class;
        if (HAK_UNLIKELY(cache_counts(cache)))
            cache->countdowns.full[class] = true;
        if (one_way || !cache_counts(cache) || !run_take_back(cache, class))
            bin_flush(cache, class, one_way ? count : (count + 1) / 2);
    }
    if (bin->top != bin->limit) {
        bin_push(cache, class, block);
        debug_count_of(COUNT_FREE_TLS_SLL, class, 1);
    } else {
        return_uncached(cache, class, block);
        debug_count_of(closed ? COUNT_EARLY_FREE_CLOSED : COUNT_EARLY_FREE_UNCACHED, class, 1);
    }
    foreign_allow();
}

void cache_close_deep(struct thread_cache *cache)
{
    for (unsigned class = 1; cache->deep_bytes && class < CLASS_COUNT; class++)
        if (bin_is_deep(cache, class))
            bin_close(cache, class);
    atomic_store_explicit(&deep_open, false, memory_order_relaxed);
}

void cache_note_growth(struct thread_cache *cache)
{
    size_t held = 0;

    cache->growths = shared_pool_growths();
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        if (bin_is_deep(cache, class))
            held += (size_t)cache_blocks(cache, class) * class_size(class);
    if (held <= hak_options.cache_bytes)
        return;
    cache_close_deep(cache);
    cache->deep_most = 0;
    cache->deep_refrain = true;
}

void cache_reset_in_child(struct thread_cache *cache)
{
    if (cache->heap && atomic_load(&cache->heap->state) == HEAP_LOST)
        cache->heap = cache->own;
}

bool cache_is_empty(const struct thread_cache *cache)
{
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        if (cache_count(cache, class) || cache_run_left(cache, class))
            return false;
    return true;
}

void cache_flush_all(struct thread_cache *cache, bool close)
{
    /* The cache is above its budget: more threads share the memory than when the cache grew, or calls are no longer
     * counted. */
    bool narrow = cache->capacity_bytes > cache_budget(cache) || cache->generation != profile_generation();

    cache->tick = cache_flush_number();
    if (HAK_UNLIKELY(profile_drawing()))
        govern_relax_due(profile_now_ms());
    if (HAK_SECURE)
        bins_flush(&cache->hardened, cache->slots, cache->heap, close);
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        run_flush(cache, class);
        if (cache_counts(cache))
            profile_follow_shift(&cache->countdowns, class);
        bin_flush(cache, class, cache_count(cache, class));
        if ((close || narrow) && bin_capacity(cache, class))
            bin_close(cache, class);
    }
    if (cache->generation != profile_generation())
        cache_follow_profile(cache);
    else if (HAK_UNLIKELY(__atomic_load_n(&cache->class_of[1], __ATOMIC_RELAXED) == 0))
        cache_fill_classes(cache);
    cache->deep_refrain = false;
    if (deep_most(cache) == 0)
        cache_close_deep(cache);
    if (close && cache->deep_touched) {
        heap_memory_purge_rest(cache->own);
        cache->deep_touched = false;
    }
    lock_acquire(&cache->heap->lock);
    heap_release_kept(cache->heap);
    lock_release(&cache->heap->lock);
}
