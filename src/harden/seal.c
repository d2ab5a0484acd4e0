#include "harden/seal.h"

#include <string.h>

/* For so many bytes between the requested size and the tail word. */
#define GAP(bytes)                                                                                                     \
    { (bytes) < 8 ? UINT64_C(1) << 8 * ((bytes) % 8) : 0, (bytes) > 8 ? ~UINT64_C(0) << 8 * ((16 - (bytes)) % 8) : 0 }
HAK_DATA_HERE const struct seal_gap seal_gaps[SEAL_GAPS] = {
    GAP(0), GAP(1), GAP(2),  GAP(3),  GAP(4),  GAP(5),  GAP(6),  GAP(7),
    GAP(8), GAP(9), GAP(10), GAP(11), GAP(12), GAP(13), GAP(14), GAP(15),
};

/* The first byte of [from, to) that is not zero, or `to`. */
static size_t seal_first_not_zero(const char *block, size_t from, size_t to)
{
    while (from < to && block[from] == 0)
        from++;
    return from;
}

/* The first of the canary's `count` bytes at `at` that changed; `count` if none did. */
static size_t seal_first_changed(uint64_t found, uint64_t canary, size_t count)
{
    uint64_t changed = found ^ canary;

    for (size_t i = 0; i < count; i++) {
        unsigned shift = (unsigned)(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? i : 7 - i) * 8;
        if ((changed >> shift) & 0xff)
            return i;
    }
    return count;
}

static enum seal_state seal_read_tail(const char *block, unsigned class, struct seal *seal)
{
    size_t size = class_size(class), room, count, changed;
    uint64_t canary = seal_canary(block), tail = seal_load(block + size - SEAL_BYTES),
             code = (tail ^ canary) >> SEAL_TAIL_SHIFT;
    bool in_range;

    if (tail == 0)
        return SEAL_NONE;
    room = code & SEAL_ROOM_MASK;
    seal->kind = (enum seal_kind)(code >> SEAL_KIND_SHIFT);
    seal->requested = size - base_min(room, size);
    in_range = room >= SEAL_BYTES && room <= size && seal->kind <= SEAL_NEW_ARRAY;
    if (HAK_UNLIKELY(tail != seal_tail(canary, code) || !in_range)) {
        size_t first = seal_first_changed(tail, seal_tail(canary, code), 6);
        seal->changed = size - SEAL_BYTES + first;
        /* The requested size is known only while the code's two places agree. */
        if (!in_range || ((tail ^ seal_tail(canary, code)) >> (SEAL_TAIL_SHIFT - 32) & 0xffff) != 0)
            seal->requested = SIZE_MAX;
        return SEAL_BROKEN;
    }
    if (HAK_LIKELY(seal_gap_wrong(block, size, room, canary, tail) == 0))
        return SEAL_WHOLE;
    count = base_min(room - SEAL_BYTES, SEAL_BYTES);
    changed = seal_first_changed(seal_load(block + seal->requested), canary, count);
    seal->changed = seal->requested + changed;
    if (changed == count)
        seal->changed = seal_first_not_zero(block, seal->requested + count, size - SEAL_BYTES);
    return SEAL_BROKEN;
}

enum seal_state seal_read(const char *block, unsigned class, const struct ledger *ledger, unsigned index,
                          struct seal *seal)
{
    uint64_t canary, found;
    uint32_t word;
    size_t count;

    if (seal_in_tail(class))
        return seal_read_tail(block, class, seal);
    word = __atomic_load_n(&ledger->sizes[index], __ATOMIC_RELAXED);
    if (word == 0)
        return SEAL_NONE;
    seal->requested = (word & SEAL_LEDGER_SIZE_MASK) - 1;
    seal->kind = (enum seal_kind)(word >> SEAL_LEDGER_KIND_SHIFT);
    canary = seal_canary(block);
    count = seal_canary_bytes(class, seal->requested);
    found = canary;
    if (HAK_LIKELY(count == SEAL_BYTES))
        found = seal_load(block + seal->requested);
    else
        memcpy(&found, block + seal->requested, count);
    if (HAK_LIKELY(found == canary))
        return SEAL_WHOLE;
    seal->changed = seal->requested + seal_first_changed(found, canary, count);
    return SEAL_BROKEN;
}

void seal_erase(char *block, unsigned class, size_t requested, bool whole)
{
    size_t size = class_size(class), from = whole ? 0 : requested;
    size_t to = seal_in_tail(class) ? size : base_min(base_align_up(requested + SEAL_BYTES, 2 * SEAL_BYTES), size);

    memset(block + from, 0, to - from);
}

size_t seal_first_written(const char *memory, size_t size)
{
    const seal_words *at = (const seal_words *)(const void *)memory;
    size_t count = size / sizeof *at, i = 0;

    for (; i + 8 <= count; i += 8) {
        seal_words any = ((at[i] | at[i + 1]) | (at[i + 2] | at[i + 3])) |
                         ((at[i + 4] | at[i + 5]) | (at[i + 6] | at[i + 7]));
        if (HAK_UNLIKELY((any[0] | any[1]) != 0))
            break;
    }
    for (; i < count; i++)
        if (HAK_UNLIKELY((at[i][0] | at[i][1]) != 0))
            return seal_first_not_zero(memory, i * sizeof *at, (i + 1) * sizeof *at);
    return size;
}
