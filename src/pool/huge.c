#include "pool/huge.h"

#include "options/options.h"
#include "superslab/metadata.h"
#include "superslab/shared_pool.h"

/* Under `auto`, blocks from this size on get huge pages once this much else is mapped: then one more than needed is little. */
#define HUGE_PAGES_MIN (2 * HAK_MIB)
#define HUGE_PAGES_FOOTPRINT (32 * HAK_MIB)
/* B4 */
#define HUGE_SPARE (8 * HAK_MIB)

struct lock huge_lock = LOCK_INIT(LOCK_RANK_HUGE);

static struct huge *buckets[HUGE_BUCKETS];
static struct huge *unused_records;
static struct huge_range ranges[HUGE_MAX_RANGES]; /* by address */
static unsigned range_count;
static size_t range_bytes, live_bytes, live_blocks;
static uint64_t allocated, freed, reused; /* struct huge_usage */
static size_t live_peak; /* of live_bytes, since the last purge */

const struct huge_inside huge_inside = { buckets, ranges, &range_count, &range_bytes, &live_bytes, &live_blocks };

static struct huge **huge_bucket(const void *address)
{
    return &buckets[(((uintptr_t)address >> UNIT_SHIFT) * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
}

/* ---- Records; under huge_lock ---- */

static struct huge **huge_find(const void *address)
{
    struct huge **link = huge_bucket(address);

    while (*link && (*link)->address != address)
        link = &(*link)->next;
    return link;
}

static void huge_insert(struct huge *record)
{
    struct huge **link = huge_bucket(record->address);

    record->next = *link;
    *link = record;
    live_bytes += record->size;
    live_peak = base_max(live_peak, live_bytes);
    live_blocks++;
}

static struct huge *huge_remove(struct huge **link)
{
    struct huge *record = *link;

    *link = record->next;
    live_bytes -= record->size;
    live_blocks--;
    return record;
}

static struct huge *huge_new_record(void)
{
    struct huge *record = unused_records;

    if (record)
        unused_records = record->next;
    else
        record = metadata_allocate(sizeof *record, _Alignof(struct huge));
    return record;
}

static void huge_drop_record(struct huge *record)
{
    record->next = unused_records;
    unused_records = record;
}

/* ---- The cache of freed ranges; under huge_lock ---- */

static void range_delete(unsigned index)
{
    range_bytes -= ranges[index].size;
    range_count--;
    __builtin_memmove(&ranges[index], &ranges[index + 1], (range_count - index) * sizeof *ranges);
}

/* Puts a range in, joined with its neighbours (B2). There is room. */
static void range_insert(char *start, size_t size, uint32_t now)
{
    unsigned index = 0;

    range_bytes += size;
    while (index < range_count && ranges[index].start < start)
        index++;
    if (index > 0 && ranges[index - 1].start + ranges[index - 1].size == start) {
        index--;
        ranges[index].size += size;
        if (index + 1 < range_count && start + size == ranges[index + 1].start) {
            ranges[index].size += ranges[index + 1].size;
            range_bytes += ranges[index + 1].size; /* range_delete takes it off */
            range_delete(index + 1);
        }
    } else if (index < range_count && start + size == ranges[index].start) {
        ranges[index].start = start;
        ranges[index].size += size;
    } else {
        __builtin_memmove(&ranges[index + 1], &ranges[index], (range_count - index) * sizeof *ranges);
        ranges[index].start = start;
        ranges[index].size = size;
        range_count++;
    }
    ranges[index].freed_ms = now;
}

/* The best fit, cut to size; NULL if none fits. */
static char *range_take(size_t size, size_t alignment)
{
    unsigned best = HUGE_MAX_RANGES, i;
    char *start;

    for (i = 0; i < range_count; i++)
        if (ranges[i].size >= size && ((uintptr_t)ranges[i].start & (alignment - 1)) == 0 &&
            (best == HUGE_MAX_RANGES || ranges[i].size < ranges[best].size))
            best = i;
    if (best == HUGE_MAX_RANGES)
        return NULL;
    start = ranges[best].start;
    if (ranges[best].size == size) {
        range_delete(best);
    } else {
        ranges[best].start += size;
        ranges[best].size -= size;
        range_bytes -= size;
    }
    return start;
}

/* The first `size` bytes of the range that starts at `start`; false if there are not so many. */
static bool range_take_at(char *start, size_t size)
{
    unsigned index = 0;

    while (index < range_count && ranges[index].start < start)
        index++;
    if (index == range_count || ranges[index].start != start || ranges[index].size < size)
        return false;
    if (ranges[index].size == size) {
        range_delete(index);
    } else {
        ranges[index].start += size;
        ranges[index].size -= size;
        range_bytes -= size;
    }
    return true;
}

/* B4, and the option's bound. */
static bool range_excess(void)
{
    return range_bytes > hak_options.huge_cache || range_bytes + live_bytes > live_peak + live_peak / 2 + HUGE_SPARE;
}

/* Takes ranges out of the cache that must leave: the oldest beyond the bounds or when the table is full, those ripe at `now`, or all.
 * Fills leaving[] and returns the number; call again while it is full. */
static unsigned range_take_leaving(struct huge_range *leaving, unsigned capacity, bool ripe_too, bool all, uint32_t now)
{
    unsigned count = 0, i;

    while (count < capacity && range_count &&
           (range_excess() || range_count == HUGE_MAX_RANGES)) {
        unsigned oldest = 0;
        for (i = 1; i < range_count; i++)
            if (now - ranges[i].freed_ms > now - ranges[oldest].freed_ms)
                oldest = i;
        leaving[count++] = ranges[oldest];
        range_delete(oldest);
    }
    for (i = range_count; (ripe_too || all) && i-- > 0 && count < capacity;)
        if (all || now - ranges[i].freed_ms >= (uint32_t)hak_options.purge_delay) {
            leaving[count++] = ranges[i];
            range_delete(i);
        }
    return count;
}

/* ---- Outside the lock ---- */

#define LEAVING_BATCH 16u

static size_t huge_unmap(const struct huge_range *leaving, unsigned count)
{
    size_t bytes = 0;

    for (unsigned i = 0; i < count; i++) {
        os_unmap(leaving[i].start, leaving[i].size);
        bytes += leaving[i].size;
    }
    if (bytes)
        shared_pool_uncharge_huge(bytes);
    return bytes;
}

/* Gives a range that is no block any more to the cache and unmaps what that pushes out. */
static void huge_recycle(char *start, size_t size)
{
    struct huge_range leaving[LEAVING_BATCH];
    uint32_t now = shared_pool_now_ms();
    unsigned count;

    if (size > hak_options.huge_cache / 2 || hak_options.purge_delay == 0) {
        leaving[0] = (struct huge_range){ start, size, now };
        huge_unmap(leaving, 1);
        return;
    }
    lock_acquire(&huge_lock);
    range_insert(start, size, now);
    while ((count = range_take_leaving(leaving, LEAVING_BATCH, false, false, now)) != 0) {
        lock_release(&huge_lock);
        huge_unmap(leaving, count);
        lock_acquire(&huge_lock);
    }
    lock_release(&huge_lock);
    shared_pool_schedule_purge(hak_options.purge_delay);
}

size_t huge_purge(bool all)
{
    struct huge_range leaving[LEAVING_BATCH];
    uint32_t now = shared_pool_now_ms();
    size_t bytes = 0;
    unsigned count;

    do {
        bool left;
        lock_acquire(&huge_lock);
        count = range_take_leaving(leaving, LEAVING_BATCH, true, all, now);
        live_peak = live_bytes;
        left = range_count != 0;
        lock_release(&huge_lock);
        bytes += huge_unmap(leaving, count);
        if (left)
            shared_pool_schedule_purge(hak_options.purge_delay);
    } while (count == LEAVING_BATCH);
    return bytes;
}

static char *huge_map(size_t size, size_t alignment)
{
    char *address;

    if (!shared_pool_charge_huge(size)) {
        if (huge_purge(true) == 0 || !shared_pool_charge_huge(size))
            return NULL;
    }
    address = os_map(size, base_max(alignment, os_page_size()));
    if (!address && huge_purge(true))
        address = os_map(size, base_max(alignment, os_page_size()));
    if (!address) {
        shared_pool_uncharge_huge(size);
        return NULL;
    }
    shared_pool_note_huge_mapped();
    if (hak_options.thp == OPTION_ALWAYS || (hak_options.thp == OPTION_AUTO && size >= HUGE_PAGES_MIN &&
                                              shared_pool_footprint() >= size + HUGE_PAGES_FOOTPRINT))
        os_advise_huge(address, size, true);
    else if (hak_options.thp == OPTION_NEVER)
        os_advise_huge(address, size, false);
    return address;
}

void *huge_allocate(size_t size, size_t alignment, bool *zero, struct heap *heap)
{
    struct huge *record;
    char *address;

    if (size > REQUEST_MAX - UNIT_SIZE || alignment > REQUEST_MAX / 2)
        return NULL;
    size = base_align_up(base_max(size, 1), UNIT_SIZE);
    lock_acquire(&huge_lock);
    record = huge_new_record();
    address = record ? range_take(size, alignment) : NULL;
    lock_release(&huge_lock);
    if (!record)
        return NULL;
    *zero = address == NULL;
    if (!address)
        address = huge_map(size, alignment);
    lock_acquire(&huge_lock);
    if (address) {
        allocated++;
        reused += !*zero;
        *record = (struct huge){ .address = address, .size = size, .heap = heap };
        huge_insert(record);
    } else {
        huge_drop_record(record);
    }
    lock_release(&huge_lock);
    return address;
}

size_t huge_size(const void *block, struct heap **heap)
{
    struct huge *record;
    size_t size;

    lock_acquire(&huge_lock);
    record = *huge_find(block);
    size = record ? record->size : 0;
    if (heap)
        *heap = record ? record->heap : NULL;
    lock_release(&huge_lock);
    return size;
}

bool huge_free(void *block)
{
    struct huge **link;
    size_t size = 0;

    lock_acquire(&huge_lock);
    link = huge_find(block);
    if (*link) {
        struct huge *record = huge_remove(link);
        freed++;
        size = record->size;
        huge_drop_record(record);
    }
    lock_release(&huge_lock);
    if (size == 0)
        return false;
    huge_recycle(block, size);
    return true;
}

static struct huge *huge_detach(const void *block)
{
    struct huge **link, *record = NULL;

    lock_acquire(&huge_lock);
    link = huge_find(block);
    if (*link)
        record = huge_remove(link);
    lock_release(&huge_lock);
    return record;
}

static void huge_attach(struct huge *record)
{
    lock_acquire(&huge_lock);
    huge_insert(record);
    lock_release(&huge_lock);
}

/* Grows the mapping of a detached record, into a freed range behind it if there is one; false: unchanged. */
static bool huge_grow(struct huge *record, size_t size, bool may_move)
{
    char *address;
    bool joined;

    lock_acquire(&huge_lock);
    joined = range_take_at(record->address + record->size, size - record->size);
    lock_release(&huge_lock);
    if (joined) {
        record->size = size;
        return true;
    }
    if (!shared_pool_charge_huge(size - record->size))
        return false;
    address = os_remap(record->address, record->size, size, may_move);
    if (!address) {
        shared_pool_uncharge_huge(size - record->size);
        return false;
    }
    shared_pool_note_huge_mapped();
    record->address = address;
    record->size = size;
    return true;
}

void *huge_resize(void *block, size_t size, bool may_move)
{
    struct huge *record;
    char *tail = NULL;
    size_t tail_size = 0;
    bool done = true;

    if (size > REQUEST_MAX - UNIT_SIZE)
        return NULL;
    size = base_align_up(size, UNIT_SIZE);
    record = huge_detach(block);
    if (!record)
        return NULL;
    if (size > record->size) {
        done = huge_grow(record, size, may_move);
    } else if (size < record->size) {
        tail = record->address + size;
        tail_size = record->size - size;
        record->size = size;
    }
    block = record->address;
    huge_attach(record);
    if (tail)
        huge_recycle(tail, tail_size);
    return done ? block : NULL;
}

void huge_free_heap(struct heap *heap)
{
    for (unsigned i = 0; i < HUGE_BUCKETS; i++) {
        struct huge **link, *record;
        do {
            record = NULL;
            lock_acquire(&huge_lock);
            for (link = &buckets[i]; *link; link = &(*link)->next)
                if ((*link)->heap == heap)
                    break;
            if (*link)
                record = huge_remove(link);
            lock_release(&huge_lock);
            if (record) {
                char *address = record->address;
                size_t size = record->size;
                lock_acquire(&huge_lock);
                freed++;
                huge_drop_record(record);
                lock_release(&huge_lock);
                huge_recycle(address, size);
            }
        } while (record);
    }
}

bool huge_covers(const void *address, bool live)
{
    const char *where = address;

    if (!live) {
        for (unsigned i = 0; i < range_count; i++)
            if (where >= ranges[i].start && where < ranges[i].start + ranges[i].size)
                return true;
        return false;
    }
    for (unsigned i = 0; i < HUGE_BUCKETS; i++)
        for (const struct huge *record = buckets[i]; record; record = record->next)
            if (where >= record->address && where < record->address + record->size)
                return true;
    return false;
}

void huge_usage(struct huge_usage *usage)
{
    lock_acquire(&huge_lock);
    usage->live_bytes = live_bytes;
    usage->live_blocks = live_blocks;
    usage->cached_bytes = range_bytes;
    usage->allocated = allocated;
    usage->freed = freed;
    usage->reused = reused;
    lock_release(&huge_lock);
}
