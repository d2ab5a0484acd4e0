#include "profile/python.h"

#include <string.h>

#include "options/options.h"
#include "os/peek.h"
#include "os/symbols.h"
#include "profile/python_layout.h"
#include "profile/python_lines.h"
#include "profile/table.h"

#define FUNCTIONS_MOST 64u /* Python functions of a stack */
#define VISITS_MOST 256u   /* frames that are read, shims included */
#define INTERPRETERS_MOST 16u
#define THREADS_MOST 256u
#define SKIP_AFTER_MISS 16u
#define BATCH (OS_PIECES_MOST / 2) /* code objects, of two texts each, that are read at once */
#define PLACE_MASK ((UINT64_C(1) << 63) - 1)
#define NAME_BYTES 256u
#define FILE_BYTES 512u
#define HASHED_BYTES 128u    /* of a file whose str has no hash */
#define SUMS_KEPT 4u         /* such files of a stack */
#define CODES_BYTES_MOST (8 * HAK_MIB)
#define BUCKETS 4096u      /* of the hash table of kept functions */
#define SEEN_SLOTS 4096u   /* places in code objects whose frames are remembered */

HAK_DATA_HERE struct python_codes python_codes;

static struct {
    _Atomic bool found; /* Order: release in python_prepare, acquire in python_found: all below */
    struct python_layout at;
    uintptr_t runtime, code_type;
    uintptr_t loop_start, loop_end; /* the interpreter's loop */
    uintptr_t own_start, own_end;   /* the code of the file that the interpreter is in */
} python;

/* The frame made of a place in a code object. sum: key + frame, so that a half-overwritten pair matches no key. */
struct seen_place {
    _Atomic uint64_t sum, frame; /* Order: relaxed; the sum shows a mixed place */
};
static _Atomic(struct seen_place *) seen_places; /* Order: release under profile_lock, acquire: the zeros in it */
static struct python_code **code_buckets; /* under profile_lock */

bool python_found(void) { return atomic_load_explicit(&python.found, memory_order_acquire); }

static uintptr_t word_at(const uint8_t *bytes, uint32_t offset)
{
    uintptr_t word;

    memcpy(&word, bytes + offset, sizeof word);
    return word;
}

static uint32_t number_at(const uint8_t *bytes, uint32_t offset)
{
    uint32_t number;

    memcpy(&number, bytes + offset, sizeof number);
    return number;
}

static uintptr_t peek_word(uintptr_t address)
{
    uintptr_t word;

    return os_peek_at(address, &word, sizeof word) ? word : 0;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 31);
}

/* ---- The interpreter ---- */

void python_prepare(bool in_child)
{
    enum { RUNTIME, LOOP, CODE_TYPE, TYPE_TYPE, VERSION, SINCE_3_10, SINCE_3_9, DEFINITIONS };
    struct os_definition defined[DEFINITIONS] = {
        [RUNTIME] = { .name = "_PyRuntime" },       [LOOP] = { .name = "_PyEval_EvalFrameDefault" },
        [CODE_TYPE] = { .name = "PyCode_Type" },    [TYPE_TYPE] = { .name = "PyType_Type" },
        [VERSION] = { .name = "Py_Version" },
        [SINCE_3_10] = { .name = "PyIter_Send" },   [SINCE_3_9] = { .name = "PyFrame_GetCode" },
    };
    uint32_t version = 0;
    uintptr_t type;
    bool defines;

    if (python_found() || !hak_options.heap_profile_python)
        return;
    defines = in_child ? os_symbols_peek(defined, DEFINITIONS, LOOP, &python.own_start, &python.own_end)
                       : os_symbols_defined(defined, DEFINITIONS, &python.own_start, &python.own_end);
    if (!defines || !defined[LOOP].address || !defined[CODE_TYPE].address)
        return;
    os_peek_prepare();
    if (defined[VERSION].address)
        version = (uint32_t)peek_word(defined[VERSION].address);
    else if (defined[SINCE_3_9].address)
        version = defined[SINCE_3_10].address ? 0x030a0000 : 0x03090000;
    if (!python_layout_find(&python.at, defined[RUNTIME].address, version))
        return;
    /* Debug builds have longer object heads, so the type lies elsewhere. Before relocation its word is 0. */
    type = peek_word(defined[CODE_TYPE].address + python.at.object_type);
    if (type && type != defined[TYPE_TYPE].address)
        return;
    python.runtime = defined[RUNTIME].address;
    python.code_type = defined[CODE_TYPE].address;
    python.loop_start = defined[LOOP].address;
    python.loop_end = python.loop_start + defined[LOOP].size;
    atomic_store_explicit(&python.found, true, memory_order_release);
}

