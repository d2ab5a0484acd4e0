/*
 * A block's seal: the size that the program asked for, and a canary of 8 bytes directly behind that many bytes.
 *
 *   blocks below 1 KiB     | requested bytes | canary | zeros | tail word |    the tail word may cover the canary's end
 *   larger ones            | requested bytes | canary | zeros              |    the size is in the ledger (V6)
 *   exact spans            | requested bytes | part of the canary |              V20
 *
 * The canary is made from the block's address and the process's secret, so no address inside a block has a seal. Its
 * first byte is zero, so a string that lacks its end ends there. The tail word is the canary XOR a code for the room
 * between the requested size and the block's end. The code is in it twice: in its last two bytes, and in its third and
 * fourth. So a write that begins behind the requested size changes the canary, the tail word or the zeros, and one that
 * ends directly before the next block changes a code.
 *
 * V20: a span has all bytes of the canary, or as many as lie before its end. It has fewer than SEAL_BYTES only if a
 *     unit that nobody can access lies directly behind it (V19), so that a write past its end faults.
 */
#ifndef HAK_HARDEN_SEAL_H
#define HAK_HARDEN_SEAL_H

#include "harden/harden.h"
#include "harden/ledger.h"

#define SEAL_BYTES ((size_t)8)

enum seal_kind { SEAL_MALLOC = 0, SEAL_NEW, SEAL_NEW_ARRAY };

enum seal_state {
    SEAL_WHOLE,
    SEAL_NONE,  /* the program does not hold the block */
    SEAL_BROKEN
};

struct seal {
    size_t requested; /* may be wrong in a broken seal */
    size_t changed;   /* SEAL_BROKEN: offset of the first byte in the block that changed, as far as can be told */
    enum seal_kind kind;
};

enum {
    SEAL_TAIL_SHIFT = 48, /* of the tail word's code: room, and kind above it */
    SEAL_KIND_SHIFT = 12,
    SEAL_LEDGER_KIND_SHIFT = 28
};
/* A code times this is the code at both its places. */
#define SEAL_TAIL_PLACES ((UINT64_C(1) << SEAL_TAIL_SHIFT) | (UINT64_C(1) << (SEAL_TAIL_SHIFT - 32)))
#define SEAL_ROOM_MASK ((UINT64_C(1) << SEAL_KIND_SHIFT) - 1)
#define SEAL_LEDGER_SIZE_MASK ((UINT32_C(1) << SEAL_LEDGER_KIND_SHIFT) - 1)
_Static_assert(POOLED_MAX < SEAL_LEDGER_SIZE_MASK, "a ledger's word holds each size");

HAK_INLINE bool seal_in_tail(unsigned class) { return class < CLASS_1024; }

/* Bytes of a block that a request needs. */
HAK_INLINE size_t seal_bytes_for(size_t size) { return size + SEAL_BYTES; }

/* Bytes of the canary of a block with its size in the ledger (V20). */
HAK_INLINE size_t seal_canary_bytes(unsigned class, size_t requested)
{
    return base_min(SEAL_BYTES, class_size(class) - requested);
}

HAK_INLINE uint64_t seal_canary(const void *block)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)block ^ harden.secret[0]) * harden.secret[1];

    /* The byte at the lowest address is zero. */
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? mixed & ~UINT64_C(0xff) : mixed >> 8;
}

HAK_INLINE uint64_t seal_load(const char *at)
{
    uint64_t word;
    __builtin_memcpy(&word, at, sizeof word);
    return word;
}

HAK_INLINE void seal_store(char *at, uint64_t word) { __builtin_memcpy(at, &word, sizeof word); }

/* The tail word changes in one store, from 0 to a valid word and back: frees of neighbours read it
 * (front/hardened.c). */
HAK_INLINE void seal_set_tail(char *block, size_t size, uint64_t word)
{
    __atomic_store_n((uint64_t *)(void *)(block + size - SEAL_BYTES), word, __ATOMIC_RELAXED);
}

