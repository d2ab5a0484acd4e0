/* This file looks like an interpreter to the code under test: it defines the names by which one is found. */
#include "interpreter.h"

#include <pthread.h>
#include <string.h>

#include "profile/python.h"

/* ---- What an interpreter defines ---- */

uint64_t runtime[160] __asm__("_PyRuntime");
uintptr_t type_type[64] __asm__("PyType_Type");
uintptr_t code_type[64] __asm__("PyCode_Type");
int loop(int number) __asm__("_PyEval_EvalFrameDefault");
void frame_get_code(void) __asm__("PyFrame_GetCode");

__attribute__((noinline)) int loop(int number)
{
    volatile int sum = 0;

    for (int i = 0; i < number; i++)
        sum += i;
    return sum;
}

void frame_get_code(void) {}

#if UNIT_PYTHON == 9
const unsigned minors[] = { 9 };
const unsigned minor_count = sizeof minors / sizeof minors[0];
void set_version(unsigned minor) { (void)minor; }
#elif UNIT_PYTHON == 10
void iter_send(void) __asm__("PyIter_Send");
void iter_send(void) {}
const unsigned minors[] = { 10 };
const unsigned minor_count = sizeof minors / sizeof minors[0];
void set_version(unsigned minor) { (void)minor; }
#else
uint32_t version_told __asm__("Py_Version");
const unsigned minors[] = { 11, 12, 13, 14 };
const unsigned minor_count = sizeof minors / sizeof minors[0];
void set_version(unsigned minor) { version_told = 0x030000f0 | minor << 16; }
#endif

/* ---- Objects ---- */

struct python_layout layout;
_Alignas(16) uint8_t arena[24 * HAK_MIB];
size_t arena_used;

uint8_t *take(size_t size)
{
    uint8_t *taken = arena + arena_used;

    arena_used += base_align_up(size, 16);
    assert_true(arena_used <= sizeof arena);
    return taken;
}

void put_word(void *object, uint32_t offset, uint64_t word) { memcpy((char *)object + offset, &word, 8); }
void put_number(void *object, uint32_t offset, uint32_t word) { memcpy((char *)object + offset, &word, 4); }

uint8_t *make_str(const void *characters, size_t length, uint32_t bits, uint64_t hash)
{
    uint32_t place = bits & ASCII ? layout.text_ascii : layout.text_other;
    uint8_t *text = take(place + length * (bits & 7) + 8);

    put_number(text, layout.text_state, bits << layout.text_kind_shift);
    put_word(text, layout.text_length, length);
    put_word(text, layout.text_length + 8, hash);
    memcpy(text + place, characters, length * (bits & 7));
    return text;
}

uint8_t *make_ascii(const char *characters, uint64_t hash)
{
    return make_str(characters, strlen(characters), 1 | COMPACT | ASCII, hash);
}

/* Instructions 0 to 9 are of the line after the first, 10 to 19 of the next, 20 to 29 of the third. */
static uint8_t *make_lines(void)
{
    static const uint8_t tables[][9] = { [PYTHON_LNOTAB] = { 0, 1, 10, 1, 10, 1 },
                                         [PYTHON_LINE_TABLE] = { 10, 1, 10, 1, 10, 1 },
                                         [PYTHON_LOCATION_TABLE] = { 220, 0, 0, 220, 0, 0, 220, 0, 0 } };
    size_t size = layout.table == PYTHON_LOCATION_TABLE ? 9 : 6;
    uint8_t *table = take(layout.bytes_data + size);

    put_word(table, layout.bytes_size, size);
    memcpy(table + layout.bytes_data, tables[layout.table], size);
    return table;
}

uint8_t *make_code(const uint8_t *name, const uint8_t *file, uint32_t first_line)
{
    uint8_t *code = take(PYTHON_CODE_BYTES + 128);

    put_word(code, 0, 1); /* references */
    put_word(code, layout.object_type, (uintptr_t)code_type);
    put_word(code, layout.code_name, (uintptr_t)name);
    put_word(code, layout.code_file, (uintptr_t)file);
    put_number(code, layout.code_first_line, first_line);
    put_word(code, layout.code_table, (uintptr_t)make_lines());
    return code;
}

