#include "os/unwind_rows.h"

#include <string.h>

enum { ROW_PLACES = 512, ROW_WORDS = 3 };

/* The first word is the key XOR the words of the row. Threads write places without a lock. If the words of a place come
 * from two rows, or from another row, the XOR does not give the key. */
static _Atomic uint64_t row_places[ROW_PLACES][1 + ROW_WORDS]; /* Order: relaxed; the key shows a mixed place */

#if defined(__x86_64__)
HAK_DATA_HERE const uint8_t unwind_row_registers[ROW_REGISTERS] = { 3, 6, 12, 13, 14, 15, 16 };
#elif defined(__aarch64__)
HAK_DATA_HERE const uint8_t unwind_row_registers[ROW_REGISTERS] = { 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30 };
#elif defined(__riscv)
HAK_DATA_HERE const uint8_t unwind_row_registers[ROW_REGISTERS] = { 8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 1 };
#else
HAK_DATA_HERE const uint8_t unwind_row_registers[ROW_REGISTERS] = { 0 };
#endif

/* Bytes 4 to 11 of the head are the distance to the object's frame descriptions and their number. The key is never 0:
 * that is an unused place. */
static uint64_t row_key(uintptr_t address, const uint8_t *table)
{
    uint64_t object;

    memcpy(&object, table + 4, sizeof object);
    return ((address + (object ^ (uintptr_t)table) * UINT64_C(0xd6e8feb86659fd93)) * UINT64_C(0x9e3779b97f4a7c15)) | 1;
}

static _Atomic uint64_t *row_place(uint64_t key) { return row_places[key >> 32 & (ROW_PLACES - 1)]; }

union row_words {
    struct unwind_row row;
    uint64_t words[ROW_WORDS];
};

static uint64_t row_mix(const uint64_t *words)
{
    return words[0] * UINT64_C(0xff51afd7ed558ccd) ^ words[1] * UINT64_C(0xc4ceb9fe1a85ec53) ^ words[2];
}

bool unwind_row_find(uintptr_t address, const uint8_t *table, struct unwind_row *row)
{
    uint64_t key = row_key(address, table);
    _Atomic uint64_t *place = row_place(key);
    union row_words kept;

    for (unsigned i = 0; i < ROW_WORDS; i++)
        kept.words[i] = atomic_load_explicit(&place[1 + i], memory_order_relaxed);
    if ((atomic_load_explicit(&place[0], memory_order_relaxed) ^ row_mix(kept.words)) != key)
        return false;
    *row = kept.row;
    return true;
}

/* *below: how many words below the CFA the register lies; 0: it was not saved. False: the row has another
 * rule for it. */
static bool row_words_below(const struct cfi_row *row, unsigned number, uint8_t *below)
{
    int32_t value = row->values[number], word = (int32_t)sizeof(uintptr_t);

    *below = 0;
    if (row->rules[number] == CFI_RULE_SAME || row->rules[number] == CFI_RULE_UNDEFINED)
        return number != CFI_RETURN_REGISTER || row->rules[number] == CFI_RULE_UNDEFINED;
    if (row->rules[number] != CFI_RULE_AT || value >= 0 || value < -255 * word || value % word != 0)
        return false;
    *below = (uint8_t)(-value / word);
    return true;
}

void unwind_row_keep(uintptr_t address, const uint8_t *table, const struct cfi_row *row)
{
    union row_words kept = { .words = { 0 } };
    uint64_t key = row_key(address, table);
    _Atomic uint64_t *place = row_place(key);
    unsigned known = 0, changed = 0;

    for (unsigned number = 0; number < CFI_REGISTERS; number++)
        changed += row->rules[number] != CFI_RULE_SAME && row->rules[number] != CFI_RULE_UNDEFINED;
    for (unsigned i = 0; i < ROW_REGISTERS; i++) {
        if (!row_words_below(row, unwind_row_registers[i], &kept.row.below[i]))
            return;
        known += kept.row.below[i] != 0;
    }
    if (known != changed || row->cfa_register >= CFI_REGISTERS)
        return;
    kept.row.cfa_register = row->cfa_register;
    kept.row.cfa_offset = row->cfa_offset;
    for (unsigned i = 0; i < ROW_WORDS; i++)
        atomic_store_explicit(&place[1 + i], kept.words[i], memory_order_relaxed);
    atomic_store_explicit(&place[0], key ^ row_mix(kept.words), memory_order_relaxed);
}
