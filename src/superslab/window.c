#include "superslab/window.h"

#include "options/options.h"

/* The zeros that malloc and free read before window_init (W3). All that they read of an empty cache lies in its first
 * page. */
static _Alignas(4096) const char window_before_init[4096];

/* Every malloc and free reads these two: aligned, so that nothing that changes lies before them on their lines. */
HAK_DATA_HERE _Alignas(HAK_CACHE_LINE) char *hak_window = (char *)(uintptr_t)window_before_init;
HAK_DATA_HERE _Alignas(HAK_CACHE_LINE) size_t hak_units;
HAK_DATA_HERE struct slot *window_slots;
HAK_DATA_HERE size_t window_head_mapped;
HAK_DATA_HERE uint64_t window_secret;

/* The longest window. It costs only addresses, so it is far longer than memory: freed SuperSlabs are reused long before
 * it is full. Under ThreadSanitizer all places that are tried must lie in the stretch that it allows. */
#define WINDOW_MAX (HAK_THREAD_SANITIZER ? 64 * HAK_GIB : 8 * (1024 * HAK_GIB))
#define WINDOW_MIN (16 * HAK_MIB)
/* The window lies below an address that the kernel chose at random. It takes at most this share of the addresses below,
 * where the program and its brk heap may lie, and leaves a gap for libraries that are close to that address. */
#define WINDOW_ANCHOR_SHARE 8
#define WINDOW_GAP (4 * HAK_GIB)
/* Where that share is less, addresses have 42 bits or fewer, and a window of the share might be smaller than memory. It
 * then reaches from the share up to the gap. It fills from below, and the kernel's mappings come from above. */
#define WINDOW_SHARE_LEAST (512 * HAK_GIB)
/* In libhakmem-secure the window lies up to this far below that place, and not farther than this share of the addresses
 * below. */
#define WINDOW_RANDOM (1024 * HAK_GIB)
#define WINDOW_RANDOM_SHARE 4
/* If that address is below WINDOW_LOW_ANCHOR, there is no room below it, and the window lies WINDOW_ABOVE above it.
 * This happens under valgrind, whose programs have 64 GiB. */
#define WINDOW_LOW_ANCHOR (16 * HAK_GIB)
#define WINDOW_ABOVE (16 * HAK_GIB)
#define WINDOW_ABOVE_MAX (32 * HAK_GIB)
/* The number of places tried below the address, each a window's length from the next; and the largest hole to ask the
 * kernel for when no place is free. Sanitizers allow a hole of this size. */
#define WINDOW_PLACES 3u
#define WINDOW_HOLE (512 * HAK_GIB)
/* Slots mapped at the first step, and at most: steps double, so that small programs stay small and large ones make few
 * system calls. */
#define WINDOW_FIRST_SLOTS 2u
#define WINDOW_MAX_STEP 32u
/* The most tries of one window_grow. It halves a step until it fits, then leaves out ever longer stretches. */
#define WINDOW_GROW_TRIES 32u
/* The first SuperSlabs, which get no huge pages under `auto`: in a small process one huge page matters. */
#define WINDOW_SMALL_SLOTS 4u

/* A slot has as many bytes of page map as of descriptor. Each is mapped in steps of a unit, for 4 GiB of the window. */
#define HEAD_SLOT_BYTES (sizeof(struct slot))
_Static_assert(HEAD_SLOT_BYTES == SUPERSLAB_UNITS, "one byte of page map for each unit");

/* The slots that the window may have are slots_begin to slots_limit; those mapped now end at slots_mapped. */
static uint32_t slots_begin, slots_mapped, slots_limit;

/* Whether the slot with `before` slots before it asks for huge pages. */
static bool window_wants_huge(uint32_t before)
{
    return hak_options.thp == OPTION_ALWAYS || (hak_options.thp == OPTION_AUTO && before >= WINDOW_SMALL_SLOTS);
}