/* ---- The calling thread's state ---- */

static bool is_mine(uintptr_t thread, uint8_t *state)
{
    return os_peek_at(thread, state, python.at.thread_bytes) && word_at(state, python.at.thread_id) == os_thread_self();
}

/* A freed state still names its thread, so the state must also be in its interpreter's list. */
static bool is_still_mine(const struct python_memory *memory, uint8_t *state)
{
    uintptr_t linked;
    const struct os_piece pieces[] = { { memory->thread, state, python.at.thread_bytes },
                                       { memory->link, &linked, sizeof linked } };

    return os_peek(pieces, 2) && linked == memory->thread && word_at(state, python.at.thread_id) == os_thread_self();
}

/* The innermost frame of a thread's state, or 0. */
static uintptr_t innermost_frame(const uint8_t *state)
{
    uintptr_t frame = word_at(state, python.at.thread_frame);

    if (frame && python.at.holder_frame != PYTHON_NONE &&
        !os_peek_live_at(frame + python.at.holder_frame, &frame, sizeof frame))
        return 0;
    return frame;
}

/* The state of a thread that is about to start names the thread that made it, and has no frame. So a state with a frame
 * comes first. */
static uintptr_t search_thread(struct python_memory *memory)
{
    uintptr_t interpreter = peek_word(python.runtime + python.at.runtime_interpreters), frame = 0;
    uint8_t state[PYTHON_THREAD_BYTES];

    memory->thread = 0;
    for (unsigned i = 0; interpreter && !frame && i < INTERPRETERS_MOST; i++) {
        uintptr_t link = interpreter + python.at.interpreter_threads, thread = peek_word(link);
        for (unsigned k = 0; thread && !frame && k < THREADS_MOST; k++) {
            if (is_mine(thread, state)) {
                frame = innermost_frame(state);
                memory->thread = thread;
                memory->link = link;
            }
            link = thread + python.at.thread_next;
            thread = peek_word(link);
        }
        interpreter = peek_word(interpreter + python.at.interpreter_next);
    }
    if (!memory->thread)
        memory->skip = SKIP_AFTER_MISS;
    return frame;
}

/* The innermost frame of the calling thread, or 0. */
static HAK_NOINLINE uintptr_t first_frame(struct python_memory *memory)
{
    uint8_t state[PYTHON_THREAD_BYTES];
    uintptr_t frame = 0;

    if (memory->skip) {
        memory->skip--;
        return 0;
    }
    if (memory->thread && is_still_mine(memory, state))
        frame = innermost_frame(state);
    return frame ? frame : search_thread(memory);
}

/* ---- Frames ---- */

struct python_frame {
    uintptr_t code;
    uintptr_t entry : 1;  /* one bit: stacks are small */
    uintptr_t place : 63; /* an instruction's address, or its number */
};

_Static_assert(sizeof(struct python_frame) == 16, "64 of them are 1 KiB");

static bool is_entry(const uint8_t *frame)
{
    return python.at.entry == PYTHON_ENTRY_EACH ||
           (python.at.entry == PYTHON_ENTRY_FLAG && frame[python.at.frame_owner] != 0);
}

