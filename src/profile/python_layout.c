#include "profile/python_layout.h"

#include <string.h>

#include "os/peek.h"

/* ---- 3.9 to 3.12: for x86-64 and aarch64, whose types have the same sizes ---- */

static const struct python_layout layouts[] = {
    { .minor = 9,
      .entry = PYTHON_ENTRY_EACH,
      .table = PYTHON_LNOTAB,
      .runtime_interpreters = 32,
      .interpreter_next = 0,
      .interpreter_threads = 8,
      .thread_next = 8,
      .thread_id = 176,
      .thread_frame = 24,
      .holder_frame = PYTHON_NONE,
      .frame_previous = 24,
      .frame_code = 32,
      .frame_place = 104,
      .frame_owner = PYTHON_NONE,
      .object_type = 8,
      .code_file = 104,
      .code_name = 112,
      .code_first_line = 40,
      .code_table = 120,
      .code_start = PYTHON_NONE,
      .place_scale = 1,
      .bytes_size = 16,
      .bytes_data = 32,
      .text_state = 32,
      .text_length = 16,
      .text_ascii = 48,
      .text_other = 72,
      .text_kind_shift = 2 },
    { .minor = 10,
      .entry = PYTHON_ENTRY_EACH,
      .table = PYTHON_LINE_TABLE,
      .runtime_interpreters = 32,
      .interpreter_next = 0,
      .interpreter_threads = 8,
      .thread_next = 8,
      .thread_id = 176,
      .thread_frame = 24,
      .holder_frame = PYTHON_NONE,
      .frame_previous = 24,
      .frame_code = 32,
      .frame_place = 96,
      .frame_owner = PYTHON_NONE,
      .object_type = 8,
      .code_file = 104,
      .code_name = 112,
      .code_first_line = 40,
      .code_table = 120,
      .code_start = PYTHON_NONE,
      .place_scale = 2,
      .bytes_size = 16,
      .bytes_data = 32,
      .text_state = 32,
      .text_length = 16,
      .text_ascii = 48,
      .text_other = 72,
      .text_kind_shift = 2 },
    { .minor = 11,
      .entry = PYTHON_ENTRY_FLAG,
      .table = PYTHON_LOCATION_TABLE,
      .runtime_interpreters = 40,
      .interpreter_next = 0,
      .interpreter_threads = 16,
      .thread_next = 8,
      .thread_id = 152,
      .thread_frame = 56,
      .holder_frame = 8,
      .frame_previous = 48,
      .frame_code = 32,
      .frame_place = 56,
      .frame_owner = 68,
      .object_type = 8,
      .code_file = 112,
      .code_name = 128,
      .code_first_line = 72,
      .code_table = 136,
      .code_start = 184,
      .bytes_size = 16,
      .bytes_data = 32,
      .text_state = 32,
      .text_length = 16,
      .text_ascii = 48,
      .text_other = 72,
      .text_kind_shift = 2 },
    { .minor = 12,
      .entry = PYTHON_ENTRY_SHIM,
      .table = PYTHON_LOCATION_TABLE,
      .runtime_interpreters = 40,
      .interpreter_next = 0,
      .interpreter_threads = 72,
      .thread_next = 8,
      .thread_id = 136,
      .thread_frame = 56,
      .holder_frame = 0,
      .frame_previous = 8,
      .frame_code = 0,
      .frame_place = 56,
      .frame_owner = 70,
      .object_type = 8,
      .code_file = 112,
      .code_name = 128,
      .code_first_line = 68,
      .code_table = 136,
      .code_start = 192,
      .bytes_size = 16,
      .bytes_data = 32,
      .text_state = 32,
      .text_length = 16,
      .text_ascii = 40,
      .text_other = 56,
      .text_kind_shift = 2 },
};

/* ---- 3.13 and later: the interpreter's own table, of 64-bit numbers ---- */

#define LAYOUT_COOKIE "xdebugpy"

enum layout_word {
    WORD_INTERPRETERS,
    WORD_INTERPRETER_NEXT,
    WORD_THREADS,
    WORD_THREAD_NEXT,
    WORD_FRAME,
    WORD_THREAD_ID,
    WORD_FRAME_PREVIOUS,
    WORD_FRAME_CODE,
    WORD_FRAME_PLACE,
    WORD_FRAME_OWNER,
    WORD_CODE_FILE,
    WORD_CODE_NAME,
    WORD_CODE_TABLE,
    WORD_CODE_LINE,
    WORD_CODE_START,
    WORD_TYPE,
    WORD_BYTES_SIZE,
    WORD_BYTES_DATA,
    WORD_TEXT_STATE,
    WORD_TEXT_LENGTH,
    WORD_TEXT_ASCII,
    WORDS
};

