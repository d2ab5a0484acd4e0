#include "pool/huge.h"

#include "options/options.h"
#include "superslab/arrival.h"
#include "superslab/metadata.h"
#include "superslab/purge.h"
#include "superslab/shared_pool.h"

/* Under `auto`, blocks from this size on get huge pages once this much else is mapped. A huge page that is not needed
 * adds little then. */
#define HUGE_PAGES_MIN (2 * HAK_MIB)
#define HUGE_PAGES_FOOTPRINT (16 * HAK_MIB)

static struct huge *buckets[HUGE_BUCKETS];
static struct huge *unused_records;
static size_t live_bytes, live_blocks;
static uint64_t allocated, freed, reused; /* struct huge_usage */

HAK_DATA_HERE const struct huge_inside huge_inside = {
    buckets, range_cache.ranges, &range_cache.count, &range_cache.bytes, &live_bytes, &live_blocks
};

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
    live_blocks++;
    if (record->heap)
        record->heap->huge_blocks++;
}

static struct huge *huge_remove(struct huge **link)
{
    struct huge *record = *link;

    *link = record->next;
    live_bytes -= record->size;
    live_blocks--;
    if (record->heap)
        record->heap->huge_blocks--;
    arrival_huge_ends(record->address);
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

/* In libhakmem-secure a block lies at a random place below the window, within HUGE_RANDOM bytes and within this
 * share of the addresses there. So no other mapping is near. HUGE_RANDOM_TRIES places are tried. */
#define HUGE_RANDOM (4096 * HAK_GIB)
#define HUGE_RANDOM_SHARE 4u
#define HUGE_RANDOM_TRIES 4u

static char *huge_map_at_random(size_t size, size_t alignment)
{
    uintptr_t window = (uintptr_t)window_base();
    size_t room = base_min(HUGE_RANDOM, base_align_down(window / HUGE_RANDOM_SHARE, SUPERSLAB_SIZE));
    /* The kernel moves whole page tables between such places. */
    size_t place_align = size >= SUPERSLAB_SIZE ? SUPERSLAB_SIZE : UNIT_SIZE;

    /* ThreadSanitizer allows few addresses. */
    if (!HAK_SECURE || HAK_THREAD_SANITIZER || alignment > SUPERSLAB_SIZE)
        return NULL;
    for (unsigned tries = 0; size < room && tries < HUGE_RANDOM_TRIES; tries++) {
        size_t below = os_random() % (room - size) + size;
        char *address = (char *)base_align_down(window - below, base_max(alignment, place_align));
        if (os_map_at(address, size) == OS_PLACE_MAPPED)
            return address;
    }
    return NULL;
}

static char *huge_map_anywhere(size_t size, size_t alignment)
{
    char *address = huge_map_at_random(size, alignment);

    return address ? address : os_map(size, base_max(alignment, os_page_size()));
}

/* So many bytes few machines have. Whoever asks for them by mistake does not pay with all free memory. */
#define HUGE_DOUBTFUL (1024 * HAK_GIB)

static char *huge_map(size_t size, size_t alignment)
{
    char *address = size >= HUGE_DOUBTFUL ? huge_map_anywhere(size, alignment) : NULL;

    if (size >= HUGE_DOUBTFUL && !address)
        return NULL;
    if (!shared_pool_charge_huge(size)) {
        if (address)
            os_unmap(address, size);
        return NULL;
    }
    if (!address)
        address = huge_map_anywhere(size, alignment);
    if (!address && purge_could_serve(size)) {
        if (huge_purge(true))
            address = huge_map_anywhere(size, alignment);
        if (!address && purge_address_space())
            address = huge_map_anywhere(size, alignment);
    }
    if (!address) {
        shared_pool_uncharge_huge(size);
        return NULL;
    }
    shared_pool_note_huge_mapped();
    if (hak_options.thp == OPTION_ALWAYS ||
        (hak_options.thp == OPTION_AUTO && size >= HUGE_PAGES_MIN &&
         shared_pool_footprint() >= size + HUGE_PAGES_FOOTPRINT && arrival_huge_begins(address, size)))
        os_advise_huge(address, size, true);
    else if (hak_options.thp == OPTION_NEVER)
        os_advise_huge(address, size, false);
    return address;
}

/* Makes a range that was taken accessible. False: the kernel refused, and the range is unmapped. */
static bool huge_open(char *address, size_t size, bool closed)
{
    if (HAK_LIKELY(!closed) || os_protect(address, size, true))
        return true;
    os_unmap(address, size);
    shared_pool_uncharge_huge(size);
    return false;
}

/* Moves a freed range to a random place, so that pointers to the block that lay there stay without access. If the
 * kernel refuses, the range stays. */
static char *huge_move(char *address, size_t size, size_t alignment)
{
    char *place = huge_map_at_random(size, alignment);

    if (!place)
        return address;
    if (os_move(address, size, place))
        return place;
    os_unmap(place, size);
    return address;
}

void *huge_allocate(size_t size, size_t alignment, bool *zero, struct heap *heap)
{
    struct huge *record;
    char *address;
    bool reuse, closed = false;

    size = huge_size_for(size);
    if (size == 0 || alignment > REQUEST_MAX / 2)
        return NULL;
    lock_acquire(&huge_lock);
    record = huge_new_record();
    address = record ? ranges_take(size, alignment, &closed) : NULL;
    lock_release(&huge_lock);
    if (!record)
        return NULL;
    if (address && !huge_open(address, size, closed))
        address = NULL;
    if (address && HAK_SECURE)
        address = huge_move(address, size, alignment);
    *zero = address == NULL;
    reuse = address != NULL;
    if (!address)
        address = huge_map(size, alignment);
    lock_acquire(&huge_lock);
    if (address) {
        allocated++;
        reused += reuse;
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

#define GUARD_KINDS 4096u /* bytes of inaccessible pages are a multiple of this, so the kind fits below */

bool huge_get_request(const void *block, struct huge_request *request, size_t *size)
{
    struct huge *record;

    lock_acquire(&huge_lock);
    record = *huge_find(block);
    if (record) {
        uint32_t guard = record->request_guard & ~(GUARD_KINDS - 1);
        request->size =
            record->request_guard == 0 && record->request_spare == 0 ? 0 : record->size - record->request_spare;
        request->guard = guard ? record->size - guard : 0;
        request->kind = (uint8_t)(record->request_guard & (GUARD_KINDS - 1));
        *size = record->size;
    }
    lock_release(&huge_lock);
    return record != NULL;
}

void huge_set_request(const void *block, const struct huge_request *request)
{
    struct huge *record;

    lock_acquire(&huge_lock);
    record = *huge_find(block);
    if (record) {
        HAK_CHECK(record->size - request->size <= UINT32_MAX &&
                  (request->guard == 0 || record->size - request->guard <= UINT32_MAX));
        record->request_spare = (uint32_t)(record->size - request->size);
        record->request_guard = (request->guard ? (uint32_t)(record->size - request->guard) : 0) | request->kind;
    }
    lock_release(&huge_lock);
}

size_t huge_free(void *block, struct heap **heap)
{
    struct huge **link;
    size_t size = 0;

    lock_acquire(&huge_lock);
    link = huge_find(block);
    if (*link) {
        struct huge *record = huge_remove(link);
        freed++;
        size = record->size;
        if (heap)
            *heap = record->heap;
        huge_drop_record(record);
    }
    lock_release(&huge_lock);
    if (size)
        ranges_put(block, size);
    return size;
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

/* Grows the mapping of a detached record, into a freed range behind it if there is one. False: it is unchanged. */
static bool huge_grow(struct huge *record, size_t size, bool may_move)
{
    char *address;
    bool joined, closed;

    lock_acquire(&huge_lock);
    joined = ranges_take_at(record->address + record->size, size - record->size, &closed);
    lock_release(&huge_lock);
    if (joined && huge_open(record->address + record->size, size - record->size, closed)) {
        record->size = size;
        return true;
    }
    if (size >= HUGE_DOUBTFUL || !shared_pool_charge_huge(size - record->size))
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
        ranges_put(tail, tail_size);
    return done ? block : NULL;
}

static bool heap_has_huge(const struct heap *heap)
{
    bool has;

    lock_acquire(&huge_lock);
    has = heap->huge_blocks != 0;
    lock_release(&huge_lock);
    return has;
}

void huge_free_heap(struct heap *heap)
{
    for (unsigned i = 0; i < HUGE_BUCKETS && heap_has_huge(heap); i++) {
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
                ranges_put(address, size);
            }
        } while (record);
    }
}

bool huge_covers(const void *address, bool live)
{
    const char *where = address;

    if (!live) {
        for (unsigned i = 0; i < range_cache.count; i++)
            if (where >= range_cache.ranges[i].start &&
                where < range_cache.ranges[i].start + range_cache.ranges[i].size)
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
    usage->cached_bytes = range_cache.bytes;
    usage->allocated = allocated;
    usage->freed = freed;
    usage->reused = reused;
    lock_release(&huge_lock);
}
