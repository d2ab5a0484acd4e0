#include "ledger.h"

#include <stddef.h>
#include <stdio.h>

#include "memory.h"
#include "scenarios.h"

#include "pool/registry.h"
#include "pool/remote.h"
#include "pool/slab.h"
#include "scheduler.h"

enum {
    RECORDS_MOST = 8,
    WORDS_MOST = 2, /* of the classes used here */
    QUEUE_MOST = 16,
};

struct record {
    struct slab *slab;
    bool released, carving;
    uint64_t in_use[WORDS_MOST];
    /* The owner's fields after the last step, or at the release. */
    struct heap *owner;
    uint64_t local[WORDS_MOST];
    uint64_t summary;
    uint32_t used;
};

static int batch_blocks; /* that are being freed remotely */
static struct record records[RECORDS_MOST];
static unsigned record_count;

/* The value of pending_next in a released slab. */
#define RELEASED_LINK ((struct slab *)(uintptr_t)0x5a5a5a5a5a5a5a40)

void ledger_start(void)
{
    record_count = 0;
    batch_blocks = 0;
}

static struct record *record_of(const struct slab *slab)
{
    for (unsigned i = 0; i < record_count; i++)
        if (records[i].slab == slab)
            return &records[i];
    return NULL;
}

static unsigned record_number(const struct record *record)
{
    return (unsigned)(record - records);
}

static unsigned blocks_in_use(const struct record *record)
{
    unsigned count = 0;
    for (unsigned i = 0; i < WORDS_MOST; i++)
        count += base_count_bits(record->in_use[i]);
    return count;
}

static uint64_t local_word(struct slab *slab, unsigned word)
{
    return atomic_load_explicit(&slab->local[word], memory_order_relaxed);
}

static uint64_t remote_word(struct slab *slab, unsigned word)
{
    return atomic_load_explicit(&slab->remote[word], memory_order_relaxed);
}

static void note_owners_part(struct record *record)
{
    record->owner = atomic_load_explicit(&record->slab->owner, memory_order_relaxed);
    record->summary = record->slab->summary;
    record->used = record->slab->used;
    for (unsigned i = 0; i < slab_words(record->slab); i++)
        record->local[i] = local_word(record->slab, i);
}

static bool same_owners_part(const struct record *record)
{
    bool same = record->summary == record->slab->summary && record->used == record->slab->used;

    for (unsigned i = 0; i < slab_words(record->slab); i++)
        same = same && record->local[i] == local_word(record->slab, i);
    return same;
}

/* How many times the slab is in all queues together. */
static unsigned queued_times(const struct slab *slab)
{
    unsigned times = 0;

    for (struct heap *heap = registry.heaps; heap; heap = heap->next) {
        unsigned length = 0;
        for (struct slab *at = atomic_load_explicit(&heap->pending, memory_order_relaxed); at; at = at->pending_next) {
            if (at == RELEASED_LINK || length++ == QUEUE_MOST)
                scheduler_fail("H4: the queue of heap %u has no end", heap->id);
            times += at == slab;
        }
    }
    return times;
}

static unsigned queue_length(struct heap *heap)
{
    unsigned length = 0;
    for (struct slab *at = atomic_load_explicit(&heap->pending, memory_order_relaxed);
         at && at != RELEASED_LINK && length < QUEUE_MOST; at = at->pending_next)
        length++;
    return length;
}

/* ---- Blocks ---- */

static uint64_t *use_word(const void *block, uint64_t *bit)
{
    struct slab *slab = slab_of(block);
    struct record *record = record_of(slab);
    unsigned index;

    if (!record || record->released || !slab_block_index(slab, block, &index) || index / 64 >= WORDS_MOST)
        scheduler_fail("%p is no block of a slab in use", block);
    *bit = UINT64_C(1) << (index % 64);
    return &record->in_use[index / 64];
}

size_t ledger_take(struct heap *heap, unsigned class, void **out, size_t want)
{
    size_t count;
    bool zero;

    scenarios_lock(heap);
    count = heap_take_blocks(heap, class, out, want, &zero);
    for (size_t i = 0; i < count; i++) {
        uint64_t bit, *word = use_word(out[i], &bit);
        if (*word & bit)
            scheduler_fail("a block in use is given to another");
        *word |= bit;
        memory_plain(out[i], sizeof(uint64_t), true); /* the user writes to it */
    }
    scenarios_unlock(heap);
    return count;
}