static enum os_place window_map(char *address, size_t count, bool huge_pages)
{
    enum os_place place = os_map_at(address, count * SUPERSLAB_SIZE);

    if (place == OS_PLACE_MAPPED) {
        os_advise_huge(address, count * SUPERSLAB_SIZE, huge_pages);
        os_name(address, count * SUPERSLAB_SIZE, "hakmem");
    }
    return place;
}

/* ---- Where the window is ---- */

/* Places a window of `size` bytes at `base` if its first parts can be mapped there. */
static bool window_take_place(char *base, size_t size)
{
    size_t slots = size >> SUPERSLAB_SHIFT, array = base_align_up(slots * HEAD_SLOT_BYTES, UNIT_SIZE);
    size_t head = base_align_up(WINDOW_PAGE_MAP + 2 * array, SUPERSLAB_SIZE), count = 0;
    char *descriptors = base + WINDOW_PAGE_MAP + array;

    if (os_map_at(base, WINDOW_PAGE_MAP + UNIT_SIZE) != OS_PLACE_MAPPED)
        return false;
    if (os_map_at(descriptors, UNIT_SIZE) == OS_PLACE_MAPPED) {
        for (count = WINDOW_FIRST_SLOTS; count > 0; count /= 2)
            if (window_map(base + head, count, window_wants_huge(0)) == OS_PLACE_MAPPED)
                break;
        if (count == 0)
            os_unmap(descriptors, UNIT_SIZE);
    }
    if (count == 0) {
        os_unmap(base, WINDOW_PAGE_MAP + UNIT_SIZE);
        return false;
    }
    window_head_mapped = UNIT_SIZE;
    slots_begin = (uint32_t)(head >> SUPERSLAB_SHIFT);
    slots_mapped = slots_begin + (uint32_t)count;
    slots_limit = (uint32_t)slots;
    window_slots = (struct slot *)descriptors;
    __atomic_store_n(&hak_window, base, __ATOMIC_RELEASE);
    return true;
}

/* An address that the kernel chose: the library's own if it lies in the area of mappings, else that of a hole. */
static uintptr_t window_anchor(void)
{
    uintptr_t anchor = (uintptr_t)window_before_init;

    if (anchor < WINDOW_LOW_ANCHOR) {
        void *hole = os_find_hole(UNIT_SIZE, UNIT_SIZE);
        anchor = hole ? (uintptr_t)hole : anchor;
    }
    return anchor;
}

static bool window_find_place(size_t size)
{
    uintptr_t anchor = window_anchor();

    /* A leaked address of the library must not tell where the blocks are. ThreadSanitizer allows few addresses. */
    if (window_secret && !HAK_THREAD_SANITIZER)
        anchor -= os_random() % base_min(WINDOW_RANDOM, anchor / WINDOW_RANDOM_SHARE);
    if (anchor < WINDOW_LOW_ANCHOR) {
        if (window_take_place((char *)base_align_up(anchor + WINDOW_ABOVE, SUPERSLAB_SIZE),
                              base_min(size, WINDOW_ABOVE_MAX)))
            return true;
    } else {
        uintptr_t share = anchor / WINDOW_ANCHOR_SHARE, end = anchor - WINDOW_GAP;
        size_t below = base_align_down(base_min(size, share), SUPERSLAB_SIZE);
        for (size_t place = 1; place <= WINDOW_PLACES; place++) {
            uintptr_t base = base_align_down(end - place * below, SUPERSLAB_SIZE);
            if (share < WINDOW_SHARE_LEAST && !HAK_THREAD_SANITIZER) {
                base = base_align_down(place * share, SUPERSLAB_SIZE);
                below = base_align_down(base_min(size, end - base), SUPERSLAB_SIZE);
            }
            if (window_take_place((char *)base, below))
                return true;
        }
    }
    for (size = base_min(size, WINDOW_HOLE); size >= WINDOW_MIN; size = base_align_down(size / 2, SUPERSLAB_SIZE)) {
        char *hole = os_find_hole(size, SUPERSLAB_SIZE);
        if (hole && window_take_place(hole, size))
            return true;
    }
    return false;
}

