#include "front/thread_cache.h"

#include "observe/counters.h"
#include "options/options.h"
#include "os/cycles.h"
#include "os/foreign.h"
#include "pool/remote.h"
#include "profile/profile.h"
#include "superslab/shared_pool.h"

/* A bin starts at this many bytes of blocks (within these numbers) and doubles. */
#define BIN_FIRST_BYTES 4096u
#define BIN_FIRST_MOST 16u
/* Slow calls between two looks of the shrinking hand. */
#define SHRINK_INTERVAL 8u
/* A bin that overflows this often without a refill only passes blocks on: it is flushed whole, and grows no further than this. */
#define ONE_WAY_OVERFLOWS 8u
#define ONE_WAY_CAPACITY 64u

/* Entries that one flush moves at a time: what is on the stack meanwhile stays small. */
#define FLUSH_MOST 128u

/* ---- Flushes that others want ---- */

HAK_DATA_HERE _Atomic uint32_t cache_flushes;
static _Atomic uint32_t flush_wanted_ms;

void cache_want_flush(void)
{
    atomic_store_explicit(&flush_wanted_ms, shared_pool_now_ms(), memory_order_relaxed);
    atomic_fetch_add_explicit(&cache_flushes, 1, memory_order_release);
}

uint32_t cache_flush_wanted_ms(void) { return atomic_load_explicit(&flush_wanted_ms, memory_order_relaxed); }

/* ---- Bins ---- */

void cache_init(struct thread_cache *cache, struct heap *heap)
{
    for (size_t i = 0; i < sizeof cache->class_of; i++)
        cache->class_of[i] = (uint8_t)class_of_size(i * BLOCK_ALIGN);
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        bin_set_top(&cache->bins[class], size_classes[class].slot_base);
        cache->bins[class].limit = size_classes[class].slot_base;
    }
    cache->hand = 1;
    cache->heap = heap;
}

static unsigned bin_capacity(const struct thread_cache *cache, unsigned class)
{
    return cache->bins[class].limit - size_classes[class].slot_base;
}

static void bin_set_capacity(struct thread_cache *cache, unsigned class, unsigned capacity)
{
    cache->capacity_bytes += (size_t)capacity * class_size(class);
    cache->capacity_bytes -= (size_t)bin_capacity(cache, class) * class_size(class);
    cache->bins[class].limit = (uint16_t)(size_classes[class].slot_base + capacity);
}

/* The fast paths leave no trace but the bin's top: since its last slow call they popped, or pushed, at least the difference. `count`
 * blocks are in the bin and `left` will be after this call. Under the heap's lock. */
HAK_INLINE void bin_note_hits(struct thread_cache *cache, unsigned class, unsigned count, unsigned left)
{
    unsigned seen = cache->seen[class];

    cache->seen[class] = (uint16_t)left;
    if (count <= seen)
        cache->heap->classes[class].malloc_hits += seen - count;
    else
        cache->heap->classes[class].free_hits += count - seen;
}

/* Drops the tokens among `count` entries taken out of the bin; returns how many blocks are left. Under the heap's lock (T4, T5). */
static unsigned bin_drop_tokens(struct thread_cache *cache, unsigned class, void **entries, unsigned count)
{
    unsigned blocks = 0;

    for (unsigned i = 0; i < count; i++)
        if (entries[i])
            entries[blocks++] = entries[i];
    cache->tokens[class] = (uint8_t)(cache->tokens[class] - (count - blocks));
    return blocks;
}

/* Moves the oldest `count` entries of the bin to out[], and returns the number of blocks among them. Under the heap's lock (T4). */
static unsigned bin_take_oldest(struct thread_cache *cache, unsigned class, void **out, unsigned count)
{
    void **stack = &cache->slots[size_classes[class].slot_base + 1];
    unsigned left = cache_count(cache, class) - count;

    __builtin_memcpy(out, stack, count * sizeof *out);
    __builtin_memmove(stack, stack + count, left * sizeof *stack);
    bin_set_top(&cache->bins[class], size_classes[class].slot_base + left);
    return HAK_UNLIKELY(cache->tokens[class]) ? bin_drop_tokens(cache, class, out, count) : count;
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
        part = bin_take_oldest(cache, class, blocks, part);
        remote = heap_return_blocks(cache->heap, class, blocks, part, "free");
        lock_release(&cache->heap->lock);
        if (remote)
            remote_free_blocks(class, blocks, remote, "free");
    }
}

/* Takes the capacity and the blocks of the next bin in use if it was not on the slow path since the hand last passed it: blocks that
 * nobody takes pin slabs. */