void ledger_drop(const void *block)
{
    uint64_t bit, *word = use_word(block, &bit);

    if (!(*word & bit))
        scheduler_fail("the test frees a block twice");
    *word &= ~bit;
    memory_plain(block, sizeof(uint64_t), true); /* the user's last write */
}

/* ---- A slab's life: --wrap makes the linker send the pool's own calls through here ---- */

void __real_slab_carve(struct slab *slab, unsigned class, struct heap *owner);
void __wrap_slab_carve(struct slab *slab, unsigned class, struct heap *owner);
void __real_slab_set_page_map(const struct slab *slab, unsigned class);
void __wrap_slab_set_page_map(struct slab *slab, unsigned class);

static void check_untouched(const struct record *record)
{
    struct slab *slab = record->slab;
    bool same = atomic_load_explicit(&slab->remote_count, memory_order_relaxed) == 0 &&
                slab->pending_next == RELEASED_LINK && same_owners_part(record);

    for (unsigned i = 0; i < slab_words(slab); i++)
        same = same && remote_word(slab, i) == 0;
    if (!same)
        scheduler_fail("M1: slab %u was written to after its release", record_number(record));
}

/* Checks H5 at the moment of the release. */
static void note_release(struct record *record)
{
    struct slab *slab = record->slab;
    unsigned queued = queued_times(slab);

    if (record->released)
        scheduler_fail("slab %u is released twice", record_number(record));
    if (blocks_in_use(record))
        scheduler_fail("H5: slab %u is released with %u blocks in use", record_number(record), blocks_in_use(record));
    if (queued)
        scheduler_fail("H4: slab %u is released while it is in %u queues", record_number(record), queued);
    if (slab->used != 0 || atomic_load_explicit(&slab->remote_count, memory_order_relaxed) != 0)
        scheduler_fail("H5: slab %u is released with frees announced", record_number(record));
    for (unsigned i = 0; i < slab_words(slab); i++) {
        if (remote_word(slab, i) != 0)
            scheduler_fail("H5: slab %u is released with marks not collected", record_number(record));
        if (local_word(slab, i) != base_low_mask(slab->blocks - i * 64))
            scheduler_fail("H5: slab %u is released with blocks missing", record_number(record));
    }
    if (!scheduler_holds(&atomic_load(&slab->owner)->lock))
        scheduler_fail("O1: slab %u is released without its owner's lock", record_number(record));
    note_owners_part(record);
    record->released = true;
    slab->pending_next = RELEASED_LINK;
}

void __wrap_slab_set_page_map(struct slab *slab, unsigned class)
{
    struct record *record = record_of(slab);

    if (class == CLASS_NONE) {
        if (!record)
            scheduler_fail("a slab nobody carved is released");
        note_release(record);
    }
    __real_slab_set_page_map(slab, class);
}

void __wrap_slab_carve(struct slab *slab, unsigned class, struct heap *owner)
{
    struct record *record = record_of(slab);

    if (record) {
        if (!record->released)
            scheduler_fail("slab %u is carved while it is in use", record_number(record));
        check_untouched(record);
    } else {
        if (record_count == RECORDS_MOST || (size_classes[class].blocks + 63) / 64 > WORDS_MOST)
            scheduler_fail("the ledger is too small");
        record = &records[record_count++];
    }
    *record = (struct record){ .slab = slab, .carving = true };
    __real_slab_carve(slab, class, owner);
    note_owners_part(record);
    record->carving = false;
}

/* ---- The shared pool: the model does not look into it. Its lock orders what the heaps do before and after. ---- */

size_t __real_shared_pool_acquire(unsigned units, unsigned align_units, size_t count, enum pool_use use,
                                  struct slab **slabs);
size_t __wrap_shared_pool_acquire(unsigned units, unsigned align_units, size_t count, enum pool_use use,
                                  struct slab **slabs);
size_t __real_shared_pool_acquire_touched(unsigned units, unsigned align_units, size_t count, struct slab **slabs);
size_t __wrap_shared_pool_acquire_touched(unsigned units, unsigned align_units, size_t count, struct slab **slabs);
void __real_shared_pool_release(struct slab *slabs);
void __wrap_shared_pool_release(struct slab *slabs);

static size_t note_acquired(struct slab *const *slabs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        memory_note_store(&slabs[i]->state, sizeof slabs[i]->state);
        memory_note_store(&slabs[i]->class, sizeof slabs[i]->class);
    }
    memory_leave(&shared_pool.lock);
    return count;
}

