#include "profile/guard.h"

#include <errno.h>
#include <string.h>

#include "config/limits.h"
#include "options/options.h"
#include "os/unwind.h"
#include "pool/misuse.h"
#include "profile/guard_report.h"
#include "profile/profile.h"
#include "superslab/metadata.h"

HAK_DATA_HERE struct guard guard;
HAK_DATA_HERE struct lock guard_lock = LOCK_INIT(LOCK_RANK_GUARD);
HAK_DATA_HERE struct lock guard_report_lock = LOCK_INIT(LOCK_RANK_GUARD_REPORT);

enum {
    MARGIN = 64,       /* bytes before and behind a block that hold a pattern, as far as the page reaches */
    OWN_FRAMES = 16,   /* HAKMEM's own between here and the program, at most */
    SLOTS_BYTES = 768, /* KiB of pages that may be in use, where pages are large */
};
#define MARGIN_BYTE 0xa7u /* differs from a program's usual bytes: zero, text, small numbers, pointers' high bytes */

/* ---- Where a slot lies ---- */

static char *guard_page_of(unsigned slot) { return (char *)guard.start + (2 * (size_t)slot + 1) * guard.page; }

static char *guard_page(unsigned number) { return (char *)guard.start + 2 * (size_t)number * guard.page; }

/* ---- Stacks ---- */

static void fill_stack(struct guard_stack *stack, const struct unwind_frame *frames, unsigned count, unsigned first)
{
    for (; first < count && stack->count < GUARD_FRAMES; first++)
        stack->frames[stack->count++] = frames[first].address - 1;
}

/* The calling thread's stack without HAKMEM's own frames. */
static HAK_NOINLINE void take_stack(struct guard_stack *stack)
{
    struct unwind_frame frames[GUARD_FRAMES + OWN_FRAMES];
    unsigned count, first = 0;

    stack->thread = os_thread_id();
    stack->count = 0;
    if (profile_busy())
        return;
    if (profile_site)
        stack->frames[stack->count++] = (uintptr_t)profile_site;
    profile_set_busy(true);
    count = os_unwind(frames, GUARD_FRAMES + OWN_FRAMES);
    profile_set_busy(false);
    while (first < count && os_unwind_is_own(frames[first].address))
        first++;
    fill_stack(stack, frames, count, first);
}

/* The stack of the instruction that faulted. The signal handler's frames are left out. */
static void take_fault_stack(struct guard_stack *stack, const struct os_fault *fault)
{
    struct unwind_frame frames[GUARD_FRAMES + OWN_FRAMES];
    unsigned count, first = 0;

    stack->thread = os_fault_thread_id();
    stack->count = 0;
    if (fault->instruction == 0)
        return;
    stack->frames[stack->count++] = fault->instruction;
    if (fault->access == OS_ACCESS_EXECUTE) { /* an unwinder would read code in the closed page */
        if (fault->caller)
            stack->frames[stack->count++] = fault->caller - 1;
        return;
    }
    count = os_unwind_fault(fault->instruction, fault->frame, frames, GUARD_FRAMES + OWN_FRAMES, &first);
    fill_stack(stack, frames, count, first);
}

/* ---- Beginning ---- */

static uint64_t next_chance(void)
{
    guard.random ^= guard.random << 13;
    guard.random ^= guard.random >> 7;
    guard.random ^= guard.random << 17;
    return guard.random;
}

static bool fault_settled(const struct os_fault *fault);

int guard_begin(unsigned slots)
{
    size_t page = os_page_size(), bytes = (2 * (size_t)slots + 1) * page;
    void *start;

    HAK_ASSERT(lock_is_held(&profile_control));
    if (guard.bytes == 0) {
        if (guard.slots == NULL)
            guard.slots = metadata_allocate(slots * (sizeof *guard.slots + sizeof *guard.queue + sizeof *guard.open) +
                                                sizeof *guard.open,
                                            _Alignof(struct guard_slot));
        if (guard.slots == NULL || (start = os_fault_reserve(bytes)) == NULL)
            return ENOMEM;
        os_name(start, bytes, "hakmem guard");
        guard.queue = (uint16_t *)(guard.slots + slots);
        guard.open = (bool *)(guard.queue + slots);
        for (unsigned slot = 0; slot < slots; slot++)
            guard.queue[slot] = (uint16_t)slot;
        guard.page = page;
        guard.count = guard.waiting = slots;
        guard.keep = (uint32_t)base_max(slots / 4, slots - base_min(slots, base_max(SLOTS_BYTES * HAK_KIB / page, 4)));
        guard.random = os_random() | 1;
        atomic_store(&guard.start, (uintptr_t)start);
        atomic_store_explicit(&guard.bytes, bytes, memory_order_release);
    }
    return os_fault_take(fault_settled);
}

