#include "harden/bins.h"

#include <string.h>

#include "base/format.h"
#include "harden/seal.h"
#include "os/os.h"
#include "pool/misuse.h"
#include "pool/remote.h"
#include "pool/slab.h"

/* A ring begins with room for RING_FIRST_BYTES, but for at most RING_FIRST_MOST blocks, and at most this share of the
 * bytes of all the thread's rings. */
#define RING_FIRST_BYTES 16384u
#define RING_FIRST_MOST 64u
#define RING_FIRST_SHARE 16u
/* A thread's rings may have RINGS_BYTES, or an eighth of its heap's slabs if that is more. The rings of all threads
 * share RINGS_TOTAL, but each thread may have RINGS_LEAST. */
#define RINGS_BYTES (256 * HAK_KIB)
#define RINGS_TOTAL (32 * HAK_MIB)
#define RINGS_LEAST (RINGS_BYTES / 16)
/* Entries that move at a time: at least half of the longest ring. */
#define RING_MOST 128u

HAK_DATA_HERE const struct ring_row ring_rows[CLASS_COUNT] = {
#define RING_ROW(size_, units, cached) [CLASS_##size_] = { HAK_SECURE ? (int)CLASS_##size_##_RING : \
    (int)CLASS_##size_##_BASE + 1, RING_LENGTH(cached) - 1, (size_), (uint16_t)(UNIT_SIZE - (size_) - (size_)) },
    SLAB_CLASS_TABLE(RING_ROW)
#undef RING_ROW
};

static unsigned ring_length(unsigned class) { return ring_rows[class].mask + 1u; }

static void **ring_entry(unsigned class, void **slots, unsigned number)
{
    return &slots[ring_rows[class].first + (number & ring_rows[class].mask)];
}

/* The quarantine is at most half of the ring, and at most what the option says. */
static void ring_set_limit(struct bins *bins, unsigned class, unsigned limit)
{
    struct ring *ring = &bins->rings[class];

    bins->bytes += ((size_t)limit - ring->limit) * class_size(class);
    ring->limit = (uint16_t)limit;
    ring->keep = (uint16_t)base_min(limit / 2, harden_keep_most(class));
}

/* How many blocks a full ring gives back, and how many a ring gets that has none for malloc: half of the entries before
 * its quarantine. Then it is as far from being full as from having none. */
static unsigned ring_part(const struct ring *ring) { return (unsigned)base_max((ring->limit - ring->keep) / 2u, 1); }

/* Bytes that the rings of a thread may have: its share among all threads. */
static size_t rings_most(const struct heap *heap)
{
    size_t share = RINGS_TOTAL / KEPT_TOTAL * atomic_load_explicit(&heap_signals.kept_share, memory_order_relaxed);

    return base_max(base_max(base_min(RINGS_BYTES, share), RINGS_LEAST), bins_share(heap));
}

static void ring_begin(struct bins *bins, const struct heap *heap, unsigned class)
{
    unsigned most = (unsigned)base_min(ring_length(class), RING_FIRST_MOST);
    size_t bytes;

    bins_begin(bins);
    if (bins->rings[class].limit != 0)
        return;
    bytes = base_min(RING_FIRST_BYTES, rings_most(heap) / RING_FIRST_SHARE);
    ring_set_limit(bins, class, (unsigned)base_max(base_min(bytes / class_size(class), most), 2));
}

/* Doubles the ring's limit if the thread's bounds allow it. Halves it if the thread has more than twice its share,
 * because there are more threads now. False: it did not grow. */
static bool ring_grow(struct bins *bins, const struct heap *heap, unsigned class)
{
    unsigned limit = bins->rings[class].limit;
    size_t most = rings_most(heap);

    if (HAK_UNLIKELY(bins->bytes > 2 * most) && limit > 2)
        ring_set_limit(bins, class, limit / 2);
    if (2 * limit > ring_length(class) || bins->bytes + (size_t)limit * class_size(class) > most)
        return false;
    ring_set_limit(bins, class, 2 * limit);
    return true;
}

/* Counts hits. The fast paths leave no trace but the ring's ends, so they took or put at least the difference since the
 * ring's last slow call. Under the heap's lock. */
static void ring_note_hits(struct bins *bins, struct heap *heap, unsigned class)
{
    unsigned count = ring_count(&bins->rings[class]), seen = bins->seen[class];

    if (count <= seen)
        heap->classes[class].malloc_hits += seen - count;
    else
        heap->classes[class].free_hits += count - seen;
}

/* ---- Leaving ---- */

