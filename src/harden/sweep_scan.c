#include "harden/sweep_map.h"

#include <string.h>

#include "harden/seal.h"
#include "os/maps.h"
#include "os/os.h"
#include "pool/slab.h"
#include "superslab/window.h"

/* A pointer may carry a tag in its top 16 bits, which are 0 in a program's addresses. */
#define ADDRESS_BITS UINT64_C(0x0000ffffffffffff)

/* The scan that is under way. */
static struct sweep_marks {
    uintptr_t window, window_span; /* all slots that are mapped */
    uintptr_t large, large_span;
    struct os_reader reader;
    struct sweep_scan scan;
    const struct superslab *last; /* the SuperSlab that was scanned last */
    uintptr_t from, to; /* of it, what one mapping covers */
    size_t bytes;
    bool keys_open; /* no protection key closes memory to this thread */
} marks;

/* ---- Marking ---- */

/* Fills the unit's place in the table. */
static __attribute__((noinline)) const struct sweep_unit *mark_look(struct sweep_unit *place, uintptr_t address)
{
    struct sweep_slot *slot = sweep_find_slot(window_slot_of((const void *)address));
    unsigned unit = (unsigned)(address >> UNIT_SHIFT) & (SUPERSLAB_UNITS - 1);

    *place = (struct sweep_unit){ .number = address >> UNIT_SHIFT };
    if (slot && ((slot->units >> unit) & 1)) {
        const struct superslab *superslab = superslab_of((const void *)address);
        unsigned first = superslab->first_unit[unit];
        place->start = (uintptr_t)superslab->slabs[first].start;
        place->words = slot->words[first];
        place->reciprocal = size_classes[superslab->slabs[first].class].reciprocal;
    }
    return place;
}

/* Call for an address in the window that a root holds: the block that it lies in is no candidate any more. A slab with
 * candidates stays as it is during the scan, because they count as used. */
HAK_INLINE void mark_block(struct sweep_unit *units, uintptr_t address)
{
    const struct sweep_unit *unit = &units[(address >> UNIT_SHIFT) % SWEEP_UNITS];
    size_t index;

    if (HAK_UNLIKELY(unit->number != address >> UNIT_SHIFT))
        unit = mark_look(&units[(address >> UNIT_SHIFT) % SWEEP_UNITS], address);
    if (unit->words == NULL)
        return;
    index = ((address - unit->start) * unit->reciprocal) >> 40;
    if (HAK_LIKELY(index < SLAB_MAX_BLOCKS))
        unit->words[index / 64].candidate &= ~(UINT64_C(1) << (index % 64));
}

static void mark_each(const uint64_t *at, size_t count)
{
    for (const uint64_t *end = at + count; at < end; at++) {
        uintptr_t address = *at & ADDRESS_BITS;
        if (address - marks.window < marks.window_span)
            mark_block(marks.scan.scratch->units, address);
        else if (HAK_UNLIKELY(address - marks.large < marks.large_span))
            sweep_large_mark(address);
    }
}

/* The bits of an address that tell whether it may lie in a range of `span` bytes: they are 0 in its distance from the
 * range's begin if it does. With an empty range, all bits. */
static uint64_t mark_far_bits(uintptr_t span)
{
    return ADDRESS_BITS & ~(span ? UINT64_MAX >> __builtin_clzll(span) : 0);
}

/* Looks at so many words at once: most of them are no addresses in the ranges. */
#define MARK_WORDS 8u
typedef uint64_t mark_pair __attribute__((vector_size(16), may_alias));
HAK_INLINE mark_pair mark_twice(uint64_t word) { return (mark_pair){ word, word }; }

/* The uppermost bit is set where one of two words may be an address in the range. */
HAK_INLINE mark_pair mark_near(mark_pair words, uintptr_t begin, uint64_t far_bits)
{
    return ((words - mark_twice(begin)) & mark_twice(far_bits)) - mark_twice(1);
}

static void mark_words(const uint64_t *at, size_t count)
{
    uintptr_t window = marks.window, large = marks.large;
    uint64_t window_far = mark_far_bits(marks.window_span), large_far = mark_far_bits(marks.large_span);
    bool any_large = marks.large_span != 0;

    if ((uintptr_t)at % sizeof(mark_pair) != 0 && count) {
        mark_each(at++, 1);
        count--;
    }
    for (; count >= MARK_WORDS; at += MARK_WORDS, count -= MARK_WORDS) {
        const mark_pair *pairs = (const mark_pair *)(const void *)at;
        mark_pair near = (mark_near(pairs[0], window, window_far) | mark_near(pairs[1], window, window_far)) |
                         (mark_near(pairs[2], window, window_far) | mark_near(pairs[3], window, window_far));
        if (any_large)
            near |= (mark_near(pairs[0], large, large_far) | mark_near(pairs[1], large, large_far)) |
                    (mark_near(pairs[2], large, large_far) | mark_near(pairs[3], large, large_far));
        if ((near[0] | near[1]) >> 63)
            mark_each(at, MARK_WORDS);
    }
    mark_each(at, count);
}

