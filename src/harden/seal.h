/*
 * The seal: a word that tells of each block of libhakmem-secure whether the program holds it, how many bytes it asked
 * for, and which function gave it.
 *
 *   slots of slabs   | requested bytes | slack | seal |    the seal is the slot's last 8 bytes
 *   spans            | requested bytes | guard word |      the size is in the slab's record (V6)
 *   huge blocks      | requested bytes | guard word |      harden/large.h
 *
 * The seal of a live block is a mix of its address and the process's secret, XOR a code in its upper bits: the
 * requested bytes, and the kind. So no address inside a block has a seal. A write past a block comes to the lower bits
 * first, which must be the mix's. The first 8 bytes of slack hold a pattern, none of whose bytes is zero: a write
 * directly behind the requested bytes changes it, a string's final zero too. A free block is zero, its seal included.
 *
 * V5: a free is valid only if the block has a live seal, which it takes off. Of two frees at the same moment both may
 *     find it; then the block's slab finds the second.
 * V6: a block has a live seal from before the program gets it until its free, and at no other time. A span's record has
 *     its size then, and else 0.
 * V7: a free slot of up to ZEROED_MOST bytes reads as zero wherever it waits, and so does a unit of the shared pool,
 *     unless superslab.unclean says that larger blocks were there. Of a larger free slot the edges read as zero: the
 *     first FREE_EDGE bytes, and the last FREE_EDGE_BEHIND. Of a free span the first FREE_EDGE bytes do.
 */
#ifndef HAK_HARDEN_SEAL_H
#define HAK_HARDEN_SEAL_H

#include "harden/harden.h"

#define SEAL_BYTES ((size_t)8)
/* What each request takes in addition. */
#define SEAL_ROOM (HAK_SECURE ? SEAL_BYTES : 0)

enum seal_kind { SEAL_MALLOC = 0, SEAL_NEW, SEAL_NEW_ARRAY };

enum seal_state {
    SEAL_WHOLE,
    SEAL_NONE,  /* the program does not hold the block */
    SEAL_BROKEN
};

struct seal {
    size_t requested; /* SIZE_MAX: not known, as the seal is broken */
    size_t changed;   /* SEAL_BROKEN: offset of the first byte in the block that changed, as far as can be told */
    enum seal_kind kind;
};

#define SEAL_CODE_BITS 20  /* the upper ones of a seal */
#define SEAL_KIND_SHIFT 16 /* of a code; its upper two bits are 0 */
#define SEAL_SIZE_MASK ((UINT64_C(1) << SEAL_KIND_SHIFT) - 1)
#define SEAL_PATTERN UINT64_C(0x5aa55aa55aa55aa5)

HAK_INLINE uint64_t seal_mix(const void *block)
{
    return ((uint64_t)(uintptr_t)block ^ harden.secret[0]) * harden.secret[1];
}

HAK_INLINE uint64_t seal_load(const char *at)
{
    uint64_t word;
    __builtin_memcpy(&word, at, sizeof word);
    return word;
}

HAK_INLINE void seal_store(char *at, uint64_t word) { __builtin_memcpy(at, &word, sizeof word); }

/* The seal of the slot, which any thread may have. It changes in one store. */
HAK_INLINE uint64_t seal_of(const char *block, size_t slot)
{
    return __atomic_load_n((const uint64_t *)(const void *)(block + slot - SEAL_BYTES), __ATOMIC_RELAXED);
}

HAK_INLINE void seal_set(char *block, size_t slot, uint64_t seal)
{
    /* Release: the pattern in the slack was stored before (V18 in harden/look.h). */
    __atomic_store_n((uint64_t *)(void *)(block + slot - SEAL_BYTES), seal, __ATOMIC_RELEASE);
}

HAK_INLINE uint64_t seal_code(size_t requested, enum seal_kind kind)
{
    return (requested | (uint64_t)kind << SEAL_KIND_SHIFT) << (64 - SEAL_CODE_BITS);
}

