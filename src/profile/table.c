#include "profile/table.h"

#include "options/options.h"
#include "os/os.h"
#include "os/outside.h"
#include "profile/draw.h"
#include "pool/heap.h"

#define FIRST_CAPACITY 512u /* places of a table at first; a power of two, as all capacities */
#define CHUNK_BYTES (256 * HAK_KIB - sizeof(struct table_map))

HAK_DATA_HERE struct lock profile_lock = LOCK_INIT(LOCK_RANK_PROFILE);
HAK_DATA_HERE struct table_memory table_memory;

/* Open addressing with linear probing, at most half full. */
static struct record *records;
static size_t record_capacity, record_count;
HAK_DATA_HERE struct record_table profile_records;
HAK_DATA_HERE _Atomic size_t table_elsewhere;

static struct site **site_index;
static size_t site_capacity;
HAK_DATA_HERE struct site_list profile_sites;
HAK_DATA_HERE struct site_size_list profile_sizes;
HAK_DATA_HERE struct label_sets label_sets;
HAK_DATA_HERE struct table_peak table_peak;
static char *chunk_next, *chunk_end;

/* ---- Memory; under profile_lock ---- */

/* At least `size` zeroed bytes. */
static void *map_take(size_t size)
{
    struct table_map *map;

    size = base_align_up(sizeof *map + size, os_page_size());
    map = os_map(size, os_page_size());
    if (!map)
        return NULL;
    os_name(map, size, "hakmem profile");
    map->bytes = size;
    map->next = table_memory.maps;
    table_memory.maps = map;
    atomic_fetch_add_explicit(&table_memory.bytes, size, memory_order_relaxed);
    return map->memory;
}

/* `memory` is what map_take returned, or NULL. */
static void map_drop(void *memory)
{
    struct table_map **place = &table_memory.maps, *map;

    if (!memory)
        return;
    while ((*place)->memory != memory)
        place = &(*place)->next;
    map = *place;
    *place = map->next;
    atomic_fetch_sub_explicit(&table_memory.bytes, map->bytes, memory_order_relaxed);
    os_unmap(map, map->bytes);
}

size_t table_bytes(void) { return atomic_load_explicit(&table_memory.bytes, memory_order_relaxed); }

/* ---- Sites; under profile_lock ---- */

static uint64_t hash_word(uint64_t word) { return (word ^ (word >> 29)) * UINT64_C(0x9e3779b97f4a7c15); }

static uint64_t hash_frames(const uintptr_t *frames, unsigned count, const struct label_set *labels)
{
    uint64_t hash = labels ? hash_word((uintptr_t)labels + count) : count;

    for (unsigned i = 0; i < count; i++)
        hash = hash_word(hash + frames[i]);
    return hash ^ (hash >> 32);
}

void *table_store(size_t size)
{
    char *taken;

    if ((size_t)(chunk_end - chunk_next) < size) {
        chunk_next = map_take(CHUNK_BYTES);
        chunk_end = chunk_next ? chunk_next + CHUNK_BYTES : NULL;
        if (!chunk_next)
            return NULL;
    }
    taken = chunk_next;
    chunk_next += size;
    return taken;
}

static struct site **site_place(struct site **index, size_t capacity, uint64_t hash, const uintptr_t *frames,
                                unsigned count, const struct label_set *labels)
{
    size_t at = hash & (capacity - 1);

    for (; index[at]; at = (at + 1) & (capacity - 1))
        if (index[at]->hash == hash && index[at]->frame_count == count && index[at]->labels == labels &&
            __builtin_memcmp(index[at]->frames, frames, count * sizeof *frames) == 0)
            break;
    return &index[at];
}

static bool site_index_grow(void)
{
    size_t capacity = site_capacity ? site_capacity * 2 : FIRST_CAPACITY;
    struct site **index = map_take(capacity * sizeof(struct site *));

    if (!index)
        return false;
    for (struct site *site = profile_sites.first; site; site = site->next)
        *site_place(index, capacity, site->hash, site->frames, site->frame_count, site->labels) = site;
    map_drop(site_index);
    site_index = index;
    site_capacity = capacity;
    return true;
}

static struct site *site_make(uint64_t hash, const uintptr_t *frames, unsigned count, const struct label_set *labels)
{
    struct site *site = table_store(sizeof *site + count * sizeof *frames);

    if (!site)
        return NULL;
    site->hash = hash;
    site->labels = labels;
    site->frame_count = count;
    __builtin_memcpy(site->frames, frames, count * sizeof *frames);
    /* Release: linked when it is whole, as readers in other processes take no lock. */
    __atomic_store_n(profile_sites.last ? &profile_sites.last->next : &profile_sites.first, site, __ATOMIC_RELEASE);
    profile_sites.last = site;
    profile_sites.count++;
    profile_sites.labelled += labels && labels != label_sets.lost;
    return site;
}

struct site *table_site(const uintptr_t *frames, unsigned count, const struct label_set *labels)
{
    uint64_t hash = hash_frames(frames, count, labels);
    struct site *site = NULL, **place;