/* ---- Reading ---- */

/* The sweep's own frames reach from here to scan.boundary; the lowest 512 bytes are for system calls' wrappers. */
static __attribute__((noinline)) uintptr_t own_frames_begin(void)
{
    return base_align_down((uintptr_t)__builtin_frame_address(0) - 512, 8);
}

/* Zeroes the words of [from, to) that lie in the sweep's own frames: they hold addresses that it works with. */
static void hide_own_frames(uint64_t *words, uintptr_t from, uintptr_t to)
{
    uintptr_t low = own_frames_begin(), high = marks.scan.boundary;

    if (low >= to || high <= from || low >= high)
        return;
    low = base_max(low, from);
    high = base_min(high, to);
    memset((char *)words + (low - from), 0, high - low);
}

/* Marks from memory in place, where no fault can happen. */
static void mark_here(uintptr_t from, uintptr_t to)
{
    uintptr_t low = base_max(own_frames_begin(), from), high = base_min(marks.scan.boundary, to);

    if (low < high) {
        mark_words((const uint64_t *)from, (low - from) / sizeof(uint64_t));
        from = high;
    }
    mark_words((const uint64_t *)from, (to - from) / sizeof(uint64_t));
}

/* Lets the kernel copy, since another thread may unmap the memory or truncate its file. Skips unreadable pages. */
static void scan_copied(uintptr_t from, uintptr_t to)
{
    uint64_t *copy = marks.scan.scratch->copy;

    while (from < to) {
        size_t size = base_min(to - from, sizeof marks.scan.scratch->copy),
               got = os_reader_copy(&marks.reader, from, copy, size);
        hide_own_frames(copy, from, from + got);
        mark_words(copy, got / sizeof *copy);
        marks.bytes += got;
        from = got == size ? from + got : base_align_down(from + got, marks.reader.page) + marks.reader.page;
    }
}

/* Scans pages of [from, to) that hold something. still: nobody can unmap them meanwhile, and they are of no file. */
static void scan_range(uintptr_t from, uintptr_t to, bool still)
{
    uintptr_t run, run_end;
    bool present;

    while (os_reader_next(&marks.reader, from, to, &run, &run_end, &present)) {
        if (still && present) {
            mark_here(run, run_end);
            marks.bytes += run_end - run;
        } else {
            scan_copied(run, run_end);
        }
        from = run_end;
    }
}

/* ---- The allocator's own blocks ---- */

/* Scans the pages of a slab's blocks [first, end), as far as the mapping reaches. */
static void scan_blocks(const struct slab *slab, size_t first, size_t end)
{
    size_t size = class_size(slab->class), page = marks.reader.page;
    uintptr_t start = (uintptr_t)slab->start;
    uintptr_t from = base_max(base_align_down(start + first * size, page), marks.from);
    uintptr_t to = base_min(base_align_up(start + end * size, page), marks.to);

    if (from < to)
        scan_range(from, to, marks.reader.anonymous);
}

/* Whether the program may hold any of 64 blocks in a slab of small blocks, whose seals lie in them. */
static bool word_may_be_live(struct slab *slab, const struct sweep_slot *slot, unsigned word)
{
    uint64_t all = base_low_mask(base_min(slab->blocks - word * 64u, 64));
    uint64_t free = atomic_load_explicit(&slab->local[word], memory_order_relaxed) |
                    atomic_load_explicit(&slab->remote[word], memory_order_relaxed);

    if (word == 0)
        free |= slab_blocks_withheld(slab->class);
    if (slot)
        free |= atomic_load_explicit(
            &((struct sweep_slot *)(uintptr_t)slot)->words[slab_first_unit(slab)][word].waiting, memory_order_relaxed);
    return (all & ~free) != 0;
}

/* Scans live blocks only: the others are zero (V7), and may be inaccessible. */
static void scan_slab(struct slab *slab, const struct sweep_slot *slot)
{
    unsigned words = slab_words(slab);
    size_t from = SIZE_MAX;

    if (!seal_in_tail(slab->class)) { /* few blocks */
        const struct ledger *ledger = ledger_of(slab);
        for (unsigned i = 0; i < slab->blocks; i++)
            if (__atomic_load_n(&ledger->sizes[i], __ATOMIC_RELAXED))
                scan_blocks(slab, i, i + (size_t)1);
        return;
    }
    for (unsigned i = 0; i <= words; i++) {
        bool live = i < words && word_may_be_live(slab, slot, i);
        if (live && from == SIZE_MAX)
            from = i * (size_t)64;
        if (!live && from != SIZE_MAX) {
            scan_blocks(slab, from, base_min(i * (size_t)64, slab->blocks));
            from = SIZE_MAX;
        }
    }
}