static bool is_shim(const uint8_t *frame)
{
    return python.at.entry == PYTHON_ENTRY_SHIM && frame[python.at.frame_owner] >= PYTHON_SHIM;
}

static unsigned walk_frames(uintptr_t address, struct python_frame *frames)
{
    uint8_t frame[PYTHON_FRAME_BYTES];
    unsigned count = 0;

    for (unsigned visits = 0; address && visits < VISITS_MOST; visits++) {
        if (address % sizeof(uintptr_t) != 0 || !os_peek_live_at(address, frame, python.at.frame_bytes))
            break;
        if (is_shim(frame)) {
            if (count)
                frames[count - 1].entry = true;
        } else if (count == FUNCTIONS_MOST) {
            break;
        } else {
            frames[count].code = word_at(frame, python.at.frame_code) & ~(uintptr_t)7; /* 3.14 tags references there */
            frames[count].place = (python.at.code_start == PYTHON_NONE ? number_at(frame, python.at.frame_place)
                                                                       : word_at(frame, python.at.frame_place)) &
                                  PLACE_MASK;
            frames[count++].entry = is_entry(frame);
        }
        address = word_at(frame, python.at.frame_previous);
    }
    return count;
}

/* ---- Texts ---- */

static size_t put_utf8(char *out, size_t used, size_t most, uint32_t character)
{
    unsigned more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    static const uint8_t marks[] = { 0, 0xc0, 0xe0, 0xf0 };

    if (character > 0x10ffff || (character >= 0xd800 && character < 0xe000)) { /* stands for a byte that was no UTF-8 */
        character = '?';
        more = 0;
    }

    if (used + more + 1 > most)
        return most + 1;
    out[used++] = (char)(marks[more] | (character >> (6 * more)));
    while (more--)
        out[used++] = (char)(0x80 | ((character >> (6 * more)) & 63));
    return used;
}

static bool is_ascii(const char *text, size_t size)
{
    unsigned all = 0;

    for (size_t i = 0; i < size; i++)
        all |= (unsigned char)text[i];
    return !(all & 0x80);
}

/* Copies a str as UTF-8, cut off at `most` bytes. Returns the bytes; 0: it is no str, or is empty. */
static size_t read_text(uintptr_t text, char *out, size_t most)
{
    uint8_t head[136], characters[64];
    size_t size = base_max(python.at.text_state, python.at.text_length) + 8, used = 0;
    uint32_t state, kind;
    uint64_t length;
    uintptr_t next;

    if (!os_peek_live_at(text, head, size))
        return 0;
    state = number_at(head, python.at.text_state) >> python.at.text_kind_shift;
    kind = state & 7;
    length = word_at(head, python.at.text_length);
    if ((kind != 1 && kind != 2 && kind != 4) || !(state & 8) || length >= HAK_MIB)
        return 0;
    next = text + (state & 16 ? python.at.text_ascii : python.at.text_other);
    if (state & 16 && length <= most && os_peek_live_at(next, out, length) && is_ascii(out, length))
        return length;
    for (uint64_t left = length; left && used <= most;) {
        size_t part = base_min(left, sizeof characters / kind);
        if (!os_peek_live_at(next, characters, part * kind))
            return 0;
        for (size_t i = 0; i < part && used <= most; i++) {
            uint32_t character = 0;
            memcpy(&character, characters + i * kind, kind);
            size_t after = put_utf8(out, used, most, character);
            if (after > most)
                return used;
            used = after;
        }
        next += part * kind;
        left -= part;
    }
    return used;
}

/* ---- Functions ---- */

struct function_text {
    size_t name_bytes, file_bytes;
    char bytes[NAME_BYTES + FILE_BYTES]; /* the name, then the file */
};

static struct python_code *code_make(uint64_t hash, uint32_t first_line, const struct function_text *text)
{
    size_t bytes = text->name_bytes + text->file_bytes;
    struct python_code *code;

