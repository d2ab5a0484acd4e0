#include "harden/patrol.h"

#include "base/format.h"
#include "harden/seal.h"
#include "harden/spans.h"
#include "os/os.h"
#include "pool/misuse.h"
#include "pool/slab.h"

/* One block in so many that go back to their slabs is looked at, and as many others. Of a run, one in so many. */
#define PATROL_STEP 4u
#define PATROL_RUN_STEP 16u

void patrol_report_written(char *block, size_t slot, const char *function, const char *found)
{
    size_t at = seal_first_changed(block, slot);
    char words[160];

    if (at == slot)
        return;
    base_format(words, sizeof words, "written while it was free, at byte %zu (now 0x%02x); %s", at,
                (unsigned)(unsigned char)block[at], found);
    misuse_report_words(function, block, words);
    seal_clear_any(block, slot);
}

/* Whether the ends of blocks in use can be read: the program may have closed the pages of larger ones. */
static bool patrol_may_read(size_t slot) { return slot < os_page_size(); }

/* Looks at the seals of blocks in use at a random place in the slab of `block`. The slab stays because the thread has
 * that block. So a write past a block is found even if neither the block nor a neighbour is freed. Looks at no more
 * than `most` blocks. */
static void patrol(char *block, unsigned class, unsigned most, const char *function, uint64_t *chance)
{
    struct slab *slab = slab_of(block);
    unsigned number, first;
    size_t slot = class_size(class);
    uint64_t used;

    if (!patrol_may_read(slot))
        return;
    number = harden_chance(chance, slab_words(slab));
    first = harden_chance(chance, 64);
    used = ~(atomic_load_explicit(&slab->local[number], memory_order_relaxed) |
             atomic_load_explicit(&slab->remote[number], memory_order_relaxed)) &
           base_low_mask(slab->blocks - number * 64);
    if ((used & ~base_low_mask(first)) != 0)
        used &= ~base_low_mask(first);
    for (; used && most; used &= used - 1, most--) {
        char *at = slab->start + ((size_t)number * 64 + base_low_bit(used)) * slot;
        if (HAK_LIKELY(seal_may_be(at, slot)))
            continue;
        patrol_report_end(at, function, "found by a patrol");
        return;
    }
}

/* Whether the seal before the block, if another block is there, was written. For a thread that has the block. */
static bool neighbour_is_written(const char *block, size_t slot)
{
    /* A slab begins with a unit. Where a unit is no slab's first, one block has a neighbour that is not looked at. */
    return patrol_may_read(slot) && ((uintptr_t)block & (UNIT_SIZE - 1)) >= slot && !seal_may_be(block - slot, slot);
}

static HAK_COLD void report_neighbour(const char *block, size_t slot, const char *function)
{
    char words[160];

    if (atomic_load_explicit(&misuse_culprit, memory_order_relaxed) != 0) /* one line is enough */
        return;
    base_format(words, sizeof words, "the block before it, %p, was written at or past its end",
                (const void *)(block - slot));
    misuse_report_words(function, block, words);
}

/* Whether all blocks are as they were left. Without a branch for each where they are looked at whole. */
static bool are_clear(void *const *blocks, unsigned count, size_t slot)
{
    seal_words any = { 0 };

    if (slot > SEAL_WATCHED_MOST) {
        for (unsigned i = 0; i < count; i++)
            if (HAK_UNLIKELY(!seal_is_clear(blocks[i], slot, seal_mix(blocks[i]))))
                return false;
        return true;
    }
    for (unsigned i = 0; i < count; i++)
        any |= seal_union(blocks[i], slot);
    return (any[0] | any[1]) == 0;
}

/* Reports free blocks that were written, and the ends of blocks before one in `step` of them, from `from` on. */
static void look(void *const *blocks, unsigned count, unsigned from, unsigned step, unsigned class,
                 const char *function, const char *found)
{
    size_t slot = class_size(class);

    if (HAK_UNLIKELY(!are_clear(blocks, count, slot)))
        for (unsigned i = 0; i < count; i++)
            patrol_report_written(blocks[i], slot, function, found);
    for (unsigned i = from; i < count; i += step)
        if (HAK_UNLIKELY(neighbour_is_written(blocks[i], slot)))
            report_neighbour(blocks[i], slot, function);
}

void patrol_exit(void *const *blocks, unsigned count, unsigned class, const char *found)
{
    if (class_is_span(class))
        spans_look(blocks, count, "exit", found);
    else
        look(blocks, count, 0, 1, class, "exit", found);
}

void patrol_flushed(void *const *blocks, unsigned count, unsigned class, uint64_t *chance)
{
    static const char found[] = "found as it leaves the quarantine";

    if (class_is_span(class)) {
        spans_look(blocks, count, "free", found);
        return;
    }
    look(blocks, count, harden_chance(chance, PATROL_STEP), PATROL_STEP, class, "free", found);
    if (HAK_LIKELY(count != 0))
        patrol(blocks[0], class, count / PATROL_STEP, "free", chance);
}

char *patrol_slab(struct slab *slab, bool *in_use)
{
    size_t slot = class_size(slab->class);
    unsigned withheld = slab_blocks_withheld(slab->class);
    size_t page = os_page_size();
    uint64_t given = atomic_load_explicit(&slab->given, memory_order_relaxed);

    for (unsigned i = withheld; i < slab->blocks; i++) {
        char *block = slab->start + i * slot;
        *in_use = !((atomic_load_explicit(&slab->local[i / 64], memory_order_relaxed) >> i % 64) & 1);
        /* A look at a page of which nothing was given out would fault it in. */
        if (!*in_use && !(given & (slab_page_bit(slab, block, page) | slab_page_bit(slab, block + slot - 1, page))))
            continue;
        if (HAK_UNLIKELY(*in_use ? patrol_may_read(slot) && !seal_may_be(block, slot)
                                 : !seal_is_clear(block, slot, seal_mix(block))))
            return block;
    }
    return NULL;
}

void patrol_report_end(char *block, const char *function, const char *found)
{
    char words[160];

    base_format(words, sizeof words, "written at or past its end; %s", found);
    if (atomic_load_explicit(&misuse_culprit, memory_order_relaxed) == 0) /* one line is enough */
        misuse_report_words(function, block, words);
}

void patrol_taken(void *const *blocks, unsigned count, unsigned class, uint64_t *chance)
{
    if (HAK_LIKELY(count != 0))
        patrol(blocks[0], class, (unsigned)base_max(count / PATROL_RUN_STEP, 1), "malloc", chance);
}
