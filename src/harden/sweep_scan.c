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
        place->candidate = slot->candidate[first];
        place->reciprocal = size_classes[superslab->slabs[first].class].reciprocal;
    }
    return place;
}

/* Call for an address in the window that a root holds: the block that it lies in is no candidate any more. A slab with
 * candidates stays as it is during the scan, because they count as used. */
HAK_INLINE void mark_block(struct sweep_unit *units, uintptr_t address)
{
    const struct sweep_unit *unit = &units[(address >> UNIT_SHIFT) % SWEEP_UNITS];
    uint64_t *word, bit;
    size_t index;

    if (HAK_UNLIKELY(unit->number != address >> UNIT_SHIFT))
        unit = mark_look(&units[(address >> UNIT_SHIFT) % SWEEP_UNITS], address);
    if (unit->candidate == NULL)
        return;
    index = ((address - unit->start) * unit->reciprocal) >> 40;
    if (HAK_UNLIKELY(index >= SLAB_MAX_BLOCKS))
        return;
    word = &unit->candidate[index / 64];
    bit = UINT64_C(1) << (index % 64);
    if (*word & bit) /* most are found to live blocks: without a store their cache lines stay clean */
        *word &= ~bit;
}

HAK_INLINE void mark_word(uint64_t word)
{
    uintptr_t address = word & ADDRESS_BITS;

    if (HAK_LIKELY(address - marks.window < marks.window_span))
        mark_block(marks.scan.scratch->units, address);
    else if (HAK_UNLIKELY(address - marks.large < marks.large_span))
        sweep_large_mark(address);
}

/* The bits of an address that tell whether it may lie in a range of `span` bytes: they are 0 in its distance from the
 * range's begin if it does. With an empty range, all bits. */
static uint64_t mark_far_bits(uintptr_t span)
{
    return ADDRESS_BITS & ~(span ? UINT64_MAX >> __builtin_clzll(span) : 0);
}

/* Looks at so many words at once, a cache line: most of them are no addresses in the ranges. */
#define MARK_WORDS 8u
/* Words that are fetched ahead: the processor does so itself, but too late, and not into the next page. As measured. */
#define MARK_AHEAD 192u
typedef uint64_t mark_pair __attribute__((vector_size(16), may_alias));
typedef double mark_doubles __attribute__((vector_size(16)));
HAK_INLINE mark_pair mark_twice(uint64_t word) { return (mark_pair){ word, word }; }

/* The uppermost bit is set where one of two words may be an address in the range. */
HAK_INLINE mark_pair mark_near(mark_pair words, uintptr_t begin, uint64_t far_bits)
{
    return ((words - mark_twice(begin)) & mark_twice(far_bits)) - mark_twice(1);
}

/* The uppermost bits of two words, as bits 0 and 1. */
HAK_INLINE unsigned mark_signs(mark_pair words)
{
#if defined(__SSE2__)
    return (unsigned)__builtin_ia32_movmskpd((mark_doubles)words);
#else
    return (unsigned)(words[0] >> 63 | (words[1] >> 63) << 1);
#endif
}

/* The bits of MARK_WORDS words that may be addresses in the range. */
HAK_INLINE unsigned mark_near_bits(const mark_pair *pairs, uintptr_t begin, uint64_t far_bits)
{
    unsigned low = mark_signs(mark_near(pairs[0], begin, far_bits)) |
                   mark_signs(mark_near(pairs[1], begin, far_bits)) << 2;
    unsigned high = mark_signs(mark_near(pairs[2], begin, far_bits)) |
                    mark_signs(mark_near(pairs[3], begin, far_bits)) << 2;

    return low | high << 4;
}

