#include "profile/steps.h"

#include "superslab/metadata.h"

/* A direct-mapped table. A word holds the bits of a return address that its place does not imply, and its step. */
#define PLACE_BITS 15u
#define STEP_MOST 8192u /* words; a larger frame is left to the unwinder */
#define STEP_END (STEP_MOST + 1)    /* the stack ends here */
#define STEP_CHANGES (STEP_MOST + 2) /* the frame has no fixed size */
#define TAG_SHIFT 16u
#define NEAR_BYTES HAK_MIB /* how far a stack may have grown below the unwinder's last walk */

static _Atomic(_Atomic uint64_t *) all_steps; /* Order: release as it is made, acquire; relaxed for words */

static _Atomic uint64_t *known_steps(void)
{
    _Atomic uint64_t *there = atomic_load_explicit(&all_steps, memory_order_acquire), *mine;

    if (HAK_LIKELY(there != NULL))
        return there;
    mine = metadata_allocate(sizeof *mine << PLACE_BITS, _Alignof(uint64_t));
    if (mine == NULL || atomic_compare_exchange_strong(&all_steps, &there, mine))
        return mine;
    return there; /* another thread's table; this thread's stays unused, once in a process */
}

static size_t step_place(uintptr_t address)
{
    return (size_t)((address ^ (address >> PLACE_BITS) * UINT64_C(0x9e3779b1)) & ((UINT64_C(1) << PLACE_BITS) - 1));
}

/* The bits above PLACE_BITS and the place identify an address of at most 63 bits. */
static uint64_t step_tag(uintptr_t address) { return (uint64_t)(address >> PLACE_BITS) << TAG_SHIFT; }

/* Words from the slot of the return address to its caller's slot; 0: not known. */
static uint64_t step_from(const _Atomic uint64_t *steps, uintptr_t address)
{
    uint64_t entry = atomic_load_explicit(&steps[step_place(address)], memory_order_relaxed);

    return (entry >> TAG_SHIFT) << TAG_SHIFT == step_tag(address) ? entry & ((UINT64_C(1) << TAG_SHIFT) - 1) : 0;
}

static void step_set(_Atomic uint64_t *steps, uintptr_t address, uint64_t step)
{
    uint64_t known = step_from(steps, address);

    if (known == step || known == STEP_CHANGES)
        return;
    atomic_store_explicit(&steps[step_place(address)], step_tag(address) | (known ? STEP_CHANGES : step),
                          memory_order_relaxed);
}

unsigned steps_follow(const struct steps_stack *stack, const uintptr_t *slot, struct unwind_frame *frames,
                      unsigned capacity)
{
    const _Atomic uint64_t *steps = known_steps();
    unsigned count = 0;

    while (steps && count < capacity && (const char *)slot <= stack->top) {
        uintptr_t address = *(const volatile uintptr_t *)slot;
        uint64_t step = step_from(steps, address);

        if (step == 0 || step == STEP_CHANGES)
            return 0;
        frames[count++] = (struct unwind_frame){ address, slot };
        if (step == STEP_END || count == capacity)
            return count;
        slot += step;
    }
    return 0;
}

unsigned steps_walk(struct steps_stack *stack, const uintptr_t *slot, struct unwind_frame *frames, unsigned capacity,
                    bool *may_join)
{
    const char *start = (const char *)slot;

    *may_join = start < stack->top && start + NEAR_BYTES >= stack->low && ++stack->walks % STEPS_CHECKED != 0;
    return *may_join ? steps_follow(stack, slot, frames, capacity) : 0;
}

void steps_learn(struct steps_stack *stack, const struct unwind_frame *frames, unsigned count, bool whole)
{
    _Atomic uint64_t *steps = known_steps();

    if (steps == NULL || count == 0 || frames[0].slot == NULL)
        return;
    for (unsigned i = 0; i < count; i++) {
        const uintptr_t *here = frames[i].slot, *next = i + 1 < count ? frames[i + 1].slot : NULL;
        if (here == NULL)
            break;
        stack->top = (const char *)here;
        if (next > here && (size_t)(next - here) <= STEP_MOST)
            step_set(steps, frames[i].address, (uint64_t)(next - here));
        else if (i + 1 < count)
            step_set(steps, frames[i].address, STEP_CHANGES);
        else if (whole)
            step_set(steps, frames[i].address, STEP_END);
    }
    stack->low = (const char *)frames[0].slot;
}
