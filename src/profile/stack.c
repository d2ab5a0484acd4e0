#include "profile/stack.h"

#include "os/unwind.h"
#include "profile/python.h"
#include "profile/steps.h"
#include "superslab/metadata.h"

#define KEPT 16u      /* stacks a thread keeps */
#define OWN_MOST 24u  /* HAKMEM's own frames between here and the program, at most */

struct kept {
    const void *leaf;
    struct site *site;
    unsigned count;
    struct unwind_frame frames[NATIVE_MOST + OWN_MOST];
};

struct stack_memory {
    struct stack_memory *next; /* in the list of unused ones */
    struct steps_stack steps;
    unsigned hand;             /* the place whose stack is replaced next */
    struct python_memory python;
    const char *starts[KEPT];  /* where each walk began: the frame of stack_site; NULL: the place has no stack */
    struct kept kept[KEPT];    /* most threads touch the memory of few */
};

static struct stack_memory *unused_stacks; /* under profile_lock */

static struct stack_memory *memory_of(struct stack_memory **memory)
{
    if (memory == NULL || *memory != NULL)
        return memory ? *memory : NULL;
    lock_acquire(&profile_lock);
    if (unused_stacks) {
        *memory = unused_stacks;
        unused_stacks = unused_stacks->next;
    }
    lock_release(&profile_lock);
    if (*memory == NULL)
        *memory = metadata_allocate(sizeof **memory, _Alignof(struct stack_memory));
    return *memory;
}

void stack_leave(struct stack_memory **memory)
{
    struct stack_memory *mine = *memory;

    if (mine == NULL)
        return;
    *memory = NULL;
    mine->python = (struct python_memory){ 0 };
    for (unsigned i = 0; i < KEPT; i++)
        mine->starts[i] = NULL; /* the next thread's stack may lie where this one's did */
    mine->steps = (struct steps_stack){ 0 };
    lock_acquire(&profile_lock);
    mine->next = unused_stacks;
    unused_stacks = mine;
    lock_release(&profile_lock);
}

/* Reads the slots from the innermost out. While the values agree, the next slot lies on the stack and can be read. */
static bool is_same(const struct kept *kept, const void *leaf)
{
    if (kept->leaf != leaf)
        return false;
    for (unsigned i = 0; i < kept->count; i++)
        if (*(volatile uintptr_t *)kept->frames[i].slot != kept->frames[i].address)
            return false;
    return true;
}

/* The site of the program's part of the stack: HAKMEM's own frames at its start are left out. */
static struct site *make_site(const void *leaf, const struct label_set *labels, const struct unwind_frame *frames,
                              unsigned count, struct stack_memory *memory)
{
    struct python_memory forgotten = { 0 };
    uintptr_t addresses[STACK_MOST];
    unsigned length = 0, i = 0;

    while (i < count && os_unwind_is_own(frames[i].address))
        i++;
    if (leaf)
        addresses[length++] = (uintptr_t)leaf + 1; /* as return addresses are */
    for (; i < count && length < NATIVE_MOST; i++)
        addresses[length++] = frames[i].address;
    if (python_found())
        length =
            python_merge(memory ? &memory->python : &forgotten, addresses, length, STACK_MOST, length < NATIVE_MOST);
    return table_site(addresses, length, labels);
}

/* Drops the frames below `start`, where stack_site's own frame is: they belong to the unwinder and are gone when the
 * next walk begins. Returns the number of those left. */
static unsigned drop_inner(const char *start, struct unwind_frame *frames, unsigned count)
{
    unsigned first = 0;

    while (first < count && (const char *)frames[first].slot < start)
        first++;
    if (first == count)
        first = 0; /* the unwinder returns no slots */
    __builtin_memmove(frames, frames + first, (count - first) * sizeof *frames);
    return count - first;
}

/* The frames from stack_site's caller on. *whole: they are all there are. */
static unsigned walk_unwound(const char *start, struct unwind_frame *frames, unsigned capacity, bool *whole)
{
    unsigned count = os_unwind(frames, capacity);

    *whole = count < capacity;
    return drop_inner(start, frames, count);
}

struct joining {
    const struct steps_stack *steps;
    const char *start;
    struct unwind_frame *frames;
    unsigned capacity, count; /* count: of all frames, once they have joined */
};

/* Whether the way from the unwinder's last frame on is known. */
static bool join(void *argument, unsigned count)
{
    struct joining *joining = argument;
    struct unwind_frame *last = &joining->frames[count - 1];
    unsigned more;

    if ((const char *)last->slot < joining->start)
        return false;
    more = steps_follow(joining->steps, last->slot, last, joining->capacity - count + 1);
    joining->count = more ? count - 1 + more : 0;
    return more != 0;
}

static unsigned walk_joined(const struct steps_stack *steps, const char *start, struct unwind_frame *frames,
                            unsigned capacity, bool *whole)
{
    struct joining joining = { steps, start, frames, capacity, 0 };
    unsigned count = os_unwind_until(frames, capacity, join, &joining);

    if (joining.count)
        count = joining.count;
    *whole = count < capacity;
    return drop_inner(start, frames, count);
}

/* As walk_unwound, where every block is a sample, so that walks take most of the time. */
static unsigned walk_learning(struct steps_stack *steps, const char *start, struct unwind_frame *frames,
                              unsigned capacity)
{
    /* The return address lies above the saved frame pointer, at which the frame starts. */
    const uintptr_t *slot = (const uintptr_t *)start + 1;
    bool whole, may_join;
    unsigned count = steps_walk(steps, slot, frames, capacity, &may_join);

    if (count)
        return count;
    count = may_join ? walk_joined(steps, start, frames, capacity, &whole)
                     : walk_unwound(start, frames, capacity, &whole);
    if (count && frames[0].slot == slot)
        steps_learn(steps, frames, count, whole);
    return count;
}

HAK_NOINLINE struct site *stack_site(const void *leaf, const struct label_set *labels, struct stack_memory **memory,
                                     bool often)
{
    const char *start = __builtin_frame_address(0);
    struct stack_memory *kept = memory_of(memory);
    struct unwind_frame local[NATIVE_MOST], *frames = local;
    unsigned capacity = NATIVE_MOST, count;
    struct kept *place = NULL;
    unsigned number = 0;
    bool keep = true, whole;

    if (kept) {
        for (unsigned i = 0; i < KEPT; i++)
            if (kept->starts[i] == start && is_same(&kept->kept[i], leaf))
                /* One frame of Python's loop serves changing functions. */
                return python_found() || kept->kept[i].site->labels != labels
                           ? make_site(leaf, labels, kept->kept[i].frames, kept->kept[i].count, kept)
                           : kept->kept[i].site;
        number = kept->hand++ % KEPT;
        place = &kept->kept[number];
        kept->starts[number] = NULL;
        frames = place->frames;
        capacity = NATIVE_MOST + OWN_MOST;
    }
    count = kept && often && os_unwind_by_tables() ? walk_learning(&kept->steps, start, frames, capacity)
                                                   : walk_unwound(start, frames, capacity, &whole);
    if (place == NULL)
        return make_site(leaf, labels, frames, count, NULL);
    place->site = make_site(leaf, labels, frames, count, kept);
    for (unsigned i = 0; i < count; i++)
        keep &= frames[i].slot != NULL;
    place->leaf = leaf;
    place->count = count;
    kept->starts[number] = keep && place->site ? start : NULL;
    return place->site;
}