static void cache_shrink_next(struct thread_cache *cache)
{
    unsigned class = cache->hand, looks = 0;

    while (bin_capacity(cache, class) == 0 && looks++ < CLASS_COUNT)
        class = class + 1 < CLASS_COUNT ? class + 1 : 1;
    cache->hand = class + 1 < CLASS_COUNT ? class + 1 : 1;
    if (!cache->busy[class]) {
        bin_flush(cache, class, cache_count(cache, class));
        bin_set_capacity(cache, class, 0);
        debug_count_of(COUNT_CACHE_SHRUNK, class, 1);
    }
    cache->busy[class] = false;
}

/* Doubles the bin's capacity, within the class's, the options' and the cache's bounds. */
static void bin_grow(struct thread_cache *cache, unsigned class)
{
    unsigned capacity = bin_capacity(cache, class), wanted = capacity * 2;
    size_t size = class_size(class), spare;

    if (capacity == 0)
        wanted = (unsigned)base_min(base_max(BIN_FIRST_BYTES / size, 1), BIN_FIRST_MOST);
    wanted = (unsigned)base_min(wanted, base_min(size_classes[class].slot_limit, hak_options.fc_cap));
    spare = hak_options.cache_bytes > cache->capacity_bytes ? hak_options.cache_bytes - cache->capacity_bytes : 0;
    wanted = (unsigned)base_min(wanted, capacity + spare / size);
    if (wanted > capacity) {
        bin_set_capacity(cache, class, wanted);
        debug_count_of(COUNT_CACHE_GROWN, class, 1);
    }
}

static void cache_note_slow_call(struct thread_cache *cache, unsigned class)
{
    cache->busy[class] = true;
    if (++cache->slow_calls % SHRINK_INTERVAL == 0)
        cache_shrink_next(cache);
}

/* Makes tokens of the entries of a refill that are drawn, and gives their blocks back: the number of entries stays what it is without a
 * profile, or entries would be there because they are tokens (Z1). Returns how many are. Under the heap's lock. */
static HAK_NOINLINE unsigned draw_tokens(struct thread_cache *cache, unsigned class, void **entries, size_t count)
{
    void *blocks[128];
    uint64_t marks[2];
    unsigned tokens, given = 0;

    tokens = profile_draw_entries(&cache->draw, class, cache->shifts[class], (unsigned)count, marks);

    for (unsigned word = 0; word < 2; word++)
        for (; marks[word]; marks[word] &= marks[word] - 1) {
            void **entry = &entries[word * 64 + base_low_bit(marks[word])];
            blocks[given++] = *entry;
            *entry = NULL;
        }
    if (tokens)
        heap_return_blocks(cache->heap, class, blocks, tokens, "malloc");
    return tokens;
}

void *cache_refill(struct thread_cache *cache, unsigned class, bool *zero, bool *token)
{
    const struct size_class *row = &size_classes[class];
    void *single = NULL, **out = &single;
    size_t want = 1, got;
    unsigned tokens = 0;

    CYCLES_PART(CYCLES_REFILL);
    foreign_forbid();
    cache_note_slow_call(cache, class);
    cache->overflows[class] = 0;
    bin_grow(cache, class);
    if (bin_capacity(cache, class) > 1) {
        want = base_min(base_max(bin_capacity(cache, class) / 2, 1), hak_options.fc_refill);
        out = &cache->slots[row->slot_base + 1];
    }
    lock_acquire(&cache->heap->lock);
    got = heap_take_blocks(cache->heap, class, out, want, zero);
    bin_note_hits(cache, class, 0, (unsigned)(got - (got != 0)));
    if (HAK_UNLIKELY(profile_on()) && got) {
        HAK_ASSERT(cache->tokens[class] == 0);
        cache->shifts[class] = (uint8_t)govern_shift(class); /* T6: there are no tokens yet */
        if (!profile_draw_passes(&cache->draw, class_size(class), cache->shifts[class], got) && !profile_busy()) /* Z4 */
            tokens = draw_tokens(cache, class, out, got);
    }
    if (out != &single) {
        /* The first of them is the one asked for. */
        single = got ? out[got - 1] : NULL;
        bin_set_top(&cache->bins[class], row->slot_base + got - (got != 0));
    }
    if (HAK_UNLIKELY(tokens)) {
        cache->tokens[class] = (uint8_t)(tokens - (single == NULL));
        cache->heap->classes[class].direct += single == NULL; /* the miss is counted where the block comes from */
    }
    lock_release(&cache->heap->lock);
    *token = HAK_UNLIKELY(tokens != 0) && single == NULL;
    foreign_allow();
    return single;
}