HAK_INLINE uint64_t seal_tail(uint64_t canary, uint64_t code) { return canary ^ code * SEAL_TAIL_PLACES; }

/* For the number of bytes between the requested size and the tail word. hidden_from: 1 << 8 * bytes, from where on the
 * tail word hides the canary, or 0. zeros: the bytes of the word before the tail word that lie behind the canary. */
struct seal_gap {
    uint64_t hidden_from, zeros;
};
#define SEAL_GAPS 16u
HAK_DATA const struct seal_gap seal_gaps[SEAL_GAPS];

/* The word at the requested size: the canary, or the tail word where that hides it. */
HAK_INLINE uint64_t seal_word(uint64_t canary, uint64_t tail, size_t gap)
{
    uint64_t from;

    if (HAK_UNLIKELY(gap >= SEAL_GAPS))
        return canary;
    from = seal_gaps[gap].hidden_from;
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        return gap == 0 || gap >= SEAL_BYTES ? (gap ? canary : tail)
                                             : (canary >> (64 - 8 * gap) << (64 - 8 * gap)) | tail >> 8 * gap;
    return (canary & (from - 1)) | tail * from;
}

/* A tail word XOR its canary has the code in the upper half of both its halves, and 0 in the rest. Returns 0 if `mixed`
 * does. */
HAK_INLINE uint64_t seal_tail_wrong(uint64_t mixed) { return (mixed ^ (mixed << 32 | mixed >> 32)) | (uint16_t)mixed; }

/* Whether the word may be the tail word of the block. */
HAK_INLINE bool seal_is_tail(const char *block, uint64_t tail)
{
    return seal_tail_wrong(tail ^ seal_canary(block)) == 0;
}

/* The tail word of a block below 1 KiB that any thread may have. */
HAK_INLINE uint64_t seal_tail_word(const char *block, size_t size)
{
    return __atomic_load_n((const uint64_t *)(const void *)(block + size - SEAL_BYTES), __ATOMIC_RELAXED);
}

/* 0: it may be the tail word of a live or a free block. Which neighbours are live is random, so the processor would
 * often mispredict a branch on that, and wait for this neighbour before it reads the next. */
HAK_INLINE uint64_t seal_neighbour_wrong(const char *block, uint64_t tail)
{
    return seal_tail_wrong(tail ^ seal_canary(block)) & -(uint64_t)(tail != 0);
}

/* Writes the seal of a block below 1 KiB whose bytes from `requested` on are zero. */
HAK_INLINE void seal_put_small(char *block, size_t size, size_t requested, enum seal_kind kind)
{
    uint64_t canary = seal_canary(block), room = size - requested,
             tail = seal_tail(canary, room | (uint64_t)kind << SEAL_KIND_SHIFT);

    /* The tail word comes first, so it changes in one store: the second store leaves it as it is. */
    seal_set_tail(block, size, tail);
    seal_store(block + requested, seal_word(canary, tail, room - SEAL_BYTES));
}

/* As seal_put_small, for any block. */
HAK_INLINE void seal_put(char *block, unsigned class, struct ledger *ledger, unsigned index, size_t requested,
                         enum seal_kind kind)
{
    if (seal_in_tail(class)) {
        seal_put_small(block, class_size(class), requested, kind);
    } else {
        uint64_t canary = seal_canary(block);
        size_t count = seal_canary_bytes(class, requested);
        if (HAK_LIKELY(count == SEAL_BYTES))
            seal_store(block + requested, canary);
        else
            __builtin_memcpy(block + requested, &canary, count);
        __atomic_store_n(&ledger->sizes[index], (uint32_t)requested + 1 + ((uint32_t)kind << SEAL_LEDGER_KIND_SHIFT),
                         __ATOMIC_RELAXED);
    }
}

