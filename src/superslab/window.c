#include "superslab/window.h"

#include "options/options.h"
#include "os/os.h"
#include "superslab/shared_pool.h"

/* W3: what malloc and free read before window_init: all they look at in an empty cache lies in its first page. */
static _Alignas(4096) const char window_before_init[4096];

char *hak_window = (char *)(uintptr_t)window_before_init;
size_t hak_units;

/* A window takes this many times the machine's memory, so that freed SuperSlabs always find reuse before it is full. */
#define WINDOW_MEMORY_FACTOR 4
#define WINDOW_MIN (16 * HAK_MIB)
#define WINDOW_MAX (1024 * HAK_GIB)
/* Slots committed at the first and at later steps: doubling, so that small programs stay small and large ones
 * make few system calls. */
#define WINDOW_FIRST_SLOTS 2u
#define WINDOW_MAX_STEP 32u
/* The first SuperSlabs never get huge pages under `auto`: in a small heap one huge page matters. */
#define WINDOW_SMALL_SLOTS 4u

static uint32_t slots_begin, slots_end, slots_committed;
static size_t head_bytes;

static size_t window_wanted_size(void)
{
    size_t limit = os_address_space_limit(), size = (size_t)hak_options.arena_size;
    if (size == 0) {
        size = base_max(os_physical_memory(), HAK_GIB) * WINDOW_MEMORY_FACTOR;
        size = (size_t)1 << (base_high_bit(size - 1) + 1);
    }
    /* Under an address-space limit, thread stacks, libraries and huge blocks need the other half. */
    if (limit != SIZE_MAX)
        size = base_min(size, limit / 2);
    return base_align_down(base_min(base_max(size, WINDOW_MIN), WINDOW_MAX), SUPERSLAB_SIZE);
}

bool window_init(void)
{
    size_t size, head;
    char *window = NULL;

    if (slots_end != 0)
        return true;
    for (size = window_wanted_size(); size >= WINDOW_MIN; size = base_align_down(size / 2, SUPERSLAB_SIZE)) {
        window = os_reserve(size, SUPERSLAB_SIZE);
        if (window)
            break;
    }
    if (!window)
        return false;
    head = WINDOW_PAGE_MAP + (size >> UNIT_SHIFT) + (size >> SUPERSLAB_SHIFT) * sizeof(struct slot);
    head = base_align_up(head, SUPERSLAB_SIZE);
    if (hak_options.thp == OPTION_NEVER)
        os_advise_huge(window, size, false);
    else if (hak_options.thp == OPTION_ALWAYS)
        os_advise_huge(window + head, size - head, true);
    else
        os_advise_huge(window, base_min(size, head + WINDOW_SMALL_SLOTS * SUPERSLAB_SIZE), false);
    if (!os_commit(window, head + WINDOW_FIRST_SLOTS * SUPERSLAB_SIZE)) {
        os_unmap(window, size);
        return false;
    }
    os_name(window, size, "hakmem");
    head_bytes = head;
    slots_begin = (uint32_t)(head >> SUPERSLAB_SHIFT);
    slots_end = (uint32_t)(size >> SUPERSLAB_SHIFT);
    slots_committed = slots_begin + WINDOW_FIRST_SLOTS;
    shared_pool_init((struct slot *)(window + WINDOW_PAGE_MAP + (size >> UNIT_SHIFT)), slots_begin, slots_committed);
    __atomic_store_n(&hak_window, window, __ATOMIC_RELEASE);
    __atomic_store_n(&hak_units, (size_t)slots_committed * SUPERSLAB_UNITS, __ATOMIC_RELEASE);
    return true;
}

size_t window_commit_slots(uint32_t *first, bool *huge_pages)
{
    uint32_t have = slots_committed - slots_begin;
    size_t count = base_min(base_min(have, WINDOW_MAX_STEP), slots_end - slots_committed);

    for (; count > 0; count /= 2) {
        char *address = window_slot_address(slots_committed);
        if (!os_commit(address, count * SUPERSLAB_SIZE))
            continue;
        *huge_pages = hak_options.thp == OPTION_ALWAYS ||
                      (hak_options.thp == OPTION_AUTO && have >= WINDOW_SMALL_SLOTS);
        if (*huge_pages && hak_options.thp == OPTION_AUTO)
            os_advise_huge(address, count * SUPERSLAB_SIZE, true);
        *first = slots_committed;
        slots_committed += (uint32_t)count;
        __atomic_store_n(&hak_units, (size_t)slots_committed * SUPERSLAB_UNITS, __ATOMIC_RELEASE);
        return count;
    }
    return 0;
}

size_t window_head_bytes(void) { return head_bytes; }
uint32_t window_slots_begin(void) { return slots_begin; }
uint32_t window_slots_end(void) { return (uint32_t)(window_units() / SUPERSLAB_UNITS); }