/* ---- Margins ---- */

static size_t margin_before(const struct guard_slot *slot, const char *page)
{
    return base_min(slot->block - (uintptr_t)page, MARGIN);
}

static size_t margin_behind(const struct guard_slot *slot, const char *page)
{
    return base_min((uintptr_t)page + guard.page - (slot->block + slot->size), MARGIN);
}

/* The changed byte nearest to the block, in the margin behind it or else in the one before it; 0: none. */
static uintptr_t find_damage(const struct guard_slot *slot, const char *page)
{
    size_t before = margin_before(slot, page), behind = margin_behind(slot, page);
    const unsigned char *end = (const unsigned char *)slot->block + slot->size;

    for (size_t i = 0; i < behind; i++)
        if (end[i] != MARGIN_BYTE)
            return (uintptr_t)(end + i);
    for (size_t i = 1; i <= before; i++)
        if (((const unsigned char *)slot->block)[-(ptrdiff_t)i] != MARGIN_BYTE)
            return slot->block - i;
    return 0;
}

/* ---- Blocks ---- */

/* Closes the guard pages beside the slot that a report has opened. */
static void close_sides(unsigned slot)
{
    for (unsigned number = slot; number <= slot + 1; number++)
        if (guard.open[number] && os_fault_close(guard_page(number), guard.page))
            guard.open[number] = false;
}

/* Puts a block into the slot at the queue's head. If the kernel refuses, the slot stays there. Under guard_lock. */
static void *fill_slot(size_t size, size_t alignment, const struct guard_origin *origin,
                       const struct guard_stack *stack)
{
    unsigned number = guard.queue[guard.head];
    struct guard_slot *slot = &guard.slots[number];
    char *page = guard_page_of(number);

    if (!os_fault_open(page, guard.page)) /* Z6 */
        return NULL;
    close_sides(number);
    guard.head = (guard.head + 1) % guard.count;
    guard.waiting--;
    atomic_fetch_add_explicit(&guard.live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&guard.allocated, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&guard.live_bytes, size, memory_order_relaxed);
    slot->block = (uintptr_t)page;
    if (next_chance() & 1024)
        slot->block = base_align_down((uintptr_t)page + guard.page - size, alignment);
    slot->size = size;
    slot->origin = *origin;
    slot->state = GUARD_LIVE;
    slot->reported = false;
    slot->allocated = *stack;
    slot->freed.thread = slot->freed.count = 0;
    memset((char *)slot->block - margin_before(slot, page), MARGIN_BYTE, margin_before(slot, page));
    memset((char *)slot->block + size, MARGIN_BYTE, margin_behind(slot, page));
    return (void *)slot->block;
}

void *guard_allocate(size_t size, size_t alignment, const struct guard_origin *origin)
{
    struct guard_stack stack;
    void *block = NULL;

    size = base_max(size, 1);
    if (size > guard.page || alignment > guard.page || guard.waiting <= guard.keep) /* Z7, before the lock */
        return NULL;
    take_stack(&stack);
    alignment = base_max(alignment, size < BLOCK_ALIGN ? BLOCK_ALIGN / 2 : BLOCK_ALIGN);
    lock_acquire(&guard_lock);
    if (guard.waiting > guard.keep)
        block = fill_slot(size, alignment, origin, &stack);
    lock_release(&guard_lock);
    return block;
}

/* The slot whose page the address is in. NULL: the address is in guard page *number, or outside the range. */
static struct guard_slot *guard_slot_of(uintptr_t address, unsigned *number)
{
    size_t place;

