#include "harden/look.h"

#include "base/format.h"
#include "harden/seal.h"
#include "os/os.h"
#include "os/peek.h"
#include "pool/misuse.h"

/* A finding must stand in so many reads, with a system call between two: that takes longer than a store takes to
 * arrive. A false one would need a thread that frees the block and takes it again, with the same size, in each read. */
#define LOOK_READS 4u

/* The block's seal as one word; 0: it has none. */
static uint64_t look_word(const char *block, unsigned class, struct ledger *ledger, unsigned index)
{
    if (seal_in_tail(class))
        return __atomic_load_n((const uint64_t *)(const void *)(block + class_size(class) - SEAL_BYTES),
                               __ATOMIC_ACQUIRE); /* Acquire: the bytes are read after it. */
    return __atomic_load_n(&ledger->sizes[index], __ATOMIC_ACQUIRE);
}

/* The first byte in [from, to) of the block that is neither zero nor in its place in the canary; `to` if there is none.
 * The canary begins at `from` (V18). */
static size_t look_first_wrong(const char *block, size_t from, size_t to)
{
    uint64_t canary = seal_canary(block);
    const char *wanted = (const char *)&canary;
    const volatile char *now = block; /* read again each time */

    for (size_t at = from; at < to; at++) {
        char byte = now[at];
        if (byte != 0 && (at - from >= SEAL_BYTES || byte != wanted[at - from]))
            return at;
    }
    return to;
}

/* Whether the seal's bytes can be read. The program may have closed the pages of a block of a page or more. */
static bool look_may_read(const char *block, unsigned class, size_t requested)
{
    uintptr_t at = (uintptr_t)block + requested, last = at + seal_canary_bytes(class, requested) - 1;

    return class_size(class) < os_page_size() ||
           (os_can_read(at & ~(uintptr_t)3) && os_can_read(last & ~(uintptr_t)3));
}

/* Whether a write broke the seal. *seal tells where. */
static bool look_is_broken(const char *block, unsigned class, struct ledger *ledger, unsigned index, struct seal *seal)
{
    uint64_t word = look_word(block, class, ledger, index);
    bool in_tail = seal_in_tail(class), broken;

    if (word == 0)
        return false;
    /* A tail word changes in one store, so it needs no second byte as a witness. */
    broken = in_tail && !seal_is_tail(block, word);
    if (!broken && !in_tail && !look_may_read(block, class, (word & SEAL_LEDGER_SIZE_MASK) - 1))
        return false;
    if (HAK_LIKELY(seal_read(block, class, ledger, index, seal) != SEAL_BROKEN))
        return false;
    if (!broken) {
        size_t end = in_tail ? class_size(class) - SEAL_BYTES
                             : seal->requested + seal_canary_bytes(class, seal->requested);
        if (seal->requested >= end || (seal->changed = look_first_wrong(block, seal->requested, end)) == end)
            return false;
    }
    /* Acquire: the word is read again after all bytes, also where processors change the order of loads. */
    atomic_thread_fence(memory_order_acquire);
    return look_word(block, class, ledger, index) == word;
}

static bool look_stays_broken(const char *block, unsigned class, struct ledger *ledger, unsigned index,
                              struct seal *seal)
{
    struct seal again;

    if (HAK_LIKELY(!look_is_broken(block, class, ledger, index, seal)))
        return false;
    for (unsigned i = 1; i < LOOK_READS; i++)
        if (!os_can_read((uintptr_t)block) || !look_is_broken(block, class, ledger, index, &again) ||
            again.changed != seal->changed || again.requested != seal->requested)
            return false;
    return true;
}

static void look_at(struct slab_look *base, struct slab *slab)
{
    struct look *look = (struct look *)base;
    struct ledger *ledger = ledger_of(slab);
    unsigned class = slab->class;
    struct seal seal;

    for (unsigned i = 0; i < slab_words(slab) && look->block == NULL; i++) {
        uint64_t used = ~(atomic_load_explicit(&slab->local[i], memory_order_relaxed) |
                          atomic_load_explicit(&slab->remote[i], memory_order_relaxed)) &
                        base_low_mask(slab->blocks - i * 64);
        for (; used && look->block == NULL; used &= used - 1) {
            unsigned index = i * 64 + base_low_bit(used);
            const char *block = slab->start + (size_t)index * class_size(class);
            if (HAK_LIKELY(!look_stays_broken(block, class, ledger, index, &seal)))
                continue;
            look->before = index < slab_blocks_withheld(class);
            look->block = look->before ? block + class_size(class) : block;
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