static void mark_words(const uint64_t *at, size_t count)
{
    uintptr_t window = marks.window, large = marks.large;
    uint64_t window_far = mark_far_bits(marks.window_span), large_far = mark_far_bits(marks.large_span);
    bool any_large = marks.large_span != 0;

    if ((uintptr_t)at % sizeof(mark_pair) != 0 && count) {
        mark_word(*at++);
        count--;
    }
    for (; count >= MARK_WORDS; at += MARK_WORDS, count -= MARK_WORDS) {
        const mark_pair *pairs = (const mark_pair *)(const void *)at;
        unsigned near = mark_near_bits(pairs, window, window_far);
        __builtin_prefetch(at + MARK_AHEAD);
        if (any_large)
            near |= mark_near_bits(pairs, large, large_far);
        for (; near; near &= near - 1)
            mark_word(at[base_low_bit(near)]);
    }
    for (; count; count--)
        mark_word(*at++);
}

/* ---- Reading ---- */

/* More than the sweep's own frames take: its tables are not on the stack. */
#define OWN_FRAMES_MOST (64 * HAK_KIB)

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
    uintptr_t low = from, high = to;

    if (HAK_UNLIKELY(from < marks.scan.boundary) && HAK_UNLIKELY(to > marks.scan.boundary - OWN_FRAMES_MOST)) {
        low = base_max(own_frames_begin(), from);
        high = base_min(marks.scan.boundary, to);
    } else {
        high = from;
    }

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

/* Gaps between live blocks that are shorter are read, too: they hold zeros, and a gap takes time of its own. */
#define GAP_BYTES 256u

/* Scans memory of live blocks of at least a page's size, as far as its pages hold something: the program may have given
 * some back to the system, or made them guard pages. */
static void scan_pages(uintptr_t from, uintptr_t to)
{
    size_t page = marks.reader.page;
    uintptr_t run, run_end;
    bool present;

    while (from < to && os_reader_next(&marks.reader, base_align_down(from, page), base_align_up(to, page), &run,
                                       &run_end, &present)) {
        run = base_max(run, from);
        run_end = base_min(run_end, to);
        if (HAK_LIKELY(present)) {
            mark_here(run, run_end);
            marks.bytes += run_end - run;
        } else {
            scan_copied(run, run_end);
        }
        from = run_end;
    }
}

/* Blocks of a slab that follow each other and are scanned together. */
struct scan_run {
    uintptr_t start; /* of the slab */
    size_t size, first, end;
    uintptr_t low, high; /* the part of the SuperSlab that can be read */
    bool in_pages;       /* the blocks have pages of their own */
};

static void scan_run_flush(struct scan_run *run)
{
    uintptr_t from = base_max(run->start + run->first * run->size, run->low);
    uintptr_t to = base_min(run->start + run->end * run->size, run->high);

    if (from < to && run->in_pages) {
        scan_pages(from, to);
    } else if (from < to) {
        mark_here(from, to);
        marks.bytes += to - from;
    }
    run->first = run->end = 0;
}

static void scan_run_add(struct scan_run *run, size_t first, size_t count)
{
    if (first != run->end) {
        scan_run_flush(run);
        run->first = first;
    }
    run->end = first + count;
}

/* Those of 64 blocks that the program may hold, in a slab of small blocks, whose seals lie in them. */
static uint64_t blocks_in_use(struct slab *slab, const struct sweep_slot *slot, unsigned word)
{
    uint64_t free = atomic_load_explicit(&slab->local[word], memory_order_relaxed) |
                    atomic_load_explicit(&slab->remote[word], memory_order_relaxed);

    if (word == 0)
        free |= slab_blocks_withheld(slab->class);
    if (slot)
        free |= atomic_load_explicit(&slot->waiting[slab_first_unit(slab)][word], memory_order_relaxed);
    return ~free & base_low_mask(base_min(slab->blocks - word * 64u, 64));
}

/* Fills the gaps between bits that are shorter than `gap`. */
static uint64_t fill_gaps(uint64_t bits, size_t gap)
{
    uint64_t above = bits, below = bits;

    for (size_t by = 1; by < gap && by < 64; by *= 2) {
        above |= above << by;
        below |= below >> by;
    }
    return above & below;
}

