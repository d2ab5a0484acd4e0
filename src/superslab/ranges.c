#include "superslab/ranges.h"

#include "options/options.h"
#include "superslab/footprint.h"

#define LEAVING_BATCH 16u

HAK_DATA_HERE struct lock huge_lock = LOCK_INIT(LOCK_RANK_HUGE);
HAK_DATA_HERE struct range_cache range_cache;

/* ---- Under huge_lock ---- */

static unsigned range_oldest_index(uint32_t now)
{
    unsigned oldest = 0;

    for (unsigned i = 1; i < range_cache.count; i++)
        if (base_elapsed(now, range_cache.ranges[i].freed_ms) > base_elapsed(now, range_cache.ranges[oldest].freed_ms))
            oldest = i;
    return oldest;
}

static void range_delete(unsigned index)
{
    struct huge_range *ranges = range_cache.ranges;

    range_cache.bytes -= ranges[index].size;
    range_cache.count--;
    __builtin_memmove(&ranges[index], &ranges[index + 1], (range_cache.count - index) * sizeof *ranges);
}

/* Inserts a range, joined with its neighbours (J1). The table must have room. */
static void range_insert(char *start, size_t size, bool closed, uint32_t now)
{
    struct huge_range *ranges = range_cache.ranges;
    unsigned index = 0;

    range_cache.bytes += size;
    while (index < range_cache.count && ranges[index].start < start)
        index++;
    if (index > 0 && ranges[index - 1].start + ranges[index - 1].size == start) {
        index--;
        ranges[index].size += size;
        ranges[index].closed |= closed;
        if (index + 1 < range_cache.count && start + size == ranges[index + 1].start) {
            ranges[index].size += ranges[index + 1].size;
            ranges[index].closed |= ranges[index + 1].closed;
            range_cache.bytes += ranges[index + 1].size; /* range_delete takes it off */
            range_delete(index + 1);
        }
    } else if (index < range_cache.count && start + size == ranges[index].start) {
        ranges[index].start = start;
        ranges[index].size += size;
        ranges[index].closed |= closed;
    } else {
        __builtin_memmove(&ranges[index + 1], &ranges[index], (range_cache.count - index) * sizeof *ranges);
        ranges[index] = (struct huge_range){ .start = start, .size = size, .closed = closed };
        range_cache.count++;
    }
    ranges[index].freed_ms = now;
}

/* Takes the first `size` bytes of the range. */
static char *range_cut(unsigned index, size_t size, bool *closed)
{
    struct huge_range *range = &range_cache.ranges[index];
    char *start = range->start;

    *closed = range->closed;
    if (range->size == size) {
        range_delete(index);
    } else {
        range->start += size;
        range->size -= size;
        range_cache.bytes -= size;
    }
    footprint_huge_taken(size);
    return start;
}

char *ranges_take(size_t size, size_t alignment, bool *closed)
{
    const struct huge_range *ranges = range_cache.ranges;
    unsigned best = HUGE_MAX_RANGES;

    for (unsigned i = 0; i < range_cache.count; i++)
        if (ranges[i].size >= size && ((uintptr_t)ranges[i].start & (alignment - 1)) == 0 &&
            (best == HUGE_MAX_RANGES || ranges[i].size < ranges[best].size))
            best = i;
    return best == HUGE_MAX_RANGES ? NULL : range_cut(best, size, closed);
}

bool ranges_fit(size_t size)
{
    bool fits = false;

    lock_acquire(&huge_lock);
    for (unsigned i = 0; i < range_cache.count && !fits; i++)
        fits = range_cache.ranges[i].size >= size;
    lock_release(&huge_lock);
    return fits;
}

bool ranges_take_at(char *start, size_t size, bool *closed)
{
    unsigned index = 0;

    while (index < range_cache.count && range_cache.ranges[index].start < start)
        index++;
    if (index == range_cache.count || range_cache.ranges[index].start != start || range_cache.ranges[index].size < size)
        return false;
    range_cut(index, size, closed);
    return true;
}

/* ---- Leaving ---- */

/* Ranges that leave: taken out of the cache under huge_lock, unmapped without it. */
struct leaving {
    struct huge_range ranges[LEAVING_BATCH];
    unsigned count;
    size_t bytes;
    bool trimmed; /* some leave because too much waits (N6) */
};

/* Takes the range out of the cache, or the last `most` bytes of it. */
static void leaving_add(struct leaving *leaving, unsigned index, size_t most)
{
    struct huge_range *range = &range_cache.ranges[index];
    size_t size = base_min(range->size, most);

    leaving->ranges[leaving->count++] =
        (struct huge_range){ .start = range->start + (range->size - size), .size = size };
    leaving->bytes += size;
    if (size == range->size) {
        range_delete(index);
    } else {
        range->size -= size;
        range_cache.bytes -= size;
    }
}