/* The code of a word, a seal XOR its block's mix. Above it come the bits that must be 0. */
HAK_INLINE uint64_t seal_code_of(uint64_t word) { return word << SEAL_CODE_BITS | word >> (64 - SEAL_CODE_BITS); }

/* Whether such a word is that of a live block of the slot and the kind. *requested: its size. */
HAK_INLINE bool seal_is_live(uint64_t word, size_t slot, enum seal_kind kind, size_t *requested)
{
    *requested = seal_code_of(word) - ((uint64_t)kind << SEAL_KIND_SHIFT);
    return *requested <= slot - SEAL_BYTES; /* not if any other bit is set */
}

/* Whether the slot's seal may be that of a block, live or free. */
HAK_INLINE bool seal_may_be(const char *block, size_t slot)
{
    uint64_t seal = seal_of(block, slot), code = seal_code_of(seal ^ seal_mix(block));

    return seal == 0 || (code >> SEAL_KIND_SHIFT <= SEAL_NEW_ARRAY && (code & SEAL_SIZE_MASK) <= slot - SEAL_BYTES);
}

/* Where the word of slack is that is checked: its first 8 bytes, or if it is shorter, the word before the seal, which
 * begins with bytes of the program. */
HAK_INLINE size_t seal_slack_at(size_t slot, size_t requested) { return base_min(requested, slot - 2 * SEAL_BYTES); }

/* By the bytes of the program in that word: a one in each bit that is slack; and the pattern there. */
HAK_DATA const uint64_t seal_slack_masks[SEAL_BYTES + 1], seal_patterns[SEAL_BYTES + 1];

/* Whether the slack behind the requested bytes is as it was given. */
HAK_INLINE bool seal_slack_is_whole(const char *block, size_t slot, size_t requested)
{
    size_t at = seal_slack_at(slot, requested);

    return ((seal_load(block + at) ^ SEAL_PATTERN) & seal_slack_masks[requested - at]) == 0;
}

/* Seals a clear slot for the program. */
HAK_INLINE void seal_put_mixed(char *block, size_t slot, size_t requested, enum seal_kind kind, uint64_t mix)
{
    size_t at = seal_slack_at(slot, requested);

    seal_store(block + at, seal_patterns[requested - at]);
    seal_set(block, slot, mix ^ seal_code(requested, kind));
}

HAK_INLINE void seal_put(char *block, size_t slot, size_t requested, enum seal_kind kind)
{
    seal_put_mixed(block, slot, requested, kind, seal_mix(block));
}

/* Gives a live slot another kind. */
HAK_INLINE void seal_set_kind(char *block, size_t slot, size_t requested, enum seal_kind kind)
{
    seal_set(block, slot, seal_mix(block) ^ seal_code(requested, kind));
}

/* Writes zeros or the pattern to the slack of a live slot, and leaves the program's bytes before it. */
HAK_INLINE void seal_change_slack(char *block, size_t slot, size_t requested, bool zero)
{
    size_t at = seal_slack_at(slot, requested), own = requested - at;

    seal_store(block + at, (seal_load(block + at) & ~seal_slack_masks[own]) | (zero ? 0 : seal_patterns[own]));
}

/* Gives a live slot another size. Meanwhile its slack has zeros (V18 in harden/look.h). */
HAK_INLINE void seal_change(char *block, size_t slot, size_t old, size_t size, enum seal_kind kind, uint64_t mix)
{
    seal_change_slack(block, slot, size, true);
    seal_change_slack(block, slot, old, true);
    seal_set(block, slot, mix ^ seal_code(size, kind));
    seal_change_slack(block, slot, size, false);
}

/* ---- Zeroes ---- */

/* Vectors of a width that each processor has. */
typedef uint64_t seal_words __attribute__((vector_size(16), may_alias));

HAK_INLINE void seal_zero_at(char *memory) { *(seal_words *)(void *)memory = (seal_words){ 0 }; }
HAK_INLINE seal_words seal_words_at(const char *memory) { return *(const seal_words *)(const void *)memory; }