    if (!guard_covers((const void *)address))
        return NULL;
    place = (address - guard.start) / guard.page;
    *number = (unsigned)(place / 2);
    return place & 1 ? &guard.slots[place / 2] : NULL;
}

/* Frees the slot. In a process that goes on after errors the contents stay, for reads after free. Under guard_lock. */
static void empty_slot(unsigned number, const struct guard_stack *stack)
{
    struct guard_slot *slot = &guard.slots[number];
    char *page = guard_page_of(number);

    slot->state = GUARD_FREED;
    slot->freed = *stack;
    if (!hak_options.guard_continue)
        os_fault_empty(page, guard.page);
    os_fault_close(page, guard.page);
    close_sides(number);
    guard.queue[(guard.head + guard.waiting) % guard.count] = (uint16_t)number;
    guard.waiting++;
    atomic_fetch_sub_explicit(&guard.live, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&guard.live_bytes, slot->size, memory_order_relaxed);
}

/* ---- Reports ---- */

/* The faulty call does nothing. When it is over, the process ends (misuse_settle), unless the options let it go on. */
static void condemn(void)
{
    if (hak_options.abort_on_misuse && !hak_options.guard_continue)
        atomic_store_explicit(&misuse_culprit, os_thread_token(), memory_order_relaxed);
}

static void report_call(enum guard_error error, const char *function, uintptr_t address, const struct guard_slot *slot,
                        const struct guard_stack *stack)
{
    if (lock_is_mine(&guard_report_lock))
        return;
    lock_acquire(&guard_report_lock);
    report_make(error, function, OS_ACCESS_UNKNOWN, address, slot, stack);
    lock_release(&guard_report_lock);
    atomic_fetch_add_explicit(&guard.reports, 1, memory_order_relaxed);
    condemn();
}

/* The block nearest to an address in guard page `number`, of the slots on its two sides. NULL: neither slot was ever
 * used. Under guard_lock. */
static struct guard_slot *nearest_slot(uintptr_t address, unsigned number)
{
    struct guard_slot *before = number > 0 ? &guard.slots[number - 1] : NULL;
    struct guard_slot *behind = number < guard.count ? &guard.slots[number] : NULL;

    if (before && before->state == GUARD_UNUSED)
        before = NULL;
    if (behind && behind->state == GUARD_UNUSED)
        behind = NULL;
    if (before == NULL || behind == NULL)
        return before ? before : behind;
    return address - (before->block + before->size) < behind->block - address ? before : behind;
}

/* What is wrong with an access to the address. Under guard_lock. */
static enum guard_error judge_access(uintptr_t address, struct guard_slot **found)
{
    unsigned number = 0;
    struct guard_slot *slot = guard_slot_of(address, &number);

    *found = slot = slot ? slot : nearest_slot(address, number);
    if (slot == NULL || slot->state == GUARD_UNUSED) {
        *found = NULL;
        return GUARD_NO_BLOCK;
    }
    if (slot->state == GUARD_FREED)
        return GUARD_AFTER_FREE;
    return address < slot->block ? GUARD_BEFORE : address >= slot->block + slot->size ? GUARD_BEHIND : GUARD_INSIDE;
}

/* What is wrong with a call that was passed the address as a block. Under guard_lock. */
static enum guard_error judge_call(uintptr_t address, struct guard_slot **found)
{
    enum guard_error error = judge_access(address, found);

    if (*found && (*found)->state == GUARD_FREED && (*found)->block == address)
        return GUARD_DOUBLE_FREE;
    return error == GUARD_NO_BLOCK ? error : GUARD_INVALID_FREE;
}

void guard_misused(const void *address, const char *function)
{
    struct guard_slot copy, *slot;
    struct guard_stack stack;
    enum guard_error error;

    take_stack(&stack);
    lock_acquire(&guard_lock);
    error = judge_call((uintptr_t)address, &slot);
    if (slot)
        copy = *slot;
    lock_release(&guard_lock);
    report_call(error, function, (uintptr_t)address, slot ? &copy : NULL, &stack);
}

