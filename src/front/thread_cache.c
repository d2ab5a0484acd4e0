#include "front/thread_cache.h"

#include "front/bins.h"
#include "front/direct.h"
#include "harden/patrol.h"
#include "harden/seal.h"
#include "observe/counters.h"
#include "options/options.h"
#include "os/cycles.h"
#include "os/foreign.h"
#include "os/os.h"
#include "pool/heap_memory.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "profile/profile.h"
#include "superslab/shared_pool.h"

HAK_DATA_HERE _Thread_local uintptr_t hak_cache_offset __attribute__((tls_model("initial-exec")));
HAK_DATA_HERE _Thread_local uintptr_t hak_operator_offset __attribute__((tls_model("initial-exec")));
HAK_DATA_HERE _Thread_local struct cache_scope *hak_cache_scope __attribute__((tls_model("initial-exec")));

/* A bin starts at first_limit blocks and doubles; where threads share heaps (O8), at no more than this many bytes. */
#define BIN_FIRST_SHARED 1024u
/* Slow calls between two calls of cache_shrink_next. */
#define SHRINK_INTERVAL 8u
/* A bin that overflows so often without a refill only passes blocks on: it is flushed whole, and stops growing here. */
#define ONE_WAY_OVERFLOWS 8u
#define ONE_WAY_CAPACITY 64u

/* HAKMEM_FC_CAP's largest value, which means no bound. Deep bins may hold DEEP_SHARE times HAKMEM_CACHE_BYTES. */
#define FC_CAP_MOST 256u
#define DEEP_SHARE 256u

/* Added to a thread's number of calls between two profiles, so that blocks that lived meanwhile come into the last
 * bucket. */
#define UNCOUNTED (1u << OWN_BUCKETS)

/* Entries that a flush moves at a time, which bounds its array on the stack. */
#define FLUSH_MOST 128u

/* ---- Bins ---- */

/* Tells from which of a class's two stacks malloc takes (T8). Another process may write zeros here to make a thread's
 * calls miss (front/control.h), because class 0 has no block (T1). */
static void cache_fill_classes(struct thread_cache *cache)
{
    bool misses = HAK_SECURE && profile_drawing(); /* V8 */

    for (size_t i = 0; i < sizeof cache->class_of; i++)
        __atomic_store_n(&cache->class_of[i], (uint8_t)(misses ? 0 : class_of_size(i * BLOCK_ALIGN) + cache->counted),
                         __ATOMIC_RELAXED);
}

/* Starts or stops counting calls, as the profile wants (T8). Runs are empty. */
static void cache_follow_profile(struct thread_cache *cache)
{
    cache->generation = profile_generation();
    cache->counted = profile_drawing() || hak_options.front_stats || HAK_SECURE ? RUN_BINS : 0;
    if (profile_drawing())
        cache->draw.calls += UNCOUNTED; /* the calls between two profiles are in none */
    if (cache_counts(cache))
        countdowns_begin(&cache->countdowns, profile_drawing());
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
    if (HAK_SECURE)
        cache->chance = os_random() | 1;
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

void cache_add_hits(const struct thread_cache *cache, struct class_counters *classes)
{
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        int count = __atomic_load_n(&cache->run_count[class], __ATOMIC_RELAXED);
        int served = count - (int)cache_run_left(cache, class);
        int back = (int)cache_count(cache, class) - __atomic_load_n(&cache->seen[class], __ATOMIC_RELAXED);
        /* While the thread runs, it may have ended a run between two of these reads. */
        classes[class].malloc_hits += served > 0 ? (uint64_t)served : 0;
        classes[class].free_hits += back > 0 ? (uint64_t)back : 0;
    }
}

bool cache_add_blocks(const struct thread_cache *cache, const struct heap *heap, size_t *blocks)
{
    if (__atomic_load_n(&cache->heap, __ATOMIC_RELAXED) != heap)
        return false;
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        unsigned count = cache_blocks(cache, class);
        /* the memory of a cache that is no longer in use may become zero at any time */
        if (HAK_LIKELY(count <= size_classes[class].deep_limit))
            blocks[class] += count;
    }
    return true;
}