/* Zeroes memory. Address and size are multiples of 16, the size at least 16. From 32 to 64 and from 80 to 128 bytes no
 * branch depends on the exact size, as the processor would guess it wrong: stores overlap instead. */
HAK_INLINE void seal_zero(char *memory, size_t size)
{
    char *last = memory + size - 16, *at = memory;

    seal_zero_at(memory);
    seal_zero_at(last);
    if (HAK_UNLIKELY(size == 16))
        return;
    seal_zero_at(memory + 16);
    seal_zero_at(last - 16);
    if (HAK_LIKELY(size <= 64))
        return;
    seal_zero_at(last - 48);
    seal_zero_at(last - 32);
    do {
        seal_zero_at(at + 32);
        seal_zero_at(at + 48);
        at += 32;
        __asm__("" : "+r"(at)); /* or the compiler would call memset */
    } while (HAK_UNLIKELY(at < last - 80));
}

/* The union of the bits of memory, as for seal_zero. */
HAK_INLINE seal_words seal_union(const char *memory, size_t size)
{
    const char *last = memory + size - 16, *at = memory;
    seal_words any = seal_words_at(memory) | seal_words_at(last);

    if (HAK_LIKELY(size > 16))
        any |= seal_words_at(memory + 16) | seal_words_at(last - 16);
    if (HAK_UNLIKELY(size > 64)) {
        any |= seal_words_at(last - 48) | seal_words_at(last - 32);
        do {
            any |= seal_words_at(at + 32) | seal_words_at(at + 48);
            at += 32;
        } while (HAK_UNLIKELY(at < last - 80));
    }
    return any;
}

HAK_INLINE bool seal_is_zero(const char *memory, size_t size)
{
    seal_words any = seal_union(memory, size);

    return (any[0] | any[1]) == 0;
}

/* Free slots of up to so many bytes are looked at whole. Up to ZEROED_MOST that holds for one address in sixteen, by
 * the secret; of the rest, a look at the edges must do. Of spans only the first FREE_EDGE bytes are looked at, of huge
 * blocks none. */
#define SEAL_WATCHED_MOST 128u

/* Whether a free slot is as it was left, as far as it is looked at. */
HAK_INLINE bool seal_is_clear(const char *block, size_t slot, uint64_t mix)
{
    if (HAK_LIKELY(slot <= 64) || slot <= SEAL_WATCHED_MOST || HAK_UNLIKELY(mix >> 60 == 0 && slot <= ZEROED_MOST))
        return seal_is_zero(block, slot);
    return seal_is_zero(block, FREE_EDGE) && seal_is_zero(block + slot - FREE_EDGE_BEHIND, FREE_EDGE_BEHIND);
}

/* Clears a slot of up to ZEROED_MOST bytes, its seal included, which lies in the last vector. */
HAK_INLINE void seal_clear(char *block, size_t slot) { seal_zero(block, slot); }

/* Clears what V7 says of the slot. */
HAK_HIDDEN void seal_clear_any(char *block, size_t slot);

/* Writes to the pages of free slots that are looked at, whose slab may have no memory behind it. Else the look at them
 * would read the system's page of zeros into place, and the write of their seal would take another fault. Notes these
 * pages in slab.given. */
HAK_HIDDEN void seal_touch(void *const *blocks, size_t count, size_t slot);

/* Reads what a word, a seal XOR its block's mix, tells of a slot. False: it is no live seal, and seal->requested is as
 * much as can be told. */
HAK_HIDDEN bool seal_decode(uint64_t word, size_t slot, struct seal *seal);

/* Reads and checks the seal of a slot. */
HAK_HIDDEN enum seal_state seal_read(const char *block, size_t slot, struct seal *seal);

/* The offset of the first byte that is not zero, or `size`. `memory` and `size` are multiples of 16. */
HAK_HIDDEN size_t seal_first_written(const char *memory, size_t size);

/* The offset of the first byte of a free slot that is not as V7 says, or `slot`. */
HAK_HIDDEN size_t seal_first_changed(const char *block, size_t slot);

#endif
