#include <string.h>

#include "harden/bins.h"
#include "harden/seal.h"
#include "os/os.h"
#include "pool/remote.h"
#include "pool/slab.h"
#include "superslab/closed_units.h"

/* Waiting spans have at most SPANS_BYTES, or the thread's share if that is more. A random one of the older half leaves.
 * The newest SPANS_KEEP are not given out. */
#define SPANS_BYTES (4 * HAK_MIB)
#define SPANS_KEEP 4u

/* Every LOOK_FREES-th free looks how much was written, and each free of a class after a look that found little. A class
 * is sparse after LOOKS_SPARSE such looks in a row (a sixteenth of the pages or less) until one finds a quarter. */
#define LOOK_FREES 16u
#define LOOKS_SPARSE 4u
#define SPARSE_SHARE 16u
#define DENSE_SHARE 4u

/* From this size on, os_guard costs more than to purge a span and to close it by os_protect between fences: it visits
 * each page twice. */
#define FENCED_BYTES (256 * HAK_KIB)

/* ---- Erasing ---- */

#define SPAN_PAGES (POOLED_MAX / 4096)

/* Finds the pages of a span that have memory. Pages in swap space, which are not zero either, are not among them. */
static void span_ask(const char *block, size_t bytes, unsigned char pages[SPAN_PAGES])
{
    if (!os_resident(block, bytes, pages))
        memset(pages, 1, SPAN_PAGES);
}

/* How many pages of the span, as far as they have memory, are not zero. */
static size_t span_count_written(const char *block, size_t bytes, size_t page)
{
    unsigned char pages[SPAN_PAGES];
    size_t written = 0;

    span_ask(block, bytes, pages);
    for (size_t at = 0; at < bytes; at += page)
        written += (pages[at / page] & 1) && !seal_is_zero(block + at, page);
    return written;
}

static bool span_is_sparse(const struct spans *spans, unsigned class)
{
    return spans->sparse[class - CLASS_SPAN_1] >= LOOKS_SPARSE;
}

/* Purges a span with little memory. To purge it and to fault in as much again costs less than to zero all of it. */
static void span_purge(char *block, size_t bytes)
{
    if (!os_purge(block, bytes))
        memset(block, 0, bytes);
}

/* Learns whether the program writes little to spans of its class. Returns whether this span is to be purged: zeroing
 * the pages that have memory would leave those in swap space. */
static bool span_look(struct spans *spans, const char *block, unsigned class, size_t bytes)
{
    uint8_t *looks = &spans->sparse[class - CLASS_SPAN_1];
    size_t page = os_page_size(), written = span_count_written(block, bytes, page);

    if (written * SPARSE_SHARE <= bytes / page)
        *looks = (uint8_t)base_min(*looks + 1u, LOOKS_SPARSE);
    else if (*looks < LOOKS_SPARSE || written * DENSE_SHARE >= bytes / page)
        *looks = 0;
    return *looks != 0;
}

void bins_erase_span(struct bins *bins, char *block, unsigned class, size_t requested, bool waits)
{
    struct spans *spans = &bins->spans;
    size_t bytes = base_min(base_align_up(seal_bytes_for(requested), os_page_size()), class_size(class));
    bool purge = span_is_sparse(spans, class);

    bins_begin(bins);
    memset(block + requested, 0, seal_canary_bytes(class, requested)); /* the seal is not the program's */
    if (HAK_UNLIKELY(spans->frees++ % LOOK_FREES == 0 || (!purge && spans->sparse[class - CLASS_SPAN_1])))
        purge = span_look(spans, block, class, bytes);
    if (!purge) {
        memset(block, 0, bytes);
        return;
    }
    if (waits)
        spans->unpurged = block;
    else
        span_purge(block, bytes);
}

bool bins_span_is_zero(const struct bins *bins, const char *block, size_t bytes)
{
    unsigned char pages[SPAN_PAGES];
    size_t page = os_page_size();

    bytes = base_min(base_align_up(bytes, BLOCK_ALIGN), slab_bytes(slab_of(block)));
    if (bins->spans.sparse[slab_of(block)->class - CLASS_SPAN_1] == 0)
        return false;
    span_ask(block, base_align_up(bytes, page), pages);
    for (size_t at = 0; at < bytes; at += page)
        if ((pages[at / page] & 1) && !seal_is_zero(block + at, base_min(page, bytes - at)))
            return false;
    return true;
}

/* ---- Waiting ---- */

/* Whether a waiting span is accessible, and which call closed it. */
enum span_access { SPAN_OPEN, SPAN_CLOSED = CLOSED_BY_PROTECT, SPAN_GUARDED = CLOSED_BY_GUARD };

/* Opens a span. One that cannot be opened stays as it is, and is lost. */
static bool span_open(void *block, enum span_access access)
{
    size_t bytes = slab_bytes(slab_of(block));

    return access == SPAN_OPEN ||
           (access == SPAN_GUARDED ? os_guard(block, bytes, false) : os_protect(block, bytes, true));
}

