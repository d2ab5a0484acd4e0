#include "profile/python_layout.h"

#include <string.h>

#include "os/peek.h"

/* The offsets of 3.9 to 3.12, for x86-64 and aarch64, whose types have the same sizes. Of 3.13 and 3.14: the field's
 * place among the 64-bit numbers of the interpreter's own table, which begin: the cookie, the version, whether it is
 * free-threaded. */
#define LAYOUT_TABLE(FIELD)                                                    \
    /*                             3.9         3.10 3.11 3.12   3.13 3.14 */   \
    FIELD(runtime_interpreters,         32,          32,  40,  40,      5,  5) \
    FIELD(interpreter_next,              0,           0,   0,   0,      8,  8) \
    FIELD(interpreter_threads,           8,           8,  16,  72,      9,  9) \
    FIELD(thread_next,                   8,           8,   8,   8,     21, 24) \
    FIELD(thread_frame,                 24,          24,  56,  56,     23, 26) \
    FIELD(thread_id,                   176,         176, 152, 136,     24, 27) \
    FIELD(frame_previous,               24,          24,  48,   8,     29, 32) \
    FIELD(frame_code,                   32,          32,  32,   0,     30, 33) \
    FIELD(frame_place,                 104,          96,  56,  56,     31, 34) \
    FIELD(frame_owner,         PYTHON_NONE, PYTHON_NONE,  68,  70,     33, 36) \
    FIELD(code_file,                   104,         104, 112, 112,     35, 40) \
    FIELD(code_name,                   112,         112, 128, 128,     37, 42) \
    FIELD(code_table,                  120,         120, 136, 136,     38, 43) \
    FIELD(code_first_line,              40,          40,  72,  68,     39, 44) \
    FIELD(code_start,          PYTHON_NONE, PYTHON_NONE, 184, 192,     43, 48) \
    FIELD(object_type,                   8,           8,   8,   8,     45, 51) \
    FIELD(bytes_size,                   16,          16,  16,  16,     65, 75) \
    FIELD(bytes_data,                   32,          32,  32,  32,     66, 76) \
    FIELD(text_state,                   32,          32,  32,  32,     68, 78) \
    FIELD(text_length,                  16,          16,  16,  16,     69, 79) \
    FIELD(text_ascii,                   48,          48,  48,  40,     70, 80)

/* ---- 3.9 to 3.12 ---- */

#define OF_3_9(field, of_9, of_10, of_11, of_12, in_13, in_14) .field = (of_9),
#define OF_3_10(field, of_9, of_10, of_11, of_12, in_13, in_14) .field = (of_10),
#define OF_3_11(field, of_9, of_10, of_11, of_12, in_13, in_14) .field = (of_11),
#define OF_3_12(field, of_9, of_10, of_11, of_12, in_13, in_14) .field = (of_12),

static const struct python_layout layouts[] = {
    { .minor = 9, .entry = PYTHON_ENTRY_EACH, .table = PYTHON_LNOTAB, .place_scale = 1, .holder_frame = PYTHON_NONE,
      .text_other = 72, .text_kind_shift = 2, LAYOUT_TABLE(OF_3_9) },
    { .minor = 10, .entry = PYTHON_ENTRY_EACH, .table = PYTHON_LINE_TABLE, .place_scale = 2,
      .holder_frame = PYTHON_NONE, .text_other = 72, .text_kind_shift = 2, LAYOUT_TABLE(OF_3_10) },
    { .minor = 11, .entry = PYTHON_ENTRY_FLAG, .table = PYTHON_LOCATION_TABLE, .holder_frame = 8, .text_other = 72,
      .text_kind_shift = 2, LAYOUT_TABLE(OF_3_11) },
    { .minor = 12, .entry = PYTHON_ENTRY_SHIM, .table = PYTHON_LOCATION_TABLE, .holder_frame = 0, .text_other = 56,
      .text_kind_shift = 2, LAYOUT_TABLE(OF_3_12) },
};

/* ---- 3.13 and later: the interpreter's own table ---- */

#define LAYOUT_COOKIE "xdebugpy"
enum { LAYOUT_WORDS = 96 };

/* An offset by its place in the tables of 3.13 and 3.14. */
static uint32_t layout_word(const uint64_t *words, unsigned minor, unsigned in_13, unsigned in_14)
{
    return (uint32_t)base_min(words[minor == 13 ? in_13 : in_14], PYTHON_NONE - 1);
}

static bool layout_of_table(struct python_layout *layout, uintptr_t runtime)
{
    uint64_t words[LAYOUT_WORDS];
    unsigned minor;

    if (!os_peek_at(runtime, words, sizeof words) || memcmp(words, LAYOUT_COOKIE, sizeof words[0]) != 0 ||
        words[1] >> 24 != 3)
        return false;
    minor = words[1] >> 16 & 255;
    if (minor != 13 && minor != 14)
        return false;
#define FIELD_OF_WORD(field, of_9, of_10, of_11, of_12, in_13, in_14) .field = layout_word(words, minor, in_13, in_14),
    *layout = (struct python_layout){ .minor = minor, .entry = PYTHON_ENTRY_SHIM, .table = PYTHON_LOCATION_TABLE,
                                      .holder_frame = PYTHON_NONE, LAYOUT_TABLE(FIELD_OF_WORD) };
    layout->text_other = layout->text_ascii + 16;
    /* Since 3.14 free-threaded builds keep a byte, not two bits, below the kind. */
    layout->text_kind_shift = minor >= 14 && words[2] ? 8 : 2;
    return true;
}

/* The bytes from an object's start that hold the fields at these offsets. */
static size_t layout_bytes(const uint32_t *offsets, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        if (offsets[i] != PYTHON_NONE)
            bytes = base_max(bytes, offsets[i] + sizeof(uintptr_t));
    return bytes;
}

/* Notes what is to be read of each object. False: not all fields lie within the bytes that are read at once. */
static bool layout_measure(struct python_layout *at)
{
    const uint32_t in_frame[] = { at->frame_previous, at->frame_code, at->frame_place, at->frame_owner };
    const uint32_t in_code[] = { at->object_type, at->code_file, at->code_name, at->code_first_line, at->code_table };
    const uint32_t in_thread[] = { at->thread_next, at->thread_id, at->thread_frame };

    at->frame_bytes = layout_bytes(in_frame, sizeof in_frame / sizeof in_frame[0]);
    at->code_bytes = layout_bytes(in_code, sizeof in_code / sizeof in_code[0]);
    at->thread_bytes = layout_bytes(in_thread, sizeof in_thread / sizeof in_thread[0]);
    return at->frame_bytes <= PYTHON_FRAME_BYTES && at->code_bytes <= PYTHON_CODE_BYTES &&
           at->thread_bytes <= PYTHON_THREAD_BYTES && at->text_state < 128 && at->text_length < 128 &&
           at->bytes_size < 128;
}

bool python_layout_find(struct python_layout *layout, uintptr_t runtime, uint32_t version)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (version >> 24 == 3 && (version >> 16 & 255) == layouts[i].minor) {
            *layout = layouts[i];
            return layout_measure(layout);
        }
    return layout_of_table(layout, runtime) && layout_measure(layout);
}