    lock_acquire(&profile_lock);
    if (profile_sites.count * 2 < site_capacity || site_index_grow()) {
        place = site_place(site_index, site_capacity, hash, frames, count, labels);
        if (!*place && labels && profile_sites.labelled >= LABELLED_SITES_MOST) {
            atomic_store_explicit(&label_sets.full, true, memory_order_relaxed);
            labels = label_sets.lost;
            hash = hash_frames(frames, count, labels);
            place = site_place(site_index, site_capacity, hash, frames, count, labels);
        }
        if (!*place)
            *place = site_make(hash, frames, count, labels);
        site = *place;
    }
    lock_release(&profile_lock);
    return site;
}

/* ---- Sizes of a site; under profile_lock ---- */

/* The place of blocks of the size among the site's sizes; NULL: there is none. */
static struct site_size *size_find(const struct site *site, uint64_t size)
{
    struct site_size *found = site->sizes;

    while (found && found->size != size)
        found = found->other;
    return found;
}

/* The size that a record's block counts as. Where every block is recorded, for leaks, sizes would only take time. */
static uint64_t size_wanted(const struct record *record)
{
    return hak_options.record_all ? SIZE_ANY : table_size_of(record->size);
}

/* Where a record's block counts (R8); NULL: there is no place yet, which holds for no record in the table. */
static struct site_size *size_of(const struct record *record)
{
    struct site_size *found = size_find(record->site, size_wanted(record));

    return found ? found : size_find(record->site, SIZE_ANY);
}

/* As size_of, but makes the place if there is none. NULL: memory is out. */
static struct site_size *size_make(const struct record *record)
{
    struct site *site = record->site;
    struct site_size *made = size_of(record);

    if (made)
        return made;
    made = table_store(sizeof *made);
    if (!made)
        return NULL;
    made->site = site;
    made->size = site->size_count + 1 < SIZES_MOST ? size_wanted(record) : SIZE_ANY;
    made->other = site->sizes;
    site->sizes = made;
    site->size_count++;
    /* Release: as for a site. */
    __atomic_store_n(profile_sizes.last ? &profile_sizes.last->next : &profile_sizes.first, made, __ATOMIC_RELEASE);
    profile_sizes.last = made;
    profile_sizes.count++;
    return made;
}

/* ---- Records; under profile_lock ---- */