/* Whether a slab has blocks in what the mapping covers. */
static bool slab_is_covered(const struct slab *slab)
{
    uintptr_t start = (uintptr_t)slab->start;

    return start < marks.to && start + slab->blocks * class_size(slab->class) > marks.from;
}

static void scan_slabs(struct superslab *superslab)
{
    const struct sweep_slot *slot = sweep_find_slot(window_slot_of(superslab));

    for (unsigned unit = 1; unit < SUPERSLAB_UNITS; unit++) {
        struct slab *slab = &superslab->slabs[unit];
        if (superslab->first_unit[unit] == unit &&
            atomic_load_explicit(&slab->state, memory_order_relaxed) == SLAB_ACTIVE && slab_is_covered(slab))
            scan_slab(slab, slot);
    }
}

/* Scans the part [from, to) of a SuperSlab, which one mapping covers. Closed units, and pages of blocks that the program
 * closed itself, split a SuperSlab into several mappings, which follow each other. */
static void scan_superslab(struct superslab *superslab, uintptr_t from, uintptr_t to)
{
    if (superslab != marks.last)
        os_reader_look(&marks.reader, (uintptr_t)superslab, (uintptr_t)superslab + SUPERSLAB_SIZE);
    marks.last = superslab;
    marks.from = base_max(from, (uintptr_t)superslab + UNIT_SIZE);
    marks.to = to;
    if (marks.scan.still)
        scan_slabs(superslab);
    else /* its slabs may change */
        scan_range(marks.from, to, false);
}

/* Scans the part of a mapping that lies in the window. Metadata is no root, a foreign mapping is. */
static void scan_window(uintptr_t from, uintptr_t to)
{
    while (from < to) {
        uintptr_t end = base_min(base_align_down(from, SUPERSLAB_SIZE) + SUPERSLAB_SIZE, to);
        const struct slot *slot = window_find_slot((const void *)from);
        if (slot && slot_is_mapped(slot) && slot_kind(slot) == SLOT_SUPERSLAB)
            scan_superslab(superslab_of((const void *)from), from, end);
        else if (slot && slot_kind(slot) != SLOT_METADATA && window_slot_of((const void *)from) >= window_slots_begin())
            scan_range(from, end, false);
        from = end;
    }
}

/* ---- Roots ---- */

static bool scan_mapping(const struct os_mapping *mapping, void *unused)
{
    uintptr_t from = mapping->start, to = mapping->end;
    uintptr_t window = (uintptr_t)window_base(), window_end = (uintptr_t)window_slot_address(window_slots_end());

    bool still = marks.scan.alone && marks.keys_open && (mapping->path[0] == '\0' || mapping->path[0] == '[');

    (void)unused;
    marks.reader.anonymous = mapping->path[0] == '\0' || mapping->path[0] == '[';
    /* Read-only memory may hold pointers from before. [vvar] and the like are the kernel's. */
    if (!mapping->readable || mapping->shared || (mapping->path[0] == '[' && mapping->path[1] == 'v'))
        return true;
    if (strcmp(mapping->path, "[stack]") == 0 && marks.scan.boundary >= from && marks.scan.boundary < to)
        from = base_align_down(marks.scan.boundary, marks.reader.page); /* the rest of the page is hidden, or unused */
    if (from < window) {
        scan_range(from, base_min(to, window), still);
        from = base_min(to, window);
    }
    if (from < to && from < window_end) {
        scan_window(from, base_min(to, window_end));
        from = base_min(to, window_end);
    }
    if (from < to)
        scan_range(from, to, still);
    return true;
}

bool sweep_scan_roots(const struct sweep_scan *scan, size_t *bytes)
{
    uint32_t keys;
    bool read;

    marks.window = (uintptr_t)window_slot_address(window_slots_begin());
    marks.window_span = (uintptr_t)window_slot_address(window_slots_end()) - marks.window;
    sweep_large_bounds(&marks.large, &marks.large_span);
    marks.scan = *scan;
    marks.bytes = 0;
    marks.last = NULL;
    memset(scan->scratch->units, 0, sizeof scan->scratch->units);
    marks.keys_open = os_reader_open_keys(&keys);
    read = os_reader_begin(&marks.reader, scan->scratch->entries) &&
           os_maps_each(scan_mapping, NULL, scan->scratch->maps, sizeof scan->scratch->maps) && !marks.reader.failed;
    os_reader_end(&marks.reader);
    os_reader_close_keys(keys);
    *bytes = marks.bytes;
    return read;
}