    if (python_codes.bytes + bytes > CODES_BYTES_MOST || python_codes.count >= UINT32_MAX)
        return NULL;
    code = table_store(base_align_up(sizeof *code + bytes, sizeof(uintptr_t)));
    if (!code)
        return NULL;
    code->hash = hash;
    code->id = (uint32_t)python_codes.count + 1;
    code->first_line = first_line;
    code->name_bytes = (uint32_t)text->name_bytes;
    code->file_bytes = (uint32_t)text->file_bytes;
    memcpy(code->text, text->bytes, bytes);
    code->same = code_buckets[hash % BUCKETS];
    code_buckets[hash % BUCKETS] = code;
    /* Release: linked when it is whole, as readers in other processes take no lock (R5). */
    __atomic_store_n(python_codes.last ? &python_codes.last->next : &python_codes.first, code, __ATOMIC_RELEASE);
    python_codes.last = code;
    python_codes.bytes += sizeof *code + bytes;
    python_codes.count++;
    return code;
}

static struct python_code *code_find(uint64_t hash, uint32_t first_line, const struct function_text *text)
{
    struct python_code *code = code_buckets[hash % BUCKETS];

    while (code && !(code->hash == hash && code->first_line == first_line && code->name_bytes == text->name_bytes &&
                     code->file_bytes == text->file_bytes &&
                     memcmp(code->text, text->bytes, text->name_bytes + text->file_bytes) == 0))
        code = code->same;
    return code ? code : code_make(hash, first_line, text);
}

/* The number of the kept function with this text and line, kept now if it is new; 0: there is no room. */
static uint32_t code_number(uint32_t first_line, const struct function_text *text)
{
    uint64_t hash = mix(first_line, text->name_bytes);
    struct python_code *code = NULL;

    for (size_t i = 0; i < text->name_bytes + text->file_bytes; i++)
        hash = mix(hash, (uint8_t)text->bytes[i]);
    lock_acquire(&profile_lock);
    if (!code_buckets)
        code_buckets = table_store(BUCKETS * sizeof(struct python_code *));
    if (code_buckets)
        code = code_find(hash, first_line, text);
    lock_release(&profile_lock);
    return code ? code->id : 0;
}

const struct python_code *python_code_of(uintptr_t frame)
{
    const struct python_code *code;

    lock_acquire(&profile_lock);
    for (code = python_codes.first; code && code->id != python_frame_id(frame); code = code->next)
        ;
    lock_release(&profile_lock);
    return code;
}

/* ---- Places in functions ---- */

static struct seen_place *seen_place(uint64_t key)
{
    struct seen_place *places = atomic_load_explicit(&seen_places, memory_order_acquire);

    if (!places) {
        lock_acquire(&profile_lock);
        places = atomic_load_explicit(&seen_places, memory_order_relaxed);
        if (!places) {
            places = table_store(SEEN_SLOTS * sizeof *places);
            atomic_store_explicit(&seen_places, places, memory_order_release);
        }
        lock_release(&profile_lock);
    }
    return places ? &places[key % SEEN_SLOTS] : NULL;
}

static uint32_t line_of(const struct python_frame *frame, const uint8_t *code)
{
    uintptr_t table = word_at(code, python.at.code_table);
    uint32_t first = number_at(code, python.at.code_first_line);
    size_t size;
    int64_t place;

    if (!os_peek_live_at(table + python.at.bytes_size, &size, sizeof size))
        return 0;

    if (python.at.code_start == PYTHON_NONE)
        place = (int64_t)(int32_t)frame->place * python.at.place_scale;
    else
        place = (int64_t)(frame->place - frame->code - python.at.code_start);
    return python_line(python.at.table, table + python.at.bytes_data, size, first, place);
}