static HAK_COLD void report_written(char *block, size_t size)
{
    size_t at = seal_first_written(block, size);
    char words[160];

    base_format(words, sizeof words,
                "written while it was free, at byte %zu (now 0x%02x); found as it leaves the quarantine", at,
                (unsigned)(unsigned char)block[at]);
    misuse_report_words("free", block, words);
    memset(block, 0, size);
}

/* Checks blocks that leave: the next check may be late, or never come if their slab is given back. */
static void bins_look(void *const *blocks, unsigned count, size_t size)
{
    for (unsigned i = 0; i < count; i++)
        if (HAK_UNLIKELY(!seal_is_zero(blocks[i], size)))
            report_written(blocks[i], size);
}

/* Looks at the tail words of blocks in use at a random place in the slab of `block`. The slab stays because the thread
 * has that block. So a write past a block is found even if neither the block nor a neighbour is freed. Looks at no more
 * than `moved` blocks: one for each call. */
static void bins_patrol(struct bins *bins, const char *block, unsigned class, unsigned moved, const char *function)
{
    struct slab *slab = slab_of(block);
    unsigned most = (unsigned)base_min(HARDEN_PATROL, moved), number, first;
    size_t size = class_size(class);
    uint64_t used;

    if (most == 0 || !seal_in_tail(class))
        return;
    number = bins_chance(bins, slab_words(slab));
    first = most < 64 ? bins_chance(bins, 64) : 0;
    used = ~(atomic_load_explicit(&slab->local[number], memory_order_relaxed) |
             atomic_load_explicit(&slab->remote[number], memory_order_relaxed)) &
           base_low_mask(slab->blocks - number * 64);
    if ((used & ~base_low_mask(first)) != 0)
        used &= ~base_low_mask(first);
    for (; used && most; used &= used - 1, most--) {
        const char *at = slab->start + ((size_t)number * 64 + base_low_bit(used)) * size;
        if (HAK_LIKELY(seal_neighbour_wrong(at, seal_tail_word(at, size)) == 0))
            continue;
        if (atomic_load_explicit(&misuse_culprit, memory_order_relaxed) == 0) /* one line is enough */
            misuse_report_words(function, at, "written at or past its end; found by a patrol");
        return;
    }
}

/* V10. Returns the `part` entries (at least one) that waited longest to their slabs. */
static void bins_leave(struct bins *bins, void **slots, struct heap *heap, unsigned class, unsigned part)
{
    struct ring *ring = &bins->rings[class];
    unsigned tail = ring->tail, i = 0;
    void *const *entries = slots + ring_rows[class].first;
    size_t mask = ring_rows[class].mask, remote;
    void *blocks[RING_MOST];

    do
        blocks[i] = entries[(tail + i) & mask];
    while (++i < part);
    bins_look(blocks, part, class_size(class));
    bins_patrol(bins, blocks[0], class, part, "free");
    lock_acquire(&heap->lock);
    ring_note_hits(bins, heap, class);
    __atomic_store_n(&ring->tail, (uint16_t)(tail + part), __ATOMIC_RELEASE);
    bins->seen[class] = (uint16_t)ring_count(ring);
    remote = heap_return_blocks(heap, class, blocks, part, "free");
    lock_release(&heap->lock);
    if (remote)
        remote_free_blocks(class, blocks, remote, "free");
}

/* ---- Taking ---- */

/* Writes to blocks of a new slab, which have no memory behind them. Else their check would read the system's page of
 * zeros into place, and the write of their seal would take another fault. */
static void bins_touch(void *const *blocks, size_t count, size_t size)
{
    size_t page = os_page_size();

    for (size_t i = 0; i < count; i++) {
        char *block = blocks[i];
        for (char *at = (char *)base_align_up((uintptr_t)block, page); at < block + size; at += page)
            (void)__atomic_fetch_or((uint64_t *)(void *)at, 0, __ATOMIC_RELAXED);
    }
}

/* Checks the ends of the blocks before those that were taken: a write may have run on into a free block's place. Each
 * small block has one before it (pool/slab.h). */
static void bins_look_before(void *const *blocks, unsigned count, unsigned class)
{
    size_t size = class_size(class);

    if (!seal_in_tail(class))
        return;
    for (unsigned i = 0; i < count; i++) {
        const char *before = (const char *)blocks[i] - size;
        uint64_t tail = seal_load(before + size - SEAL_BYTES);
        char words[160];
        if (HAK_LIKELY(tail == 0) || HAK_LIKELY(seal_is_tail(before, tail)))
            continue;
        base_format(words, sizeof words, "the block before it, %p, was written at or past its end",
                    (const void *)before);
        misuse_report_words("malloc", blocks[i], words);
        return; /* one line is enough */
    }
}