bool guard_free(const void *block, const char *function, struct guard_origin *origin)
{
    uintptr_t address = (uintptr_t)block, damage = 0;
    struct guard_slot *slot, copy;
    struct guard_stack stack;
    unsigned number;
    bool freed;

    take_stack(&stack);
    lock_acquire(&guard_lock);
    slot = guard_slot_of(address, &number);
    freed = slot && slot->state == GUARD_LIVE && slot->block == address;
    if (freed) {
        *origin = slot->origin;
        damage = find_damage(slot, guard_page_of(number));
        if (damage)
            copy = *slot;
        empty_slot(number, &stack);
    }
    lock_release(&guard_lock);
    if (!freed)
        guard_misused(block, function);
    else if (damage)
        report_call(damage < address ? GUARD_DAMAGED_BEFORE : GUARD_DAMAGED_BEHIND, function, damage, &copy, &stack);
    return freed;
}

void guard_free_heap(struct heap *heap)
{
    struct guard_stack stack;
    bool taken = false;

    if (guard.bytes == 0 || atomic_load_explicit(&guard.live, memory_order_relaxed) == 0)
        return;
    lock_acquire(&guard_lock);
    for (unsigned number = 0; number < guard.count; number++)
        taken |= guard.slots[number].state == GUARD_LIVE && guard.slots[number].origin.heap == heap;
    lock_release(&guard_lock);
    if (!taken)
        return;
    take_stack(&stack);
    lock_acquire(&guard_lock);
    for (unsigned number = 0; number < guard.count; number++)
        if (guard.slots[number].state == GUARD_LIVE && guard.slots[number].origin.heap == heap)
            empty_slot(number, &stack);
    lock_release(&guard_lock);
}

size_t guard_size(const void *block, struct heap **heap)
{
    unsigned number;
    struct guard_slot *slot;
    size_t size = 0;

    lock_acquire(&guard_lock);
    slot = guard_slot_of((uintptr_t)block, &number);
    if (slot && slot->state == GUARD_LIVE && slot->block == (uintptr_t)block) {
        size = slot->size;
        if (heap)
            *heap = slot->origin.heap;
    }
    lock_release(&guard_lock);
    return size;
}

size_t guard_bytes_in_use(size_t *live)
{
    size_t pages;

    lock_acquire(&guard_lock);
    pages = (size_t)guard.live * guard.page;
    *live = (size_t)guard.live_bytes;
    lock_release(&guard_lock);
    return pages;
}

/* ---- Faults ---- */

/* Opens the page of the address, so that the program goes on. Under guard_lock. */
static bool open_page(uintptr_t address)
{
    size_t place = (address - guard.start) / guard.page;

    if (!os_fault_open((char *)guard.start + place * guard.page, guard.page))
        return false;
    if (place % 2 == 0)
        guard.open[place / 2] = true;
    return true;
}

static struct guard_slot fault_slot;   /* under guard_report_lock, as the next; an alternate stack has little room */
static struct guard_stack fault_stack;

static bool fault_settled(const struct os_fault *fault)
{
    static bool said_no_block;
    struct guard_slot *slot;
    enum guard_error error;
    bool fresh, settled;

    if (!guard_covers((const void *)fault->address) || lock_is_mine(&guard_report_lock) || lock_is_mine(&guard_lock))
        return false;
    lock_acquire(&guard_report_lock);
    lock_acquire(&guard_lock);
    error = judge_access(fault->address, &slot);
    if (slot)
        fault_slot = *slot;
    fresh = slot ? !slot->reported : !said_no_block;
    if (error == GUARD_INSIDE) {
        /* The slot was taken again after the fault, or the block was executed as code. */
        settled = fault->access == OS_ACCESS_READ || fault->access == OS_ACCESS_WRITE;
        fresh = false;
    } else {
        settled = hak_options.guard_continue && open_page(fault->address);
        said_no_block |= slot == NULL;
        if (slot)
            slot->reported = true;
    }
    lock_release(&guard_lock);
    if (fresh) {
        take_fault_stack(&fault_stack, fault);
        report_make(error, NULL, fault->access, fault->address, slot ? &fault_slot : NULL, &fault_stack);
        atomic_fetch_add_explicit(&guard.reports, 1, memory_order_relaxed);
    }
    lock_release(&guard_report_lock);
    return settled;
}