static bool leaving_has_room(const struct leaving *leaving)
{
    return leaving->count < LEAVING_BATCH && range_cache.count;
}

/* The bytes of ranges that may wait. */
static size_t range_cache_most(void)
{
    size_t most = (size_t)hak_options.huge_cache;

    return most == HUGE_CACHE_DEFAULT ? footprint_ranges_most(range_cache.bytes) : most;
}

/* Adds the oldest ranges while there are more bytes than may wait, or the table is full. */
static void leaving_add_excess(struct leaving *leaving, uint32_t now)
{
    size_t most = range_cache_most();

    while (leaving_has_room(leaving) && (range_cache.bytes > most || range_cache.count == HUGE_MAX_RANGES)) {
        leaving->trimmed |= range_cache.bytes > most;
        leaving_add(leaving, range_oldest_index(now), SIZE_MAX);
    }
}

static void leaving_add_ripe(struct leaving *leaving, bool all, uint32_t now)
{
    for (unsigned i = range_cache.count; i-- > 0 && leaving_has_room(leaving);)
        if (all || base_elapsed(now, range_cache.ranges[i].freed_ms) >= (uint32_t)hak_options.purge_delay)
            leaving_add(leaving, i, SIZE_MAX);
}

/* Releases huge_lock, and unmaps the ranges. Returns the bytes. */
static size_t leaving_unmap(const struct leaving *leaving)
{
    if (leaving->bytes)
        footprint_huge_leaves(leaving->bytes);
    if (leaving->trimmed)
        footprint_huge_trimmed();
    lock_release(&huge_lock);
    for (unsigned i = 0; i < leaving->count; i++)
        os_unmap(leaving->ranges[i].start, leaving->ranges[i].size);
    if (leaving->bytes)
        footprint_huge_left(leaving->bytes);
    return leaving->bytes;
}

/* Makes the range inaccessible by chance; else accessible, because a huge block ends in inaccessible pages
 * (harden/large.c). False: the kernel refused, so the range cannot wait. */
static bool range_close(char *start, size_t size, bool *closed)
{
    *closed = os_random() % RANGES_CLOSED_SHARE == 0;
    return os_protect(start, size, !*closed);
}

void ranges_put(char *start, size_t size)
{
    uint32_t now = shared_pool_now_ms();
    struct leaving leaving;
    bool closed = false;

    if (size > hak_options.huge_cache / 2 || hak_options.purge_delay == 0 ||
        (HAK_SECURE && !range_close(start, size, &closed))) {
        footprint_huge_waits(size); /* N3 */
        footprint_huge_leaves(size);
        os_unmap(start, size);
        footprint_huge_left(size);
        return;
    }
    do {
        leaving = (struct leaving){ .count = 0 };
        lock_acquire(&huge_lock);
        if (start) {
            range_insert(start, size, closed, now);
            footprint_huge_waits(size);
            start = NULL;
        }
        leaving_add_excess(&leaving, now);
        leaving_unmap(&leaving);
    } while (leaving.count == LEAVING_BATCH);
    shared_pool_schedule_purge(hak_options.purge_delay);
}

size_t ranges_purge(bool all)
{
    uint32_t now = shared_pool_now_ms();
    size_t bytes = 0;
    struct leaving leaving;

    do {
        bool left;
        leaving = (struct leaving){ .count = 0 };
        lock_acquire(&huge_lock);
        leaving_add_excess(&leaving, now);
        leaving_add_ripe(&leaving, all, now);
        left = range_cache.count != 0;
        bytes += leaving_unmap(&leaving);
        if (left)
            shared_pool_schedule_purge(hak_options.purge_delay);
    } while (leaving.count == LEAVING_BATCH);
    return bytes;
}

size_t ranges_give_back(size_t wanted)
{
    uint32_t now = shared_pool_now_ms();
    size_t bytes = 0;
    struct leaving leaving;

    wanted = base_align_up(wanted, UNIT_SIZE);
    do {
        leaving = (struct leaving){ .count = 0 };
        lock_acquire(&huge_lock);
        while (leaving_has_room(&leaving) && bytes + leaving.bytes < wanted)
            leaving_add(&leaving, range_oldest_index(now), wanted - bytes - leaving.bytes);
        bytes += leaving_unmap(&leaving);
    } while (leaving.count && bytes < wanted);
    return bytes;
}

bool ranges_oldest(uint32_t now_ms, uint32_t *waited_ms)
{
    bool any;

    lock_acquire(&huge_lock);
    any = range_cache.count != 0;
    *waited_ms = any ? base_elapsed(now_ms, range_cache.ranges[range_oldest_index(now_ms)].freed_ms) : 0;
    lock_release(&huge_lock);
    return any;
}