/* The frame of a place in the code object whose head was read; 0: it cannot be made. */
static HAK_NOINLINE uintptr_t make_frame(const struct python_frame *frame, const uint8_t *code)
{
    struct function_text text;
    uint32_t number;

    text.name_bytes = read_text(word_at(code, python.at.code_name), text.bytes, NAME_BYTES);
    if (text.name_bytes == 0)
        return 0;
    text.file_bytes = read_text(word_at(code, python.at.code_file), text.bytes + text.name_bytes, FILE_BYTES);
    number = code_number(number_at(code, python.at.code_first_line), &text);
    if (number == 0)
        return 0;
    return PYTHON_MARK | (uint64_t)number << PYTHON_LINE_BITS | base_min(line_of(frame, code), PYTHON_LINE_MOST);
}

/* Tells strs apart: by length and hash if the str has a hash, as names do; else by length and characters. */
struct text_mark {
    uint64_t length, hash; /* as they lie in the interpreter's memory */
};
#define NO_HASH UINT64_MAX

/* A text without a hash, and the sum of its characters. A file's name is the text of all of its functions, so a stack
 * has few. */
struct text_sum {
    uintptr_t text;
    uint64_t length, sum;
};
struct text_sums {
    struct text_sum last[SUMS_KEPT];
    unsigned next;
};

static uint64_t sum_of(uintptr_t text, uint64_t length, struct text_sums *sums)
{
    char characters[HASHED_BYTES];
    uint64_t sum = length;
    size_t size;

    for (unsigned i = 0; i < SUMS_KEPT; i++)
        if (sums->last[i].text == text && sums->last[i].length == length)
            return sums->last[i].sum;
    size = read_text(text, characters, sizeof characters);
    for (size_t i = 0; i < size; i++)
        sum = mix(sum, (uint8_t)characters[i]);
    sums->last[sums->next++ % SUMS_KEPT] = (struct text_sum){ text, length, sum };
    return sum;
}

static uint64_t mix_text(uint64_t key, uintptr_t text, const struct text_mark *mark, struct text_sums *sums)
{
    return mix(mix(key, mark->length), mark->hash == NO_HASH ? sum_of(text, mark->length, sums) : mark->hash);
}

/* A function may lie where another one lay, with all its parts, so the key is of more than addresses. marks: of its
 * name and its file. */
static uintptr_t frame_of(const struct python_frame *frame, const uint8_t *code, const struct text_mark marks[2],
                          struct text_sums *sums)
{
    uint64_t key = mix(mix(frame->code, frame->place), word_at(code, python.at.code_table));
    uintptr_t known = 0;
    struct seen_place *seen;

    key = mix(key, number_at(code, python.at.code_first_line));
    key = mix_text(key, word_at(code, python.at.code_name), &marks[0], sums);
    key = mix_text(key, word_at(code, python.at.code_file), &marks[1], sums);
    seen = seen_place(key);
    if (seen) {
        known = atomic_load_explicit(&seen->frame, memory_order_relaxed);
        if (known && atomic_load_explicit(&seen->sum, memory_order_relaxed) == key + known)
            return known;
    }
    known = make_frame(frame, code);
    if (seen && known) {
        atomic_store_explicit(&seen->sum, key + known, memory_order_relaxed);
        atomic_store_explicit(&seen->frame, known, memory_order_relaxed);
    }
    return known;
}

/* A frame that is being left may be the last to hold its code object, which may be half freed; then its reference count
 * is 0. Free-threaded builds, in which the type lies elsewhere, count otherwise. */
static bool is_code(const uint8_t *head)
{
    return word_at(head, python.at.object_type) == python.code_type &&
           (python.at.object_type != sizeof(uintptr_t) || number_at(head, 0) != 0);
}

