/* Runs (T8): the blocks that malloc takes while calls are counted, and in libhakmem-secure always. */
#include "front/bins.h"
#include "harden/patrol.h"
#include "observe/counters.h"
#include "options/options.h"
#include "pool/remote.h"
#include "profile/profile.h"

/* A slow call for a run is taken to cost as much as so many bytes that the thread did not use before. Most of them are
 * in the processor's caches; the first touch of a page costs much more. */
#define RUN_CALL_BYTES 1024u

void run_settle(struct thread_cache *cache, unsigned class)
{
    unsigned served = cache->run_count[class] - cache_run_left(cache, class);

    if (served == 0)
        return;
    cache_set_run_count(cache, class, cache->run_count[class] - served);
    cache->heap->classes[class].malloc_hits += served;
    cache->draw.calls += served;
    countdowns_pass(&cache->countdowns, class, served);
}

/* A countdown has no memory: after the calls of a run in progress, it lasts as long as one that is drawn now. */
void runs_draw_anew(struct thread_cache *cache)
{
    for (unsigned class = 1; class < CLASS_COUNT; class++) {
        int64_t *left = &cache->countdowns.left[class], run = (int64_t)class_size(class) * cache->run_count[class];

        *left = run ? run + draw_countdown(&cache->draw, profile.draw_mean) : -1;
    }
}

void run_flush(struct thread_cache *cache, unsigned class)
{
    unsigned base = size_classes[class].run_base, count;
    size_t remote;

    if (HAK_LIKELY(cache->run_count[class] == 0))
        return;
    if (HAK_SECURE)
        patrol_flushed(&cache->slots[base + 1], cache_run_left(cache, class), class, &cache->chance);
    lock_acquire(&cache->heap->lock);
    run_settle(cache, class);
    count = cache->run_count[class];
    cache_set_run_count(cache, class, 0);
    cache->run_want[class] = 0;
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
    bin_note_frees(cache, class, count, count - moved);
    cache_fill_run(cache, class, base, moved, got);
    lock_release(&cache->heap->lock);
}

/* Whether the calls that `left` counts need only blocks: none is a sample, and no other work waits. */
static bool run_is_plain(const struct thread_cache *cache, unsigned class, int64_t left)
{
    return left >= 0 && cache_run_left(cache, class) == 0 && cache->tick == cache_flush_number();
}

void *cache_serve_counted(struct thread_cache *cache, unsigned class)
{
    unsigned served = cache->run_count[class] + 1u, count = cache_count(cache, class), seen = cache->seen[class];
    unsigned back = count > seen ? count - seen : 0, length = cache_run_length(cache, class);
    unsigned usual = size_classes[class].run_usual;
    int64_t left = cache->countdowns.left[class] - (int64_t)class_size(class) * served;
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
    cache_set_seen(cache, class, count - 1 - length);
    cache_note_run(cache, class, served, back);
    block = cache_pop(cache, &cache->bins[class]);
    cache_fill_run(cache, class, size_classes[class].run_base, length, 0);
    return block;
}