static size_t record_home(uintptr_t address, size_t capacity)
{
    return (size_t)(((uint64_t)address >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 24) & (capacity - 1);
}

static struct record *record_place(struct record *table, size_t capacity, uintptr_t address)
{
    size_t at = record_home(address, capacity);

    while (table[at].address && table[at].address != address)
        at = (at + 1) & (capacity - 1);
    return &table[at];
}

static bool records_grow(void)
{
    size_t capacity = record_capacity ? record_capacity * 2 : FIRST_CAPACITY;
    struct record *table = map_take(capacity * sizeof *table);

    if (!table)
        return false;
    for (size_t i = 0; i < record_capacity; i++)
        if (records[i].address)
            *record_place(table, capacity, records[i].address) = records[i];
    map_drop(records);
    records = table;
    record_capacity = capacity;
    profile_records = (struct record_table){ table, capacity };
    return true;
}

static void sums_move(struct site_sums *sums, uint64_t weight, uint64_t bytes, bool add)
{
    sums->objects += add ? weight : 0 - weight;
    sums->bytes += add ? weight * bytes : 0 - weight * bytes;
}

/* Under profile_lock. */
static void peak_rises(uint64_t bytes, uint64_t now_ms)
{
    table_peak.sampled = table_peak.live;
    table_peak.bytes = bytes;
    table_peak.least = bytes - base_min(bytes, table_peak.unseen);
    table_peak.epoch++;
    table_peak.at_ms = now_ms;
}

void table_note_live(uint64_t bytes, uint64_t now_ms)
{
    lock_acquire(&profile_lock);
    if (bytes > table_peak.bytes)
        peak_rises(bytes, now_ms);
    lock_release(&profile_lock);
}

uint64_t table_peak_bytes(void)
{
    uint64_t bytes;

    lock_acquire(&profile_lock);
    bytes = table_peak.bytes;
    lock_release(&profile_lock);
    return bytes;
}

/* While a profile was off, blocks were allocated and freed unseen. */
void table_begin_peak(uint64_t unseen, bool every)
{
    lock_acquire(&profile_lock);
    table_peak.unseen = record_capacity ? UINT64_MAX : unseen;
    table_peak.by_samples = every;
    lock_release(&profile_lock);
}

/* R6: the record's block, which counts at `size`, comes into use (add), or goes out of use. */
static void in_use_move(const struct record *record, struct site_size *size, bool add)
{
    struct site *site = record->site;
    uint64_t bytes = record->weight * record->size;

    site->peak = table_at_peak(site);
    size->peak = table_at_peak(size);
    site->peak_epoch = size->peak_epoch = table_peak.epoch;
    sums_move(&site->in_use, record->weight, record->size, add);
    sums_move(&size->in_use, record->weight, record->size, add);
    table_peak.live += add ? bytes : 0 - bytes;
    if (table_peak.by_samples && table_peak.live > table_peak.sampled &&
        weight_round(table_peak.live) >= table_peak.bytes)
        peak_rises(weight_round(table_peak.live), record->born_ms);
}

static bool record_add(const struct record *record)
{
    struct record *place;

    if (record_count * 2 >= record_capacity && !records_grow())
        return false;
    place = record_place(records, record_capacity, record->address);
    HAK_ASSERT(place->address == 0); /* R2 */
    *place = *record;
    record_count++;
    if (record->foreign)
        atomic_fetch_add_explicit(&table_elsewhere, 1, memory_order_relaxed);
    if (record->heap)
        atomic_fetch_add_explicit(&record->heap->sampled, 1, memory_order_relaxed);
    return true;
}

/* Empties a place and moves later records back into the hole, so that no search ends early. */
static void record_drop(struct record *place)
{
    size_t hole = (size_t)(place - records), at = hole, mask = record_capacity - 1;

    record_count--;
    if (place->foreign)
        atomic_fetch_sub_explicit(&table_elsewhere, 1, memory_order_relaxed);
    if (place->heap)
        atomic_fetch_sub_explicit(&place->heap->sampled, 1, memory_order_relaxed);
    for (;;) {
        at = (at + 1) & mask;
        if (!records[at].address)
            break;
        if (((at - record_home(records[at].address, record_capacity)) & mask) >= ((at - hole) & mask)) {
            records[hole] = records[at];
            hole = at;
        }
    }
    records[hole].address = 0;
}

/* The bucket of a number: the first for 0, then one for each power of two, the last of `most` for all above. */
static unsigned bucket_of(uint64_t number, unsigned most)
{
    return number ? (unsigned)base_min(base_high_bit(number) + 1, most - 1) : 0;
}

/* R1: the block is freed. */
static void record_account_end(const struct record *record, uint64_t now_ms, struct caller by)
{
    uint64_t lived = now_ms > record->born_ms ? now_ms - record->born_ms : 0;
    struct site_size *size = size_of(record);

    if (HAK_LIKELY(size != NULL)) /* R8: table_insert made it */
        in_use_move(record, size, false);
    sums_move(&record->site->lifetimes[bucket_of(lived, LIFETIME_BUCKETS)], record->weight, lived, true);
    if (record->thread != 0 && record->thread == by.thread)
        record->site->own_freed[bucket_of(by.calls - record->calls, OWN_BUCKETS)] += record->weight;
}

bool table_insert(const struct record *record)
{
    struct site_size *size;
    bool done;

    lock_acquire(&profile_lock);
    size = size_make(record);
    done = size && record_add(record);
    if (done) {
        sums_move(&record->site->allocated, record->weight, record->size, true);
        sums_move(&size->allocated, record->weight, record->size, true);
        in_use_move(record, size, true);
    }
    lock_release(&profile_lock);
    if (done)
        outside_allocated((const void *)record->address, record->size, record->weight * record->size / WEIGHT_ONE);
    return done;
}

static bool take_out(const void *address, struct record *taken)
{
    struct record *place;

    if (record_count == 0)
        return false;
    place = record_place(records, record_capacity, (uintptr_t)address);
    if (!place->address)
        return false;
    *taken = *place;
    record_drop(place);
    return true;
}

bool table_remove(const void *address, uint64_t now_ms, struct caller by, struct record *removed)
{
    bool found;

    lock_acquire(&profile_lock);
    found = take_out(address, removed);
    if (found)
        record_account_end(removed, now_ms, by);
    lock_release(&profile_lock);
    if (found)
        outside_freed(address);
    return found;
}

bool table_take_out(const void *address, struct record *taken)
{
    bool found;

    lock_acquire(&profile_lock);
    found = take_out(address, taken);
    lock_release(&profile_lock);
    return found;
}

/* There is room, unless other records came meanwhile and the table could not grow: then the record ends here (R1). */
void table_put_back(const struct record *record)
{
    lock_acquire(&profile_lock);
    if (!record_add(record))
        record_account_end(record, record->born_ms, (struct caller){ 0 });
    lock_release(&profile_lock);
}

void table_end(const struct record *record, uint64_t now_ms, struct caller by)
{
    lock_acquire(&profile_lock);
    record_account_end(record, now_ms, by);
    lock_release(&profile_lock);
    outside_freed((const void *)record->address);
}

void table_remove_heap(struct heap *heap, uint64_t now_ms)
{
    lock_acquire(&profile_lock);
    for (size_t i = 0; i < record_capacity && heap->sampled;) {
        if (records[i].address && records[i].heap == heap) {
            record_account_end(&records[i], now_ms, (struct caller){ 0 });
            outside_freed((const void *)records[i].address);
            record_drop(&records[i]); /* may move another record to place i */
        } else {
            i++;
        }
    }
    lock_release(&profile_lock);
}

size_t table_records(void)
{
    size_t count;

    lock_acquire(&profile_lock);
    count = record_count;
    lock_release(&profile_lock);
    return count;
}