/* The fields' places among the table's numbers, which begin: the cookie, the version, whether it is free-threaded. */
static const struct layout_table {
    unsigned minor;
    uint8_t places[WORDS];
} layout_tables[] = {
    { 13, { 5, 8, 9, 21, 23, 24, 29, 30, 31, 33, 35, 37, 38, 39, 43, 45, 65, 66, 68, 69, 70 } },
    { 14, { 5, 8, 9, 24, 26, 27, 32, 33, 34, 36, 40, 42, 43, 44, 48, 51, 75, 76, 78, 79, 80 } },
};
enum { LAYOUT_WORDS = 96 };

/* Whether all fields lie within the bytes that are read at once. */
static bool layout_is_sound(const struct python_layout *layout)
{
    const uint32_t in_frame[] = { layout->frame_previous, layout->frame_code, layout->frame_place,
                                  layout->frame_owner };
    const uint32_t in_code[] = { layout->object_type, layout->code_file, layout->code_name, layout->code_first_line,
                                 layout->code_table };
    const uint32_t in_thread[] = { layout->thread_next, layout->thread_id, layout->thread_frame };
    bool sound = true;

    for (size_t i = 0; i < sizeof in_frame / sizeof in_frame[0]; i++)
        sound &= in_frame[i] <= PYTHON_FRAME_BYTES - 8 || in_frame[i] == PYTHON_NONE;
    for (size_t i = 0; i < sizeof in_code / sizeof in_code[0]; i++)
        sound &= in_code[i] <= PYTHON_CODE_BYTES - 8;
    for (size_t i = 0; i < sizeof in_thread / sizeof in_thread[0]; i++)
        sound &= in_thread[i] <= PYTHON_THREAD_BYTES - 8;
    return sound && layout->text_state < 128 && layout->text_length < 128 && layout->bytes_size < 128;
}

static void layout_fill(struct python_layout *layout, const struct layout_table *table, const uint64_t *words)
{
    uint32_t at[WORDS];

    for (unsigned i = 0; i < WORDS; i++)
        at[i] = (uint32_t)base_min(words[table->places[i]], PYTHON_NONE - 1);
    *layout = (struct python_layout){ .minor = table->minor,
                                      .entry = PYTHON_ENTRY_SHIM,
                                      .table = PYTHON_LOCATION_TABLE,
                                      .runtime_interpreters = at[WORD_INTERPRETERS],
                                      .interpreter_next = at[WORD_INTERPRETER_NEXT],
                                      .interpreter_threads = at[WORD_THREADS],
                                      .thread_next = at[WORD_THREAD_NEXT],
                                      .thread_id = at[WORD_THREAD_ID],
                                      .thread_frame = at[WORD_FRAME],
                                      .holder_frame = PYTHON_NONE,
                                      .frame_previous = at[WORD_FRAME_PREVIOUS],
                                      .frame_code = at[WORD_FRAME_CODE],
                                      .frame_place = at[WORD_FRAME_PLACE],
                                      .frame_owner = at[WORD_FRAME_OWNER],
                                      .object_type = at[WORD_TYPE],
                                      .code_file = at[WORD_CODE_FILE],
                                      .code_name = at[WORD_CODE_NAME],
                                      .code_first_line = at[WORD_CODE_LINE],
                                      .code_table = at[WORD_CODE_TABLE],
                                      .code_start = at[WORD_CODE_START],
                                      .bytes_size = at[WORD_BYTES_SIZE],
                                      .bytes_data = at[WORD_BYTES_DATA],
                                      .text_state = at[WORD_TEXT_STATE],
                                      .text_length = at[WORD_TEXT_LENGTH],
                                      .text_ascii = at[WORD_TEXT_ASCII],
                                      .text_other = at[WORD_TEXT_ASCII] + 16,
                                      /* Since 3.14 free-threaded builds keep a byte, not two bits, below the kind. */
                                      .text_kind_shift = table->minor >= 14 && words[2] ? 8 : 2 };
}

static bool layout_of_table(struct python_layout *layout, uintptr_t runtime)
{
    uint64_t words[LAYOUT_WORDS];

    if (!os_peek_at(runtime, words, sizeof words) || memcmp(words, LAYOUT_COOKIE, sizeof words[0]) != 0 ||
        words[1] >> 24 != 3)
        return false;
    for (size_t i = 0; i < sizeof layout_tables / sizeof layout_tables[0]; i++)
        if (layout_tables[i].minor == (words[1] >> 16 & 255)) {
            layout_fill(layout, &layout_tables[i], words);
            return layout_is_sound(layout);
        }
    return false;
}

bool python_layout_find(struct python_layout *layout, uintptr_t runtime, uint32_t version)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (version >> 24 == 3 && (version >> 16 & 255) == layouts[i].minor) {
            *layout = layouts[i];
            return true;
        }
    return layout_of_table(layout, runtime);
}
