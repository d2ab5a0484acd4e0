#include "profile/stack.h"

#include "os/unwind.h"
#include "superslab/metadata.h"

#define KEPT 16u      /* stacks a thread keeps */
#define OWN_MOST 24u  /* frames of HAKMEM's own between here and the program, at most */

struct kept {
    const char *start; /* where the walk began: the frame of stack_site */
    const void *leaf;
    struct site *site;
    unsigned count;
    struct unwind_frame frames[STACK_MOST + OWN_MOST];
};

struct stack_memory {
    struct stack_memory *next; /* unused */
    unsigned hand;             /* the one to be replaced next */
    struct kept kept[KEPT];
};

static struct stack_memory *unused; /* under profile_lock */

static struct stack_memory *memory_of(struct stack_memory **memory)
{
    if (memory == NULL || *memory != NULL)
        return memory ? *memory : NULL;
    lock_acquire(&profile_lock);
    if (unused) {
        *memory = unused;
        unused = unused->next;
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
    for (unsigned i = 0; i < KEPT; i++)
        mine->kept[i].start = NULL; /* the next thread's stack may lie where this one's did */
    lock_acquire(&profile_lock);
    mine->next = unused;
    unused = mine;
    lock_release(&profile_lock);
}

/* The slots are read from the innermost: as long as they agree, the stack is there as far as the next one. */
static bool is_same(const struct kept *kept, const char *start, const void *leaf)
{
    if (kept->start != start || kept->leaf != leaf)
        return false;
    for (unsigned i = 0; i < kept->count; i++)
        if (*(volatile uintptr_t *)kept->frames[i].slot != kept->frames[i].address)
            return false;
    return true;
}

/* The program's part of the stack: what is HAKMEM's own is left out at its start. */
static struct site *make_site(const void *leaf, const struct unwind_frame *frames, unsigned count)
{
    uintptr_t addresses[STACK_MOST];
    unsigned length = 0, i = 0;

    while (i < count && os_unwind_is_own(frames[i].address))
        i++;
    if (leaf)
        addresses[length++] = (uintptr_t)leaf + 1; /* as return addresses are */
    for (; i < count && length < STACK_MOST; i++)
        addresses[length++] = frames[i].address;
    return table_site(addresses, length);
}

HAK_NOINLINE struct site *stack_site(const void *leaf, struct stack_memory **memory)
{
    const char *start = __builtin_frame_address(0);
    struct stack_memory *kept = memory_of(memory);
    struct unwind_frame local[STACK_MOST], *frames = local;
    unsigned capacity = STACK_MOST, count, first = 0;
    struct kept *place = NULL;
    bool keep = true;

    if (kept) {
        for (unsigned i = 0; i < KEPT; i++)
            if (is_same(&kept->kept[i], start, leaf))
                return kept->kept[i].site;
        place = &kept->kept[kept->hand++ % KEPT];
        place->start = NULL;
        frames = place->frames;
        capacity = STACK_MOST + OWN_MOST;
    }
    count = os_unwind(frames, capacity);
    /* What lies below this function's frame is the unwinder's own and gone when the next walk begins. */
    while (first < count && (const char *)frames[first].slot < start)
        first++;
    if (first == count)
        first = 0; /* no slots are known */
    __builtin_memmove(frames, frames + first, (count - first) * sizeof *frames);
    count -= first;
    if (place == NULL)
        return make_site(leaf, frames, count);
    place->site = make_site(leaf, frames, count);
    for (unsigned i = 0; i < count; i++)
        keep &= frames[i].slot != NULL;
    place->leaf = leaf;
    place->count = count;
    place->start = keep && place->site ? start : NULL;
    return place->site;
}