/* The bits without the one at `index`: those above it move down. */
static uint16_t span_drop_bit(unsigned bits, unsigned index)
{
    unsigned below = (1u << index) - 1;

    return (uint16_t)((bits & below) | (bits >> 1 & ~below));
}

/* Removes a span from those that wait (V9). The others keep their order. */
static void *span_remove(struct spans *spans, unsigned index, enum span_access *access)
{
    unsigned last = spans->count - 1u;
    void *block = spans->span[index];

    *access = !((spans->closed >> index) & 1) ? SPAN_OPEN : (spans->guarded >> index) & 1 ? SPAN_GUARDED : SPAN_CLOSED;
    spans->bytes -= slab_bytes(slab_of(block));
    __atomic_store_n(&spans->count, (uint8_t)last, __ATOMIC_RELEASE);
    for (unsigned i = index; i < last; i++)
        __atomic_store_n(&spans->span[i], spans->span[i + 1], __ATOMIC_RELAXED);
    spans->closed = span_drop_bit(spans->closed, index);
    spans->guarded = span_drop_bit(spans->guarded, index);
    return block;
}

/* V10 */
static void span_leave(struct heap *heap, void *block, enum span_access access)
{
    struct slab *slab = slab_of(block);
    unsigned class = slab->class;
    size_t remote;

    if (access != SPAN_OPEN && closed_units_may_stay(slab, access))
        slab->closed = (uint8_t)access;
    else if (!span_open(block, access))
        return;
    else if (access == SPAN_CLOSED && closed_units_may_stay(slab, CLOSED_BY_GUARD) &&
             os_guard(block, slab_bytes(slab), true)) /* takes no mapping */
        slab->closed = CLOSED_BY_GUARD;
    lock_acquire(&heap->lock);
    remote = heap_return_blocks(heap, class, &block, 1, "free");
    lock_release(&heap->lock);
    if (remote)
        remote_free_blocks(class, &block, 1, "free");
}

static void spans_leave_at(struct spans *spans, struct heap *heap, unsigned index)
{
    enum span_access access;
    void *block = span_remove(spans, index, &access);

    span_leave(heap, block, access);
}

void *bins_take_span(struct bins *bins, unsigned class, bool exact, bool *zero)
{
    struct spans *spans = &bins->spans;
    unsigned count = spans->count, from;

    if (count <= SPANS_KEEP)
        return NULL;
    count -= SPANS_KEEP;
    from = bins_chance(bins, count);
    for (unsigned i = 0; i < count; i++) {
        unsigned index = (from + i) % count;
        const struct slab *slab = slab_of(spans->span[index]);
        if (slab->class == class && (!exact || guard_units_lie_behind(slab))) {
            enum span_access access;
            void *block = span_remove(spans, index, &access);
            *zero = access != SPAN_OPEN;
            return span_open(block, access) ? block : NULL;
        }
    }
    return NULL;
}

/* Makes the span inaccessible. */
static enum span_access span_close(struct spans *spans, void *block, size_t bytes)
{
    bool purge = spans->unpurged == block, fenced;

    spans->unpurged = NULL;
    fenced = (!purge || bytes >= FENCED_BYTES) && closed_units_fence(slab_of(block));
    if (purge && !fenced && os_guard(block, bytes, true))
        return SPAN_GUARDED;
    if (purge)
        span_purge(block, bytes);
    return harden_close(block, bytes) ? SPAN_CLOSED : SPAN_OPEN;
}

void bins_put_span(struct bins *bins, struct heap *heap, void *block)
{
    struct spans *spans = &bins->spans;
    size_t bytes = slab_bytes(slab_of(block));
    enum span_access access;

    access = span_close(spans, block, bytes);
    while (spans->count == SPANS_MOST ||
           (spans->count && spans->bytes + bytes > base_max(SPANS_BYTES, bins_share(heap))))
        spans_leave_at(spans, heap, bins_chance(bins, spans->count / 2u + 1));
    spans->span[spans->count] = block;
    spans->closed =
        (uint16_t)((spans->closed & ~(1u << spans->count)) | (unsigned)(access != SPAN_OPEN) << spans->count);
    spans->guarded =
        (uint16_t)((spans->guarded & ~(1u << spans->count)) | (unsigned)(access == SPAN_GUARDED) << spans->count);
    spans->bytes += bytes;
    __atomic_store_n(&spans->count, (uint8_t)(spans->count + 1), __ATOMIC_RELEASE);
}

unsigned spans_count(const struct spans *spans, unsigned class)
{
    unsigned count = 0;

    for (unsigned i = 0; i < __atomic_load_n(&spans->count, __ATOMIC_ACQUIRE); i++)
        count += __atomic_load_n(&slab_of(__atomic_load_n(&spans->span[i], __ATOMIC_RELAXED))->class,
                                 __ATOMIC_RELAXED) == class;
    return count;
}

void spans_flush(struct spans *spans, struct heap *heap)
{
    while (spans->count)
        spans_leave_at(spans, heap, spans->count - 1u);
}