/* Writes blocks in random order to the places before the ring's first entry. */
static void ring_shuffle_in(struct bins *bins, const struct ring *ring, const struct ring_row *row, void **slots,
                            void *const *blocks, unsigned count)
{
    void **entries = slots + row->first;
    size_t mask = row->mask, last = (size_t)ring->tail - 1;

    for (unsigned i = 0; i < count; i++) {
        void **place = &entries[(last - bins_chance(bins, i + 1)) & mask];
        entries[(last - i) & mask] = *place;
        *place = blocks[i];
    }
}

/* Puts free blocks from slabs before those that wait. */
static bool bins_refill(struct bins *bins, void **slots, struct heap *heap, unsigned class)
{
    struct ring *ring = &bins->rings[class];
    void *blocks[RING_MOST];
    unsigned want, got;
    bool zero;

    ring_begin(bins, heap, class);
    want = (unsigned)base_min(ring_part(ring), ring_length(class) - ring_count(ring));
    lock_acquire(&heap->lock);
    ring_note_hits(bins, heap, class);
    got = (unsigned)heap_take_blocks(heap, class, blocks, want, &zero);
    ring_shuffle_in(bins, ring, &ring_rows[class], slots, blocks, got);
    __atomic_store_n(&ring->tail, (uint16_t)(ring->tail - got), __ATOMIC_RELEASE);
    bins->seen[class] = (uint16_t)(ring_count(ring) - (got != 0)); /* the first serves this call: no hit */
    lock_release(&heap->lock);
    bins_touch(blocks, got, class_size(class));
    bins_look_before(blocks, got, class);
    if (HAK_LIKELY(got != 0))
        bins_patrol(bins, blocks[0], class, got, "malloc");
    return got != 0;
}

void *bins_take(struct bins *bins, void **slots, struct heap *heap, unsigned class)
{
    struct ring *ring = &bins->rings[class];
    void *block = ring_first(ring, &ring_rows[class], slots);

    if (HAK_UNLIKELY(block == NULL)) {
        /* A block of the quarantine is better than none. */
        if (!bins_refill(bins, slots, heap, class) && ring_count(ring) == 0)
            return NULL;
        block = *ring_entry(class, slots, ring->tail);
    }
    ring_prefetch(ring, &ring_rows[class], slots);
    ring_taken(ring);
    return block;
}

/* ---- Putting ---- */

void bins_put(struct bins *bins, void **slots, struct heap *heap, unsigned class, void *block)
{
    struct ring *ring = &bins->rings[class];

    if (HAK_UNLIKELY(ring_is_full(ring))) {
        ring_begin(bins, heap, class);
        if (ring_is_full(ring) && !ring_grow(bins, heap, class))
            bins_leave(bins, slots, heap, class, (unsigned)base_min(ring_count(ring), ring_part(ring)));
    }
    ring_put(bins, ring, &ring_rows[class], slots, block);
}

unsigned bins_count(const struct bins *bins, unsigned class)
{
    const struct ring *ring = &bins->rings[class];
    unsigned count =
        (uint16_t)(__atomic_load_n(&ring->head, __ATOMIC_RELAXED) - __atomic_load_n(&ring->tail, __ATOMIC_RELAXED));

    return class_is_span(class) ? spans_count(&bins->spans, class) : count;
}

const char *bins_find_written(const struct bins *bins, void *const *slots, unsigned class)
{
    const struct ring *ring = &bins->rings[class];

    for (unsigned i = 0; i < ring_count(ring); i++) {
        const char *block = slots[ring_rows[class].first + ((ring->tail + i) & ring_rows[class].mask)];
        if (!seal_is_zero(block, class_size(class)))
            return block;
    }
    return NULL;
}

/* ---- Flushing ---- */

void bins_flush(struct bins *bins, void **slots, struct heap *heap, bool all)
{
    if (!bins->used)
        return;
    for (unsigned class = 1; class < CLASS_SPAN_1; class++) {
        const struct ring *ring = &bins->rings[class];
        unsigned count = ring_count(ring);
        count -= all ? 0 : (unsigned)base_min(count, ring->keep);
        for (unsigned part; count; count -= part)
            bins_leave(bins, slots, heap, class, part = (unsigned)base_min(count, RING_MOST));
        if (all)
            ring_set_limit(bins, class, 0);
    }
    if (all) {
        spans_flush(&bins->spans, heap);
        bins->used = false;
    }
}