size_t __wrap_shared_pool_acquire(unsigned units, unsigned align_units, size_t count, enum pool_use use,
                                  struct slab **slabs)
{
    memory_enter(&shared_pool.lock);
    return note_acquired(slabs, __real_shared_pool_acquire(units, align_units, count, use, slabs));
}

size_t __wrap_shared_pool_acquire_touched(unsigned units, unsigned align_units, size_t count, struct slab **slabs)
{
    memory_enter(&shared_pool.lock);
    return note_acquired(slabs, __real_shared_pool_acquire_touched(units, align_units, count, slabs));
}

void __wrap_shared_pool_release(struct slab *slabs)
{
    memory_enter(&shared_pool.lock);
    __real_shared_pool_release(slabs);
    for (struct slab *slab = slabs; slab; slab = slab->next) {
        memory_note_store(&slab->state, sizeof slab->state);
        memory_note_store(&slab->owner, sizeof slab->owner);
    }
    memory_leave(&shared_pool.lock);
}

/* ---- Names ---- */

struct part {
    size_t offset, size;
    const char *name;
};

static bool describe_part(const char *base, const struct part *parts, size_t count, const char *what, unsigned number,
                          const char *address, char *name, size_t size)
{
    for (size_t i = 0; i < count; i++)
        if ((size_t)(address - base) - parts[i].offset < parts[i].size) {
            snprintf(name, size, "%s %u.%s", what, number, parts[i].name);
            return true;
        }
    return false;
}

#define PART(type, member) { offsetof(type, member), sizeof(__typeof__(((type *)0)->member)), #member }

void ledger_describe(const void *address, char *name, size_t size)
{
    static const struct part slab_parts[] = {
        PART(struct slab, owner), PART(struct slab, next), PART(struct slab, prev), PART(struct slab, start),
        PART(struct slab, summary), PART(struct slab, used), PART(struct slab, blocks), PART(struct slab, class),
        PART(struct slab, state), PART(struct slab, zero), PART(struct slab, dense),
        PART(struct slab, scrubbed), PART(struct slab, local), PART(struct slab, remote_count),
        PART(struct slab, pending_next), PART(struct slab, remote),
    };
    static const struct part heap_parts[] = {
        PART(struct heap, lock), PART(struct heap, state), PART(struct heap, kind), PART(struct heap, list),
        PART(struct heap, cache_purged), PART(struct heap, body_purged), PART(struct heap, slabs),
        PART(struct heap, after), PART(struct heap, before), PART(struct heap, full), PART(struct heap, epoch),
        PART(struct heap, pending), PART(struct heap, pending_count), PART(struct heap, seen_epoch),
        PART(struct heap, seen_time),
    };
    static const struct part registry_parts[] = {
        PART(struct registry, lock), PART(struct registry, lists), PART(struct registry, orphan_count),
        PART(struct registry, live_threads), PART(struct registry, settling), PART(struct registry, trimming),
        PART(struct registry, purging),
    };
    static const struct part signal_parts[] = {
        PART(struct heap_signals, several), PART(struct heap_signals, warm_share),
        PART(struct heap_signals, cache_share), PART(struct heap_signals, queues),
    };

    for (unsigned i = 0; i < record_count; i++)
        if (describe_part((const char *)records[i].slab, slab_parts, sizeof slab_parts / sizeof *slab_parts, "slab", i,
                          address, name, size))
            return;
    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        if (describe_part((const char *)heap, heap_parts, sizeof heap_parts / sizeof *heap_parts, "heap", heap->id,
                          address, name, size))
            return;
    if (describe_part((const char *)&registry, registry_parts, sizeof registry_parts / sizeof *registry_parts,
                      "registry", 0, address, name, size))
        return;
    if (address == &hak_window)
        snprintf(name, size, "hak_window");
    if (address == &hak_units)
        snprintf(name, size, "hak_units");
    if (address == &shared_pool.lock)
        snprintf(name, size, "pool.lock");
    if (address == &shared_pool.next_purge_ms)
        snprintf(name, size, "shared_pool.next_purge_ms");
    describe_part((const char *)&heap_signals, signal_parts, sizeof signal_parts / sizeof *signal_parts,
                  "heap_signals", 0, address, name, size);
}

/* ---- Checks ---- */