void cache_add_shared_blocks(const struct thread_cache *cache, size_t *blocks)
{
    struct heap *heap;
    bool added = false;

    while (!added && (heap = __atomic_load_n(&cache->heap, __ATOMIC_RELAXED)) != NULL) {
        lock_acquire(&heap->lock);
        added = cache_add_blocks(cache, heap, blocks);
        lock_release(&heap->lock);
    }
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

/* In units of 16 ms, which wrap after 17 minutes. */
static uint16_t deep_time(void) { return (uint16_t)(shared_pool_now_ms() >> 4); }

/* The thread takes a block of the class whose bin was flushed last. If that was within a purge delay, deep bins may
 * have twice as many bytes. */
static void deep_missed(struct thread_cache *cache)
{
    uint16_t passed = (uint16_t)(deep_time() - cache->deep_refused_at);

    cache->deep_refused = CLASS_NONE;
    if (passed <= hak_options.purge_delay >> 4)
        cache->deep_most =
            base_min(base_max(cache->deep_most, DEEP_FIRST_BYTES) * 2, DEEP_SHARE * hak_options.cache_bytes);
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
        if (HAK_SECURE)
            patrol_flushed(&cache->slots[cache->base[class] + 1], part, class, &cache->chance);
        lock_acquire(&cache->heap->lock);
        held = cache_count(cache, class);
        bin_note_frees(cache, class, held, held - part);
        count -= part;
        bin_take(cache, class, 0, blocks, part);
        remote = heap_return_blocks(cache->heap, class, blocks, part, "free");
        lock_release(&cache->heap->lock);
        if (remote)
            remote_free_blocks(class, blocks, remote, "free");
    }
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

/* Swaps places by chance. */
static void shuffle(void **blocks, unsigned count, uint64_t *chance)
{
    for (unsigned i = 1; i < count; i++) {
        unsigned other = harden_chance(chance, i + 1);
        void *block = blocks[other];
        blocks[other] = blocks[i];
        blocks[i] = block;
    }
}

/* The most blocks of a run of libhakmem-secure. */
#define SWAP_MOST 64u

/* cache_refill of libhakmem-secure (V8). Of the blocks that do not wait, the run gets the newest, which are most likely
 * in the processor's caches. */
static void *cache_swap(struct thread_cache *cache, unsigned class)
{
    unsigned base = size_classes[class].run_base, held, waiting, want, moved, got = 0;
    void **run = &cache->slots[base + 1], *single = NULL;
    bool zero;

    if (HAK_UNLIKELY(size_classes[class].run_limit == 0)) { /* threads do not cache the class */
        lock_acquire(&cache->heap->lock);
        heap_take_blocks(cache->heap, class, &single, 1, &zero);
        lock_release(&cache->heap->lock);
        return single;
    }
    bin_grow(cache, class);
    held = cache_count(cache, class);
    waiting = (unsigned)base_min(base_min(WAITING_MOST, (bin_capacity(cache, class) + 1) / 3), held);
    want = (unsigned)base_min(base_min(SWAP_MOST, size_classes[class].run_limit),
                              base_max(bin_capacity(cache, class) / 2, 1));
    moved = base_min(held - waiting, want);
    lock_acquire(&cache->heap->lock);
    run_settle(cache, class);
    if (moved * 2 <= want)
        got = (unsigned)heap_take_blocks(cache->heap, class, run, want - moved, &zero);
    if (HAK_UNLIKELY(moved + got == 0 && held)) /* a block that waits is better than none */
        waiting = held - (moved = 1);
    bin_note_frees(cache, class, held, held - moved);
    bin_take(cache, class, held - waiting - moved, run + got, moved);
    lock_release(&cache->heap->lock);
    if (!class_is_span(class)) {
        seal_touch(run, got, class_size(class));
        patrol_taken(run, moved + got, class, &cache->chance);
    }
    shuffle(run + got, moved, &cache->chance);
    cache_set_run_count(cache, class, moved + got - (got != 0)); /* without a call that missed */
    bin_set_top(&cache->runs[class], base + moved + got);
    return moved + got ? cache_pop(cache, &cache->runs[class]) : NULL;
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
    if (HAK_SECURE) {
        single = cache_swap(cache, class);
        foreign_allow();
        return single;
    }
    if (cache->deep_refused == class && !cache->deep_refrain)
        deep_missed(cache);
    bin_grow(cache, class);
    base = cache->base[class];
    capacity = cache->bins[class].limit - base;
    if (capacity > 1) {
        want = base_min(capacity / 2, hak_options.fc_refill);
        out = &cache->slots[base + 1];
    }
    lock_acquire(&cache->heap->lock);
    got = heap_take_blocks(cache->heap, class, out, want, zero);
    bin_note_frees(cache, class, 0, (unsigned)(got - (got != 0)));
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
    cache_set_seen(cache, class, count - moved);
    bin_set_top(bin, bin->top - moved);
    __builtin_memcpy(&cache->slots[run->top + 1], &cache->slots[bin->top + 1], moved * sizeof(void *));
    cache_set_run_count(cache, class, left + moved);
    bin_set_top(run, run->top + moved);
    return moved != 0;
}

/* A push on the slow path, which is no hit. */
static void bin_push(struct thread_cache *cache, unsigned class, void *block)
{
    struct bin *bin = &cache->bins[class];

    cache->slots[bin->top + 1] = block;
    bin_set_top(bin, bin->top + 1u);
    cache_set_seen(cache, class, cache->seen[class] + 1u);
}

/* Whether an unused bin should stay closed: the block shares a cache line with blocks of another heap. It returns
 * there, so that two threads never write one line. A thread that only frees gets a bin: it takes no block out. */
static bool bin_stays_closed(const struct thread_cache *cache, unsigned class, const void *block)
{
    return class_size(class) < HAK_CACHE_LINE && bin_capacity(cache, class) == 0 &&
           atomic_load_explicit(&slab_of(block)->owner, memory_order_relaxed) != cache->heap;
}

/* The least free memory in slabs for which cache_unpin looks closer. */
#define UNPIN_LEAST (4 * HAK_MIB)

static void cache_scrub(struct thread_cache *cache)
{
    lock_acquire(&cache->heap->lock);
    cache->scrub_unit = (uint32_t)heap_scrub_some(cache->heap, cache->scrub_unit);
    lock_release(&cache->heap->lock);
}

/* Gives back what the cache's blocks pin, and what lies between blocks in use, if that is too much (N10). */
static void cache_unpin(struct thread_cache *cache)
{
    const struct heap_body *body = cache->heap->body;
    size_t used = atomic_load_explicit(&body->used_bytes, memory_order_relaxed);
    size_t free = atomic_load_explicit(&body->slab_bytes, memory_order_relaxed) - used;
    enum waiting_unpin unpin = UNPIN_NOTHING;

    if (HAK_UNLIKELY(free >= UNPIN_LEAST && !waiting_is_held(used, &cache->peaks)))
        unpin = footprint_unpin(used, free, &cache->peaks);
    if (unpin != UNPIN_NOTHING)
        cache_flush_all(cache, true);
    /* Of libhakmem-secure only ticks scrub, which look at the seals first (harden/look.h). */
    if (unpin == UNPIN_PAGES && !HAK_SECURE)
        cache->scrub_unit = 1;
    if (HAK_UNLIKELY(cache->scrub_unit != 0))
        cache_scrub(cache);
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
        cache->deep_refused_at = deep_time();
        if (HAK_UNLIKELY(cache_counts(cache)))
            cache->countdowns.full[class] = true;
        if (one_way || !cache_counts(cache) || !run_take_back(cache, class))
            bin_flush(cache, class, one_way ? count : (count + 1) / 2);
    }
    if (bin->top != bin->limit) {
        heap_count_free(cache->heap, block, class, true);
        bin_push(cache, class, block);
    } else {
        direct_free(cache->heap, class, block, "free");
        debug_count_of(closed ? COUNT_EARLY_FREE_CLOSED : COUNT_EARLY_FREE_UNCACHED, class, 1);
    }
    cache_unpin(cache);
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
    if (cache->own == NULL) /* the empty cache */
        return;
    if (cache->heap && atomic_load(&cache->heap->state) == HEAP_LOST)
        cache->heap = cache->own;
    profile_reset_in_child(&cache->draw);
    if (cache_counts(cache) && profile_drawing())
        runs_draw_anew(cache);
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
    if (HAK_SECURE && close)
        spans_flush(&cache->spans, cache->heap);
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        run_flush(cache, class);
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
    heap_release_warm(cache->heap);
    lock_release(&cache->heap->lock);
}