/* 0: the bytes between the requested size of a block below 1 KiB and its tail word are whole. */
HAK_INLINE uint64_t seal_gap_wrong(const char *block, size_t size, size_t room, uint64_t canary, uint64_t tail)
{
    size_t gap = room - SEAL_BYTES;
    const char *at = block + size - room, *last = block + size - 2 * SEAL_BYTES;
    uint64_t changed;

    if (HAK_LIKELY(gap < SEAL_GAPS) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        return (seal_load(at) ^ seal_word(canary, tail, gap)) | (seal_load(last) & seal_gaps[gap].zeros);
    changed = seal_load(at) ^ seal_word(canary, tail, gap);
    while ((at += SEAL_BYTES) < last)
        changed |= seal_load(at);
    return changed | (gap >= 2 * SEAL_BYTES ? seal_load(last) : 0);
}

/* Reads and checks the seal. */
HAK_HIDDEN enum seal_state seal_read(const char *block, unsigned class, const struct ledger *ledger, unsigned index,
                                     struct seal *seal);

/* Takes the seal off. False: another thread did since it was read. */
HAK_INLINE bool seal_take(char *block, unsigned class, struct ledger *ledger, unsigned index)
{
    if (seal_in_tail(class)) /* Release: the checks came before. Acquire: the erasing comes after. */
        return __atomic_exchange_n((uint64_t *)(void *)(block + class_size(class) - SEAL_BYTES), 0, __ATOMIC_ACQ_REL) !=
               0;
    return __atomic_exchange_n(&ledger->sizes[index], 0, __ATOMIC_ACQ_REL) != 0;
}

/* Zeroes the program's bytes and the rest of a seal that was taken off. With `whole` false the program's bytes stay. */
HAK_HIDDEN void seal_erase(char *block, unsigned class, size_t requested, bool whole);

/* Vectors of a width that each processor has. */
typedef uint64_t seal_words __attribute__((vector_size(16), may_alias));

HAK_INLINE void seal_zero_at(char *memory) { *(seal_words *)(void *)memory = (seal_words){ 0 }; }
HAK_INLINE seal_words seal_words_at(const char *memory) { return *(const seal_words *)(const void *)memory; }

/* Zeroes memory. Address and size are multiples of 16, the size at least 16. Up to 128 bytes no branch depends on the
 * exact size, as the processor would guess it wrong: stores overlap instead. */
HAK_INLINE void seal_zero(char *memory, size_t size)
{
    char *last = memory + size - 16;

    if (size <= 64) {
        seal_zero_at(memory);
        seal_zero_at(size > 16 ? memory + 16 : memory);
        seal_zero_at(size > 16 ? last - 16 : last);
        seal_zero_at(last);
        return;
    }
    for (; memory < last - 48; memory += 64) {
        seal_zero_at(memory);
        seal_zero_at(memory + 16);
        seal_zero_at(memory + 32);
        seal_zero_at(memory + 48);
        __asm__("" : "+r"(memory)); /* or the compiler would call memset */
    }
    seal_zero_at(last - 48);
    seal_zero_at(last - 32);
    seal_zero_at(last - 16);
    seal_zero_at(last);
}

/* Whether memory, as for seal_zero, is zero. */
HAK_INLINE bool seal_is_zero(const char *memory, size_t size)
{
    const char *last = memory + size - 16;
    seal_words any;

    if (size <= 64) {
        any = seal_words_at(memory) | seal_words_at(size > 16 ? memory + 16 : memory) |
              seal_words_at(size > 16 ? last - 16 : last) | seal_words_at(last);
    } else {
        any = (seal_words_at(last - 48) | seal_words_at(last - 32)) | (seal_words_at(last - 16) | seal_words_at(last));
        for (; memory < last - 48; memory += 64)
            any |= (seal_words_at(memory) | seal_words_at(memory + 16)) |
                   (seal_words_at(memory + 32) | seal_words_at(memory + 48));
    }
    return (any[0] | any[1]) == 0;
}

/* The offset of the first byte that is not zero, or `size`. `memory` and `size` are multiples of 16. */
HAK_HIDDEN size_t seal_first_written(const char *memory, size_t size);

#endif