void ledger_start_watch(void)
{
    for (unsigned i = 0; i < record_count; i++)
        note_owners_part(&records[i]);
}

/* Checks H1 and O2: what the last step did to a slab in use. */
static void check_owners_part(struct record *record)
{
    struct heap *owner = atomic_load_explicit(&record->slab->owner, memory_order_relaxed);

    if (owner != record->owner && !(scheduler_holds(&owner->lock) && scheduler_holds(&record->owner->lock)))
        scheduler_fail("O2: slab %u changes its owner without both locks", record_number(record));
    if (!same_owners_part(record) && !scheduler_holds(&owner->lock))
        scheduler_fail("H1: slab %u is changed without its owner's lock", record_number(record));
    note_owners_part(record);
}

void ledger_watch(void)
{
    for (unsigned i = 0; i < record_count; i++) {
        unsigned queued = queued_times(records[i].slab);
        if (queued > 1)
            scheduler_fail("H4: slab %u is in two queues", i);
        if (queued && records[i].released)
            scheduler_fail("M1: slab %u is queued after its release", i);
        if (!records[i].released && !records[i].carving)
            check_owners_part(&records[i]);
    }
    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        if ((int32_t)(atomic_load(&heap->pending_count) - queue_length(heap)) < 0)
            scheduler_fail("M3: heap %u counts %u slabs pending and has %u", heap->id,
                           atomic_load(&heap->pending_count), queue_length(heap));
}

/* O5, for a heap whose locks are free. */
static void check_life(struct heap *heap)
{
    unsigned state = atomic_load(&heap->state), kind = atomic_load(&heap->kind), list = heap->list;
    bool served = kind == HEAP_HOUSE || state == HEAP_LIVE;

    if (list != (state == HEAP_UNUSED ? LIST_UNUSED : served ? LIST_SERVED : LIST_LEFT) &&
        !(list == LIST_SETTLED && !served && state == HEAP_ORPHAN))
        scheduler_fail("O5: heap %u has state %u and is in list %u", heap->id, state, list);
    if (state == HEAP_UNUSED && (atomic_load(&heap->slabs) || atomic_load(&heap->pending)))
        scheduler_fail("O5: heap %u is unused and owns slabs", heap->id);
}

void ledger_check_settled(void)
{
    ledger_watch();
    for (unsigned i = 0; i < record_count; i++) {
        struct slab *slab = records[i].slab;
        bool announced = atomic_load(&slab->remote_count) != 0, queued = queued_times(slab) != 0, marked = false;
        for (unsigned word = 0; word < slab_words(slab); word++)
            marked |= remote_word(slab, word) != 0;
        if (records[i].released)
            check_untouched(&records[i]);
        else if (announced && !queued)
            scheduler_fail("H4: slab %u has frees announced and is in no queue: its blocks are lost", i);
        else if (!announced && queued)
            scheduler_fail("H4: slab %u is in a queue without frees announced", i);
        else if (!announced && marked)
            scheduler_fail("H3: slab %u has marks that are not announced: its blocks are lost", i);
    }
    for (struct heap *heap = registry.heaps; heap; heap = heap->next) {
        unsigned length = queue_length(heap);
        check_life(heap);
        if (atomic_load(&heap->pending_count) != length)
            scheduler_fail("heap %u counts %u slabs pending and has %u", heap->id, atomic_load(&heap->pending_count),
                           length);
        if (length && atomic_load(&shared_pool.next_purge_ms) == 0)
            scheduler_fail("G2: heap %u has %u slabs pending, and no purge is requested", heap->id, length);
        if (length && atomic_load(&heap->state) != HEAP_LIVE)
            scheduler_fail("O4: the queue of orphan %u has %u slabs that nobody will drain", heap->id, length);
        if (lock_is_held(&heap->lock))
            scheduler_fail("the lock of heap %u is held by nobody", heap->id);
    }
}

/* H6: the slab is once in the list where it belongs. */
static bool in_its_list(const struct slab *slab)
{
    struct heap *owner = atomic_load(&((struct slab *)(uintptr_t)slab)->owner);
    unsigned found = 0, elsewhere = 0;

    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        for (unsigned class = 0; class < CLASS_COUNT; class++) {
            const struct slab_list *list = class ? &heap->body->available[class] : &heap->full, *right;
            unsigned length = 0;
            right = slab->summary ? &owner->body->available[slab->class] : &owner->full;
            for (const struct slab *at = list->head, *before = NULL; at; before = at, at = at->next) {
                if (at->prev != before || length++ == RECORDS_MOST || (!at->next && list->tail != at))
                    scheduler_fail("H6: a list of heap %u is broken", heap->id);
                found += at == slab && list == right;
                elsewhere += at == slab && list != right;
            }
        }
    return found == 1 && elsewhere == 0;
}