static void scan_small_blocks(struct slab *slab, const struct sweep_slot *slot, struct scan_run *run)
{
    size_t gap = GAP_BYTES / run->size;

    for (unsigned i = 0; i < slab_words(slab); i++) {
        uint64_t bits = fill_gaps(blocks_in_use(slab, slot, i), gap);
        while (bits) {
            unsigned first = base_low_bit(bits);
            uint64_t behind = ~(bits >> first);
            unsigned count = behind ? base_low_bit(behind) : 64;
            scan_run_add(run, i * (size_t)64 + first, count);
            bits &= ~(base_low_mask(count) << first);
        }
    }
    scan_run_flush(run);
}

static void scan_large_blocks(const struct slab *slab, struct scan_run *run)
{
    const struct ledger *ledger = ledger_of(slab);
    size_t page = marks.reader.page;

    run->in_pages = true;
    os_reader_look(&marks.reader, base_align_down(base_max(run->start, run->low), page),
                   base_align_up(base_min(run->start + slab_bytes(slab), run->high), page), 0);
    for (unsigned i = 0; i < slab->blocks; i++)
        if (__atomic_load_n(&ledger->sizes[i], __ATOMIC_RELAXED))
            scan_run_add(run, i, 1);
    scan_run_flush(run);
}

/* Scans live blocks only: the others are zero (V7), and may be inaccessible. Small blocks are read in place: they share
 * their pages with others, so the program left the pages as they are. */
static void scan_superslab(struct superslab *superslab, uintptr_t from, uintptr_t to)
{
    const struct sweep_slot *slot = sweep_find_slot(window_slot_of(superslab));
    unsigned unit = (unsigned)base_max((from - (uintptr_t)superslab) >> UNIT_SHIFT, 1);
    unsigned last = (unsigned)((to - 1 - (uintptr_t)superslab) >> UNIT_SHIFT), before = 0;

    /* Its slabs may change, or the program has mapped a file there, which somebody may truncate. */
    if (!marks.scan.still || !marks.reader.anonymous) {
        scan_range(base_max(from, (uintptr_t)superslab + UNIT_SIZE), to, false);
        return;
    }
    for (; unit <= last; unit++) {
        unsigned first = superslab->first_unit[unit];
        struct slab *slab = &superslab->slabs[first];
        struct scan_run run = { (uintptr_t)slab->start, 0, 0, 0, from, to, false };
        if (first == before || atomic_load_explicit(&slab->state, memory_order_relaxed) != SLAB_ACTIVE ||
            unit - first >= slab->units) /* the unit is free, and was the slab's before */
            continue;
        before = first;
        run.size = class_size(slab->class);
        if (seal_in_tail(slab->class))
            scan_small_blocks(slab, slot, &run);
        else
            scan_large_blocks(slab, &run);
    }
}

/* Scans the part of a mapping that lies in the window. Metadata is no root, a foreign mapping is. A SuperSlab has
 * several mappings if units are closed, or the program has closed pages of its blocks. */
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

/* A program has many small mappings. One question about a mapping that is not longer than LOOK_SMALL also covers what
 * follows it, up to LOOK_FAR. */
#define LOOK_SMALL HAK_MIB
#define LOOK_FAR (32 * HAK_MIB)

/* Only where nobody can change pages behind the mapping meanwhile. */
static void scan_look_ahead(uintptr_t from, uintptr_t to)
{
    bool anonymous = marks.reader.anonymous;

    if (!marks.scan.alone || to - from > LOOK_SMALL)
        return;
    marks.reader.anonymous = false; /* it asks about mappings of files, too */
    os_reader_look(&marks.reader, from, to, from + LOOK_FAR);
    marks.reader.anonymous = anonymous;
}

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
    if (to <= window || from >= window_end)
        scan_look_ahead(from, to);
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
    memset(scan->scratch->units, 0, sizeof scan->scratch->units);
    marks.keys_open = os_reader_open_keys(&keys);
    read = os_reader_begin(&marks.reader, scan->scratch->entries) &&
           os_maps_each(scan_mapping, NULL, scan->scratch->maps, sizeof scan->scratch->maps) && !marks.reader.failed;
    os_reader_end(&marks.reader);
    os_reader_close_keys(keys);
    *bytes = marks.bytes;
    return read;
}