uint8_t *make_frame(const uint8_t *code, int place)
{
    uint8_t *frame = take(PYTHON_FRAME_BYTES);

    put_word(frame, layout.frame_code, (uintptr_t)code | (layout.minor >= 14));
    if (layout.code_start == PYTHON_NONE)
        put_number(frame, layout.frame_place, (uint32_t)(place / (int)layout.place_scale));
    else
        put_word(frame, layout.frame_place, (uintptr_t)code + layout.code_start + (uintptr_t)(intptr_t)place);
    return frame;
}

/* ---- The interpreter ---- */

uint8_t *interpreter, *thread_state;
static uint8_t *holder;

uint8_t *make_state(uintptr_t thread)
{
    uint8_t *made = take(PYTHON_THREAD_BYTES);

    put_word(made, layout.thread_id, thread);
    return made;
}

/* Offsets for the versions that tell them. */
static void tell_offsets(unsigned minor)
{
    static const uint8_t places[][21] = {
        { 5, 8, 9, 21, 23, 24, 29, 30, 31, 33, 35, 37, 38, 39, 43, 45, 65, 66, 68, 69, 70 },
        { 5, 8, 9, 24, 26, 27, 32, 33, 34, 36, 40, 42, 43, 44, 48, 51, 75, 76, 78, 79, 80 },
    };
    static const uint16_t offsets[21] = { 800, 16, 40,  8,   72,  152, 8,  0,  56, 70, 112,
                                          128, 136, 68, 192, 8,   16,  32, 32, 16, 40 };

    memcpy(runtime, "xdebugpy", 8);
    runtime[1] = 0x030000f0 | minor << 16;
    for (unsigned i = 0; minor >= 13 && i < 21; i++)
        runtime[places[minor - 13][i]] = offsets[i];
}

/* An interpreter of the version with one thread, the calling one, without a frame. */
void begin_unprepared(unsigned minor)
{
    set_version(minor);
    tell_offsets(minor);
    assert_true(python_layout_find(&layout, (uintptr_t)runtime, 0x03000000 | minor << 16));
    type_type[layout.object_type / 8] = code_type[layout.object_type / 8] = (uintptr_t)type_type;
    interpreter = take(1024);
    thread_state = make_state((uintptr_t)pthread_self());
    put_word(runtime, layout.runtime_interpreters, (uintptr_t)interpreter);
    put_word(interpreter, layout.interpreter_threads, (uintptr_t)thread_state);
    if (layout.holder_frame != PYTHON_NONE) {
        holder = take(64);
        put_word(thread_state, layout.thread_frame, (uintptr_t)holder);
    }
}

void begin(unsigned minor)
{
    begin_unprepared(minor);
    python_prepare(false);
    assert_true(python_found());
}

void set_frame(const uint8_t *frame)
{
    if (layout.holder_frame == PYTHON_NONE)
        put_word(thread_state, layout.thread_frame, (uintptr_t)frame);
    else
        put_word(holder, layout.holder_frame, (uintptr_t)frame);
}

/* A stack of functions, innermost first. is_entry: by number; a run of the loop ends with an entry. */
void set_stack(uint8_t *const *codes, const bool *is_entry, unsigned count)
{
    uint8_t *frame = NULL;

    for (unsigned i = count; i-- > 0;) {
        uint8_t *outer = frame;
        if (is_entry[i] && layout.entry == PYTHON_ENTRY_SHIM) {
            uint8_t *shim = take(PYTHON_FRAME_BYTES);
            put_word(shim, layout.frame_previous, (uintptr_t)outer);
            put_word(shim, layout.frame_code, 0x7000); /* no code object */
            shim[layout.frame_owner] = (uint8_t)(PYTHON_SHIM + i % 2);
            outer = shim;
        }
        frame = make_frame(codes[i], 10 * (int)(i % 3));
        put_word(frame, layout.frame_previous, (uintptr_t)outer);
        if (layout.entry == PYTHON_ENTRY_FLAG)
            frame[layout.frame_owner] = is_entry[i];
        else if (layout.entry == PYTHON_ENTRY_SHIM)
            frame[layout.frame_owner] = PYTHON_SHIM - 1;
    }
    set_frame(frame);
}