void ledger_check_drained(void)
{
    for (unsigned i = 0; i < record_count; i++) {
        struct slab *slab = records[i].slab;
        unsigned in_use = blocks_in_use(&records[i]);
        if (records[i].released) {
            check_untouched(&records[i]);
            continue;
        }
        if (in_use == 0)
            scheduler_fail("H5: slab %u has no block in use and is not released", i);
        if (slab->used != in_use)
            scheduler_fail("H1: slab %u counts %u blocks in use of %u", i, slab->used, in_use);
        for (unsigned word = 0; word < slab_words(slab); word++) {
            uint64_t all = base_low_mask(slab->blocks - word * 64);
            if (local_word(slab, word) != (all & ~records[i].in_use[word]))
                scheduler_fail("H2: slab %u has a free block unknown or a used one free", i);
            if (((slab->summary >> word) & 1) != (local_word(slab, word) != 0))
                scheduler_fail("H2: the summary of slab %u is wrong", i);
        }
        if (atomic_load(&slab->state) != SLAB_ACTIVE || !in_its_list(slab))
            scheduler_fail("H6: slab %u is not in the list where it belongs", i);
    }
}

void ledger_note_batch(int more) { batch_blocks += more; }

void ledger_check_child(void)
{
    unsigned lost = 0;

    for (struct heap *heap = registry.heaps; heap; heap = heap->next) {
        if (atomic_load(&heap->state) == HEAP_LOST)
            scheduler_fail("O7: heap %u is lost in the child", heap->id);
        if (lock_is_held(&heap->lock))
            scheduler_fail("L3: the lock of heap %u is held in the child", heap->id);
        check_life(heap);
        queue_length(heap);
    }
    for (unsigned i = 0; i < record_count; i++) {
        struct slab *slab = records[i].slab;
        unsigned in_use = blocks_in_use(&records[i]), free = 0;
        if (records[i].released) {
            check_untouched(&records[i]);
            continue;
        }
        for (unsigned word = 0; word < slab_words(slab); word++) {
            uint64_t local = local_word(slab, word);
            free += base_count_bits(local);
            if (local & records[i].in_use[word])
                scheduler_fail("H2: slab %u has a used block free in the child", i);
            if (((slab->summary >> word) & 1) != (local != 0))
                scheduler_fail("H2: the summary of slab %u is wrong in the child", i);
        }
        if (slab->used + free < slab->blocks || slab->used < in_use)
            scheduler_fail("H1: slab %u counts %u blocks in use in the child", i, slab->used);
        if (queued_times(slab) > 1)
            scheduler_fail("H4: slab %u is in two queues in the child", i);
        if (atomic_load(&slab->remote_count) != 0 && !queued_times(slab))
            scheduler_fail("H4: slab %u has frees announced and is in no queue in the child", i);
        if (!in_its_list(slab))
            scheduler_fail("H6: slab %u is not in the list where it belongs in the child", i);
        if (!queued_times(slab))
            lost += slab->used - in_use;
    }
    if (lost > (unsigned)batch_blocks)
        scheduler_fail("%u blocks are lost in the child, of %d that were being freed", lost, batch_blocks);
}

void ledger_free_all(void)
{
    for (unsigned i = 0; i < record_count; i++) {
        struct slab *slab = records[i].slab;
        for (unsigned index = 0; !records[i].released && index < slab->blocks; index++) {
            void *block = slab->start + index * class_size(slab->class);
            struct heap *owner = atomic_load(&slab->owner);
            if (!((records[i].in_use[index / 64] >> (index % 64)) & 1))
                continue;
            ledger_drop(block);
            scenarios_lock(owner);
            if (heap_return_blocks(owner, slab->class, &block, 1, "mf2") != 0)
                scheduler_fail("an owner's own block is not its own");
            scenarios_unlock(owner);
        }
    }
}

void ledger_check_released(void)
{
    for (unsigned i = 0; i < record_count; i++) {
        if (!records[i].released)
            scheduler_fail("H5: slab %u is not released at the end", i);
        check_untouched(&records[i]);
    }
}
