#include "harden/look.h"

#include "base/format.h"
#include "harden/seal.h"
#include "os/os.h"
#include "os/peek.h"
#include "pool/misuse.h"

/* A finding must stand in so many reads, with a system call between two: that takes longer than a store takes to
 * arrive. A false one would need a thread that frees the block and takes it again, with the same size, in each read. */
#define LOOK_READS 4u

/* Whether the seal's bytes can be read. The program may have closed the pages of a block of a page or more. */
static bool look_may_read(const char *block, size_t slot, size_t from)
{
    return slot < os_page_size() || (os_can_read((uintptr_t)(block + from) & ~(uintptr_t)3) &&
                                     os_can_read((uintptr_t)(block + slot - SEAL_BYTES)));
}

/* The first byte of the slack that is neither zero nor as it was given (V18); `slot`: none. */
static size_t look_first_wrong(const char *block, size_t slot, size_t requested)
{
    uint64_t pattern = SEAL_PATTERN;
    const char *wanted = (const char *)&pattern;
    size_t at = seal_slack_at(slot, requested);
    const volatile char *now = block + at; /* read again each time */

    for (size_t i = requested - at; i < SEAL_BYTES; i++) {
        char byte = now[i];
        if (byte != 0 && byte != wanted[i])
            return at + i;
    }
    return slot;
}

/* Whether a write broke the seal. *seal tells where. */
static bool look_is_broken(const char *block, size_t slot, struct seal *seal)
{
    uint64_t word;

    if (!look_may_read(block, slot, slot - SEAL_BYTES))
        return false;
    word = seal_of(block, slot);
    if (word == 0)
        return false;
    /* Acquire: the slack is read later than the seal. */
    atomic_thread_fence(memory_order_acquire);
    /* A seal changes in one store, so a wrong one needs no other witness. */
    if (!seal_decode(word ^ seal_mix(block), slot, seal)) {
        if (seal_read(block, slot, seal) != SEAL_BROKEN)
            return false;
    } else {
        if (!look_may_read(block, slot, seal->requested))
            return false;
        seal->changed = look_first_wrong(block, slot, seal->requested);
        if (HAK_LIKELY(seal->changed == slot))
            return false;
    }
    /* Acquire: the word is read again after all bytes, also where processors change the order of loads. */
    atomic_thread_fence(memory_order_acquire);
    return seal_of(block, slot) == word;
}

static bool look_stays_broken(const char *block, size_t slot, struct seal *seal)
{
    struct seal again;

    if (HAK_LIKELY(!look_is_broken(block, slot, seal)))
        return false;
    for (unsigned i = 1; i < LOOK_READS; i++)
        if (!os_can_read((uintptr_t)block) || !look_is_broken(block, slot, &again) ||
            again.changed != seal->changed || again.requested != seal->requested)
            return false;
    return true;
}

static void look_at(struct slab_look *base, struct slab *slab)
{
    struct look *look = (struct look *)base;
    size_t slot = class_size(slab->class);
    struct seal seal;

    HAK_ASSERT(!class_is_span(slab->class)); /* they are not scrubbed */
    for (unsigned i = 0; i < slab_words(slab) && look->block == NULL; i++) {
        uint64_t used = ~(atomic_load_explicit(&slab->local[i], memory_order_relaxed) |
                          atomic_load_explicit(&slab->remote[i], memory_order_relaxed)) &
                        base_low_mask(slab->blocks - i * 64);
        for (; used && look->block == NULL; used &= used - 1) {
            unsigned index = i * 64 + base_low_bit(used);
            const char *block = slab->start + index * slot;
            if (HAK_LIKELY(!look_stays_broken(block, slot, &seal)))
                continue;
            look->before = index < slab_blocks_withheld(slab->class);
            look->block = look->before ? block + slot : block;
            look->requested = seal.requested;
            look->changed = seal.changed;
        }
    }
}

struct slab_look *look_begin(struct look *look)
{
    *look = (struct look){ .slab_look = { look_at } };
    return &look->slab_look;
}

void look_report(const struct look *look)
{
    static const char found[] = "found as its slab is scrubbed";
    char words[160];

    if (HAK_LIKELY(look->block == NULL) || atomic_load_explicit(&misuse_culprit, memory_order_relaxed) != 0)
        return; /* what was reported already ends the process: one line is enough */
    if (look->before)
        base_format(words, sizeof words, "the memory before it was written; %s", found);
    else if (look->requested == SIZE_MAX)
        base_format(words, sizeof words,
                    "written past its end: byte %zu of the block, behind what was asked for, changed; %s",
                    look->changed, found);
    else
        base_format(words, sizeof words, "written past its end: %zu bytes were asked for, byte %zu changed; %s",
                    look->requested, look->changed, found);
    misuse_report_words("scrub", look->block, words);
}