bool window_init(void)
{
    size_t size = hak_options.arena_size ? (size_t)hak_options.arena_size : WINDOW_MAX;

    if (slots_mapped != 0)
        return true;
    if (HAK_SECURE)
        window_secret = os_random() | 1;
    if (!window_find_place(base_align_down(base_min(base_max(size, WINDOW_MIN), WINDOW_MAX), SUPERSLAB_SIZE)))
        return false;
    __atomic_store_n(&hak_units, (size_t)slots_mapped * SUPERSLAB_UNITS, __ATOMIC_RELEASE);
    return true;
}

/* ---- Growing, and giving back ---- */

/* Maps the page map and the descriptors up to the slot `end`. */
static enum os_place window_extend_head(uint32_t end)
{
    size_t wanted = base_align_up(end * HEAD_SLOT_BYTES, UNIT_SIZE), more = wanted - window_head_mapped;
    char *page_map = (char *)window_page_map() + window_head_mapped,
         *descriptors = (char *)window_slots + window_head_mapped;
    enum os_place place;

    if (wanted <= window_head_mapped)
        return OS_PLACE_MAPPED;
    place = os_map_at(page_map, more);
    if (place != OS_PLACE_MAPPED)
        return place;
    place = os_map_at(descriptors, more);
    if (place == OS_PLACE_MAPPED)
        window_head_mapped = wanted;
    else
        os_unmap(page_map, more);
    return place;
}

size_t window_grow(uint32_t *first, bool *huge_pages)
{
    uint32_t slot = slots_mapped, skip = 1;
    size_t count = base_min(base_min(slots_mapped - slots_begin, WINDOW_MAX_STEP), slots_limit - slot);

    for (unsigned tries = 0; count > 0 && tries < WINDOW_GROW_TRIES; tries++) {
        enum os_place place = window_extend_head(slot + (uint32_t)count);
        if (place == OS_PLACE_TAKEN) {
            slots_limit = (uint32_t)(window_head_mapped / HEAD_SLOT_BYTES); /* page map and window end here */
            place = OS_PLACE_REFUSED;
        }
        if (place == OS_PLACE_MAPPED) {
            *huge_pages = window_wants_huge(slot - slots_begin);
            place = window_map(window_slot_address(slot), count, *huge_pages);
        }
        if (place == OS_PLACE_MAPPED) {
            *first = slot;
            slots_mapped = slot + (uint32_t)count;
            if (slots_mapped > window_slots_end())
                __atomic_store_n(&hak_units, (size_t)slots_mapped * SUPERSLAB_UNITS, __ATOMIC_RELEASE);
            return count;
        }
        if (place == OS_PLACE_TAKEN && count == 1) {
            if (skip >= slots_limit - slot) {
                slots_limit = slots_mapped; /* nothing free up to the end */
                break;
            }
            slot += skip;
            skip *= 2;
        } else {
            count /= 2;
        }
    }
    return 0;
}

bool window_shrink(uint32_t end)
{
    if (!os_decommit(window_slot_address(end), (size_t)(slots_mapped - end) * SUPERSLAB_SIZE))
        return false;
    slots_mapped = end;
    return true;
}

bool window_unmap_slot(uint32_t slot) { return os_decommit(window_slot_address(slot), SUPERSLAB_SIZE); }
enum os_place window_map_slot(uint32_t slot, bool huge_pages)
{
    return window_map(window_slot_address(slot), 1, huge_pages);
}

size_t window_head_bytes(void) { return WINDOW_PAGE_MAP + 2 * window_head_mapped; }
uint32_t window_slots_begin(void) { return slots_begin; }
uint32_t window_slots_end(void) { return (uint32_t)(window_units() / SUPERSLAB_UNITS); }
uint32_t window_slots_mapped(void) { return slots_mapped; }
uint32_t window_slots_limit(void) { return slots_limit; }