/* On the slow path: no hit. */
static void bin_push(struct thread_cache *cache, unsigned class, void *block)
{
    struct bin *bin = &cache->bins[class];

    cache->slots[bin->top + 1] = block;
    bin_set_top(bin, bin->top + 1u);
    cache->seen[class]++;
}

static void bin_push_token(struct thread_cache *cache, unsigned class)
{
    lock_acquire(&cache->heap->lock);
    bin_push(cache, class, NULL);
    cache->tokens[class]++;
    lock_release(&cache->heap->lock);
}

/* Whether a bin not in use is to stay so: the block shares a cache line with blocks of another thread, to which it returns, so that the
 * two never write one line. A thread that only frees gets a bin all the same, as it takes no block out of it. */
static bool bin_stays_closed(const struct thread_cache *cache, unsigned class, const void *block)
{
    return class_size(class) < HAK_CACHE_LINE && bin_capacity(cache, class) == 0 &&
           atomic_load_explicit(&slab_of(block)->owner, memory_order_relaxed) != cache->heap;
}

/* Returns one block to its slab, past the bin. */
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
    uint64_t *overflows = &cache->heap->classes[class].overflows;
    struct bin *bin = &cache->bins[class];
    bool one_way = cache->overflows[class] >= ONE_WAY_OVERFLOWS;
    bool closed = !one_way && block && bin_stays_closed(cache, class, block);

    foreign_forbid();
    __atomic_store_n(overflows, *overflows + 1, __ATOMIC_RELAXED);
    cache_note_slow_call(cache, class);
    if (!one_way)
        cache->overflows[class]++;
    if (!closed && (!one_way || bin_capacity(cache, class) < ONE_WAY_CAPACITY))
        bin_grow(cache, class);
    if (bin->top == bin->limit && bin_capacity(cache, class) != 0) {
        unsigned count = cache_count(cache, class);
        bin_flush(cache, class, one_way ? count : (count + 1) / 2);
    }
    if (bin->top != bin->limit) {
        if (block)
            bin_push(cache, class, block);
        else
            bin_push_token(cache, class);
        debug_count_of(COUNT_FREE_TLS_SLL, class, 1);
    } else if (block) {
        return_uncached(cache, class, block);
        debug_count_of(closed ? COUNT_EARLY_FREE_CLOSED : COUNT_EARLY_FREE_UNCACHED, class, 1);
    }
    foreign_allow();
}

void *cache_pop(struct thread_cache *cache, unsigned class)
{
    struct bin *bin = &cache->bins[class];
    void *block = cache->slots[bin->top];

    if (HAK_LIKELY(block != NULL)) {
        bin_set_top(bin, bin->top - 1u);
        return block;
    }
    lock_acquire(&cache->heap->lock);
    bin_set_top(bin, bin->top - 1u);
    cache->tokens[class]--;
    cache->seen[class] -= cache->seen[class] != 0; /* no hit */
    lock_release(&cache->heap->lock);
    return NULL;
}

void cache_follow_shift(struct thread_cache *cache, unsigned class)
{
    unsigned shift = govern_shift(class);

    if (cache->shifts[class] == shift)
        return;
    bin_flush(cache, class, cache_count(cache, class));
    cache->shifts[class] = (uint8_t)shift;
}

void cache_put_token(struct thread_cache *cache, unsigned class, unsigned shift)
{
    uint64_t *overflows = &cache->heap->classes[class].overflows;
    void *block = NULL;
    bool zero;

    cache_follow_shift(cache, class);
    if (!profile_keep_token(&cache->draw, class, shift, cache->shifts[class])) {
        /* The entry is a block now: one that vanished would leave too many tokens among the others (Z1). */
        lock_acquire(&cache->heap->lock);
        heap_take_blocks(cache->heap, class, &block, 1, &zero);
        lock_release(&cache->heap->lock);
        if (block == NULL)
            return;
    }
    if (cache->bins[class].top == cache->bins[class].limit) {
        cache_overflow(cache, class, block);
    } else {
        __atomic_store_n(overflows, *overflows + 1, __ATOMIC_RELAXED); /* the free of a sample is no hit */
        if (block)
            bin_push(cache, class, block);
        else
            bin_push_token(cache, class);
    }
}

bool cache_is_empty(const struct thread_cache *cache)
{
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        if (cache_count(cache, class))
            return false;
    return true;
}

void cache_flush_all(struct thread_cache *cache, bool close)
{
    cache->tick = cache_flush_number();
    cache->generation = profile_generation();
    if (HAK_UNLIKELY(profile_on()))
        govern_relax_due(profile_now_ms());
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        bin_flush(cache, class, cache_count(cache, class));
        if (close && bin_capacity(cache, class))
            bin_set_capacity(cache, class, 0);
    }
}