/* Reads the heads of up to BATCH code objects, and replaces each object's address by its frame; 0: it has none. */
static HAK_NOINLINE void name_batch(struct python_frame *frames, unsigned count, struct text_sums *sums)
{
    uint8_t heads[BATCH][PYTHON_CODE_BYTES];
    struct text_mark marks[BATCH][2];
    struct os_piece pieces[BATCH] = { { 0, NULL, 0 } }, texts[2 * BATCH];
    bool all, all_texts;

    for (unsigned i = 0; i < count; i++)
        pieces[i] = (struct os_piece){ frames[i].code, &heads[i][0], python.at.code_bytes };
    all = os_peek_live(pieces, count);
    for (size_t i = 0; i < count; i++) {
        if (!(all || os_peek_live(&pieces[i], 1)) || !is_code(heads[i]))
            frames[i].code = 0;
        for (unsigned k = 0; k < 2; k++) {
            uintptr_t text = frames[i].code ? word_at(heads[i], k ? python.at.code_file : python.at.code_name) : 0;
            texts[2 * i + k] = (struct os_piece){ text + python.at.text_length, &marks[i][k], sizeof marks[i][k] };
        }
    }
    all_texts = os_peek_live(texts, 2 * count);
    for (size_t i = 0; i < count; i++)
        frames[i].code = frames[i].code && (all_texts || os_peek_live(&texts[2 * i], 2))
                             ? frame_of(&frames[i], heads[i], marks[i], sums)
                             : 0;
}

/* ---- Stacks ---- */

struct merging {
    uintptr_t *merged; /* the result */
    unsigned count, most;
    const struct python_frame *functions;
    unsigned function, functions_count; /* the next to be put, and their number */
};

static void merge_put(struct merging *merging, uintptr_t frame)
{
    if (frame && merging->count < merging->most)
        merging->merged[merging->count++] = frame;
}

/* Puts the functions up to and with the next entry, or all. */
static void merge_functions(struct merging *merging, bool all)
{
    while (merging->function < merging->functions_count) {
        const struct python_frame *function = &merging->functions[merging->function++];
        merge_put(merging, function->code);
        if (function->entry && !all)
            break;
    }
}

static bool is_loop(uintptr_t return_address)
{
    return return_address > python.loop_start && return_address <= python.loop_end;
}
static bool is_interpreter(uintptr_t return_address)
{
    return return_address > python.own_start && return_address <= python.own_end;
}

static void merge_all(struct merging *merging, const uintptr_t *frames, unsigned count, bool whole)
{
    unsigned loops = 0, entries = 0;
    bool paired, placed = false;

    for (unsigned i = 0; i < count; i++)
        loops += is_loop(frames[i]);
    for (unsigned i = 0; i < merging->functions_count; i++)
        entries += merging->functions[i].entry;
    /* Compilers may move parts of the loop, or make it of functions that tail-call each other. If its frames and the
     * entries do not match, all functions come before the interpreter's first frame. */
    paired = loops && (loops == entries || !whole || merging->functions_count == FUNCTIONS_MOST);
    for (unsigned i = 0; i < count; i++) {
        if (paired ? is_loop(frames[i]) : !placed && is_interpreter(frames[i])) {
            merge_functions(merging, !paired);
            placed = true;
        }
        merge_put(merging, frames[i]);
    }
    merge_functions(merging, true);
}

unsigned python_merge(struct python_memory *memory, uintptr_t *frames, unsigned count, unsigned most, bool whole)
{
    struct python_frame functions[FUNCTIONS_MOST];
    struct merging merging = { .merged = frames, .most = most, .functions = functions };
    struct text_sums sums = { .next = 0 };

    HAK_ASSERT(count + FUNCTIONS_MOST <= most);
    merging.functions_count = walk_frames(first_frame(memory), functions);
    if (merging.functions_count == 0)
        return count;
    for (unsigned i = 0; i < merging.functions_count; i += BATCH)
        name_batch(functions + i, (unsigned)base_min(BATCH, merging.functions_count - i), &sums);
    /* Makes room: the result grows from the start, and has room for all functions before the frames not merged yet. */
    memmove(frames + most - count, frames, count * sizeof *frames);
    merge_all(&merging, frames + most - count, count, whole);
    return merging.count;
}
