/* Protects profile/python.c: which Python functions a stack gets, where in it, and with which names and lines. */
#include "interpreter.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine.h"
#include "profile/python.h"
#include "profile/table.h"

enum { OTHER = 0x7ff00000 }; /* a return address outside this program */

static struct python_memory memory;

static void assert_function(uintptr_t frame, const char *name, const char *file, uint32_t line)
{
    const struct python_code *code = python_code_of(frame);

    assert_true(python_is_frame(frame));
    assert_non_null(code);
    assert_int_equal(code->id, python_frame_id(frame));
    assert_int_equal(code->name_bytes, strlen(name));
    assert_memory_equal(code->text, name, strlen(name));
    assert_int_equal(code->file_bytes, strlen(file));
    assert_int_equal(memcmp(code->text + code->name_bytes, file, strlen(file)), 0);
    assert_int_equal(python_frame_line(frame), line);
}

/* The function of a stack of one: its frame, or 0. */
static uintptr_t frame_of(const uint8_t *code, int place)
{
    uintptr_t frames[STACK_MOST] = { OTHER };
    unsigned count;

    set_frame(make_frame(code, place));
    count = python_merge(&memory, frames, 1, STACK_MOST, true);
    assert_true(count >= 1 && count <= 2 && frames[0] == OTHER);
    return count == 2 ? frames[1] : 0;
}

/* ---- Where functions come in a stack ---- */

/* Merges the stack of return addresses with the functions. The words have a letter for each frame, innermost first: x:
 * the loop, i: another of the interpreter's, o: another object's, f: a function, e: a function that is an entry. */
static void check_merge(const char *addresses, const char *functions, const char *merged, bool whole)
{
    uintptr_t frames[STACK_MOST] = { 0 };
    uint8_t *codes[256];
    bool entries[256];
    unsigned count = (unsigned)strlen(addresses), functions_count = (unsigned)strlen(functions), got, address = 0,
             function = 0;
    char name[16];

    for (unsigned i = 0; i < functions_count; i++) {
        (void)snprintf(name, sizeof name, "f%u", i);
        codes[i] = make_code(make_ascii(name, i), make_ascii("a.py", 5), 100 * i);
        entries[i] = functions[i] == 'e';
    }
    set_stack(codes, entries, functions_count);
    for (unsigned i = 0; i < count; i++)
        frames[i] = addresses[i] == 'x'   ? (uintptr_t)loop + 1 + i % 3
                    : addresses[i] == 'i' ? (uintptr_t)begin + i
                                          : OTHER + i;
    got = python_merge(&memory, frames, count, STACK_MOST, whole);
    assert_int_equal(got, strlen(merged));
    for (unsigned i = 0; i < got; i++) {
        if (merged[i] == 'f' || merged[i] == 'e') {
            (void)snprintf(name, sizeof name, "f%u", function);
            assert_function(frames[i], name, "a.py", 100 * function + 1 + function % 3);
            function++;
        } else {
            assert_int_equal(merged[i], addresses[address]);
            assert_false(python_is_frame(frames[i]));
            address++;
        }
    }
    assert_int_equal(address, count);
    assert_int_equal(function, functions_count);
}

static void in_each_version(void (*body)(void))
{
    for (unsigned i = 0; i < minor_count; i++) {
        pid_t child = fork();
        int status;
        assert_true(child >= 0);
        if (child == 0) {
            begin(minors[i]);
            body();
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0)
            fail_msg("with 3.%u the child ended with status %#x", minors[i], (unsigned)status);
    }
}

static void merges(void)
{
    check_merge("oo", "", "oo", true);
    check_merge("oxo", "e", "oexo", true);
    check_merge("xoox", "ee", "exooex", true);
    if (layout.entry != PYTHON_ENTRY_EACH) {
        check_merge("oxixoo", "ffefe", "offexifexoo", true);
        check_merge("ox", "f", "ofx", false);  /* the stack is cut off, and so are the entries */
        check_merge("oxx", "ffef", "offexfx", false);
        check_merge("oxx", "ffe", "offexx", false);
    }
    /* The loop's frames and the entries do not match: all functions come before the interpreter's first frame. */
    check_merge("ooiox", "ee", "ooeeiox", true);
    check_merge("oixix", "eee", "oeeeixix", true);
    check_merge("oxxo", "e", "oexxo", true);
    check_merge("oio", "e", "oeio", true);
    check_merge("oo", "ee", "ooee", true); /* no frame is the interpreter's */
    check_merge("", "e", "e", true);
}

static void test_merges(void) { in_each_version(merges); }

/* The first 64 functions of a deep stack, and as many as there is room for. */
static void deep(void)
{
    char functions[101] = { 0 }, merged[66] = { 0 };
    uint8_t *codes[200];
    bool entries[200] = { false };
    uintptr_t frames[STACK_MOST];
    uint8_t *frame, *shim = take(PYTHON_FRAME_BYTES);

    memset(functions, layout.entry == PYTHON_ENTRY_EACH ? 'e' : 'f', 64);
    memcpy(merged, functions, 64);
    functions[63] = merged[63] = 'e';
    if (layout.entry != PYTHON_ENTRY_EACH) {
        merged[64] = 'x';
        check_merge("x", functions, merged, true);
    }
    for (unsigned i = 0; i < 200; i++)
        codes[i] = make_code(make_ascii("g", i), make_ascii("a.py", 5), i);
    set_stack(codes, entries, 200);
    frames[0] = (uintptr_t)loop + 1;
    assert_int_equal(python_merge(&memory, frames, 1, STACK_MOST, true), 65);
    for (unsigned i = 0; i < 64; i++)
        assert_function(frames[layout.entry == PYTHON_ENTRY_EACH ? i + (i > 0) : i], "g", "a.py", i + 1 + i % 3);
    /* Of a circle of frames no more is read than of a deep stack. */
    frame = make_frame(codes[0], 0);
    put_word(frame, layout.frame_previous, (uintptr_t)frame);
    set_frame(frame);
    frames[0] = OTHER;
    assert_int_equal(python_merge(&memory, frames, 1, STACK_MOST, true), 65);
    if (layout.entry == PYTHON_ENTRY_SHIM) {
        put_word(shim, layout.frame_previous, (uintptr_t)shim);
        shim[layout.frame_owner] = PYTHON_SHIM;
        set_frame(shim);
        frames[0] = OTHER;
        assert_int_equal(python_merge(&memory, frames, 1, STACK_MOST, true), 1);
    }
}

static void test_deep(void) { in_each_version(deep); }

/* A frame at a wrong address ends the stack. */
static void wrong_frames(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *closed = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *code = make_code(make_ascii("f", 1), make_ascii("a.py", 5), 1), *frame = make_frame(code, 0);
    uintptr_t frames[STACK_MOST] = { OTHER };
    const uintptr_t wrong[] = { (uintptr_t)frame + 4, (uintptr_t)closed, 8, UINTPTR_MAX - 7 };

    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        set_frame((uint8_t *)wrong[i]);
        assert_int_equal(python_merge(&memory, frames, 1, STACK_MOST, true), 1);
        put_word(frame, layout.frame_previous, wrong[i]);
        set_frame(frame);
        assert_int_equal(python_merge(&memory, frames, 1, STACK_MOST, true), 2);
        assert_function(frames[1], "f", "a.py", 2);
    }
    if (layout.holder_frame != PYTHON_NONE) {
        put_word(thread_state, layout.thread_frame, (uintptr_t)closed);
        assert_int_equal(python_merge(&memory, frames, 1, STACK_MOST, true), 1);
    }
}

static void test_wrong_frames(void) { in_each_version(wrong_frames); }

/* ---- The calling thread ---- */

static unsigned merged_count(void)
{
    uintptr_t frames[STACK_MOST] = { OTHER };

    return python_merge(&memory, frames, 1, STACK_MOST, true);
}

static void threads(void)
{
    uint8_t *other_interpreter = take(1024), *others[3], *code = make_code(make_ascii("f", 1), make_ascii("a", 5), 1);

    set_frame(make_frame(code, 0));
    /* The state is the last of the second interpreter's. */
    for (unsigned i = 0; i < 3; i++) {
        others[i] = make_state(0x5000 + i);
        put_word(others[i], layout.thread_next, i ? (uintptr_t)others[i - 1] : (uintptr_t)thread_state);
    }
    put_word(interpreter, layout.interpreter_next, (uintptr_t)other_interpreter);
    put_word(interpreter, layout.interpreter_threads, (uintptr_t)make_state(0x6000));
    put_word(other_interpreter, layout.interpreter_threads, (uintptr_t)others[2]);
    assert_int_equal(merged_count(), 2);
    assert_int_equal(memory.thread, (uintptr_t)thread_state);
    assert_int_equal(memory.link, (uintptr_t)others[0] + layout.thread_next);
    /* Another thread's state leaves the list, then one comes into it. */
    put_word(others[1], layout.thread_next, (uintptr_t)thread_state);
    put_word(others[0], layout.thread_next, 0);
    assert_int_equal(merged_count(), 2);
    assert_int_equal(memory.link, (uintptr_t)others[1] + layout.thread_next);
    /* The state leaves the list: it may be freed, though it still names the thread. */
    put_word(others[1], layout.thread_next, 0);
    assert_int_equal(merged_count(), 1);
    assert_int_equal(memory.thread, 0);
    /* It is back, but is looked for only after 16 samples more. */
    put_word(others[1], layout.thread_next, (uintptr_t)thread_state);
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(merged_count(), 1);
    assert_int_equal(merged_count(), 2);
    /* The state becomes another thread's. */
    put_word(thread_state, layout.thread_id, 0x7000);
    assert_int_equal(merged_count(), 1);
}

static void test_threads(void) { in_each_version(threads); }

/* Until a new thread begins, its state names the thread that made it, stands first in the list, and has no frame. */
static void a_thread_that_is_made(void)
{
    uint8_t *made = make_state((uintptr_t)pthread_self()), *code = make_code(make_ascii("f", 1), make_ascii("a", 5), 1);

    set_frame(make_frame(code, 0));
    assert_int_equal(merged_count(), 2);
    put_word(made, layout.thread_next, (uintptr_t)thread_state);
    put_word(interpreter, layout.interpreter_threads, (uintptr_t)made);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(merged_count(), 2);
    /* While no function runs, the thread is found again for each sample. */
    set_frame(NULL);
    assert_int_equal(merged_count(), 1);
    set_frame(make_frame(code, 0));
    assert_int_equal(merged_count(), 2);
}

static void test_a_thread_that_is_made(void) { in_each_version(a_thread_that_is_made); }

/* At most 16 interpreters with 256 threads each are looked at: the lists may change while they are read. */
static void long_lists(void)
{
    uint8_t *code = make_code(make_ascii("f", 1), make_ascii("a", 5), 1), *interpreters[17], *states[257];

    set_frame(make_frame(code, 0));
    for (unsigned i = 0; i < 17; i++) {
        interpreters[i] = take(1024);
        if (i)
            put_word(interpreters[i - 1], layout.interpreter_next, (uintptr_t)interpreters[i]);
    }
    put_word(runtime, layout.runtime_interpreters, (uintptr_t)interpreters[0]);
    put_word(interpreters[15], layout.interpreter_threads, (uintptr_t)thread_state);
    assert_int_equal(merged_count(), 2);
    put_word(interpreters[15], layout.interpreter_threads, 0);
    put_word(interpreters[16], layout.interpreter_threads, (uintptr_t)thread_state);
    assert_int_equal(merged_count(), 1);
    memory.skip = 0;
    for (unsigned i = 0; i < 257; i++) {
        states[i] = i == 255 ? thread_state : make_state(0x5000 + i);
        if (i)
            put_word(states[i - 1], layout.thread_next, (uintptr_t)states[i]);
    }
    put_word(interpreters[0], layout.interpreter_threads, (uintptr_t)states[0]);
    assert_int_equal(merged_count(), 2);
    put_word(thread_state, layout.thread_id, 0x6000);
    put_word(states[256], layout.thread_id, (uintptr_t)pthread_self());
    memcpy(states[256] + layout.thread_frame, thread_state + layout.thread_frame, sizeof(uintptr_t));
    assert_int_equal(merged_count(), 1);
    memory.skip = 0;
    put_word(states[256], layout.thread_next, (uintptr_t)states[0]); /* a circle has an end, too */
    put_word(states[256], layout.thread_id, 0x6000);
    put_word(interpreters[16], layout.interpreter_next, (uintptr_t)interpreters[0]);
    assert_int_equal(merged_count(), 1);
}

static void test_long_lists(void) { in_each_version(long_lists); }

/* ---- Functions ---- */

/* A word that is no code object, or one that is being freed, has no frame. The functions around it have theirs. */
static void wrong_codes(void)
{
    enum { COUNT = 11 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *closed = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *codes[COUNT];
    uintptr_t frames[STACK_MOST];
    bool entries[COUNT] = { false };
    char name[8];

    for (unsigned wrong = 0; wrong < COUNT; wrong++)
        for (unsigned how = 0; how < 6; how++) {
            unsigned put = 0;
            for (unsigned i = 0; i < COUNT; i++) {
                (void)snprintf(name, sizeof name, "g%u", i);
                codes[i] = make_code(make_ascii(name, i), make_ascii("a.py", 5), 10 * i);
            }
            if (how == 0)
                put_word(codes[wrong], layout.object_type, (uintptr_t)type_type);
            else if (how == 1)
                put_word(codes[wrong], 0, 0);
            else if (how == 2)
                put_word(codes[wrong], layout.code_name, (uintptr_t)closed);
            else if (how == 3)
                put_word(codes[wrong], layout.code_name, (uintptr_t)make_ascii("", 5));
            else if (how == 4)
                put_word(codes[wrong], layout.code_file, (uintptr_t)closed);
            else
                codes[wrong] = closed;
            set_stack(codes, entries, COUNT);
            assert_int_equal(python_merge(&memory, frames, 0, STACK_MOST, true), COUNT - 1);
            for (unsigned i = 0; i < COUNT; i++) {
                (void)snprintf(name, sizeof name, "g%u", i);
                if (i != wrong)
                    assert_function(frames[put++], name, "a.py", 10 * i + 1 + i % 3);
            }
        }
    assert_int_equal(python_codes.count, COUNT);
}

static void test_wrong_codes(void) { in_each_version(wrong_codes); }

/* Lines: of each instruction, before the first one, behind the last one, of a table that is gone, and too high ones. */
static void lines(void)
{
    uint8_t *code = make_code(make_ascii("f", 1), make_ascii("a.py", 5), 50);
    uint8_t *lost = make_code(make_ascii("f", 1), make_ascii("a.py", 5), 50);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *closed = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    for (int place = 0; place < 30; place += 2)
        assert_function(frame_of(code, place), "f", "a.py", 51 + (uint32_t)place / 10);
    assert_function(frame_of(code, -2), "f", "a.py", 50);
    assert_function(frame_of(code, 30), "f", "a.py", layout.table == PYTHON_LNOTAB ? 53 : 0);
    put_word(lost, layout.code_table, (uintptr_t)closed);
    assert_function(frame_of(lost, 0), "f", "a.py", 0);
    put_number(code, layout.code_first_line, PYTHON_LINE_MOST - 2);
    assert_function(frame_of(code, 0), "f", "a.py", PYTHON_LINE_MOST - 1);
    assert_function(frame_of(code, 10), "f", "a.py", PYTHON_LINE_MOST);
    assert_function(frame_of(code, 20), "f", "a.py", PYTHON_LINE_MOST);
    assert_int_equal(python_codes.count, 2); /* the first line tells functions apart */
}

static void test_lines(void) { in_each_version(lines); }

/* A function is kept once, and another one that lies where it lay is another one. */
static void reused(void)
{
    uint8_t *name = make_ascii("one", 77), *file = make_ascii("a.py", UINT64_MAX), *code = make_code(name, file, 5);
    uintptr_t first = frame_of(code, 0);

    assert_function(first, "one", "a.py", 6);
    assert_int_equal(frame_of(code, 0), first);
    assert_int_equal(python_frame_id(frame_of(code, 10)), python_frame_id(first));
    assert_int_equal(frame_of(make_code(make_ascii("one", 1), make_ascii("a.py", 2), 5), 0), first);
    assert_int_equal(python_codes.count, 1);
    memcpy(name + layout.text_ascii, (char[]){ 't', 'w', 'o' }, 3);
    put_word(name, layout.text_length + 8, 78);
    assert_function(frame_of(code, 0), "two", "a.py", 6);
    file[layout.text_ascii] = 'b'; /* without a hash: its characters tell it apart */
    assert_function(frame_of(code, 0), "two", "b.py", 6);
    put_number(code, layout.code_first_line, 9);
    assert_function(frame_of(code, 0), "two", "b.py", 10);
    put_word(code, layout.code_file, (uintptr_t)make_ascii("c.py", 4));
    assert_function(frame_of(code, 0), "two", "c.py", 10);
    put_word(name, layout.text_length, 2);
    assert_function(frame_of(code, 0), "tw", "c.py", 10);
    assert_int_equal(python_codes.count, 6);
    for (unsigned id = 1; id <= 6; id++)
        assert_int_equal(python_code_of(PYTHON_MARK | (uint64_t)id << PYTHON_LINE_BITS)->id, id);
    assert_null(python_code_of(PYTHON_MARK | UINT64_C(7) << PYTHON_LINE_BITS));
    assert_null(python_code_of(PYTHON_MARK));
}

static void test_reused(void) { in_each_version(reused); }

/* Files without a hash, more than are remembered in one stack, and a long one that differs behind the first part. */
static void files_without_hash(void)
{
    enum { COUNT = 12 };
    uint8_t *codes[COUNT];
    uintptr_t frames[STACK_MOST];
    bool entries[COUNT] = { false };
    char file[8];

    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            (void)snprintf(file, sizeof file, "%u.py", i % 6);
            codes[i] = make_code(make_ascii("f", 1), make_ascii(file, UINT64_MAX), 5);
        }
        set_stack(codes, entries, COUNT);
        assert_int_equal(python_merge(&memory, frames, 0, STACK_MOST, true), COUNT);
        for (unsigned i = 0; i < COUNT; i++) {
            (void)snprintf(file, sizeof file, "%u.py", i % 6);
            assert_function(frames[i], "f", file, 6 + i % 3);
        }
    }
    assert_int_equal(python_codes.count, 6);
}

static void test_files_without_hash(void) { in_each_version(files_without_hash); }

/* When there is no room for another function, its frames are left out, and the known ones stay. */
static void many(void)
{
    char name[257];
    uintptr_t first = frame_of(make_code(make_ascii("first", 1), make_ascii("a.py", 5), 1), 0);
    uint32_t number = 0;
    size_t used = arena_used, bytes;

    memset(name, 'x', sizeof name - 1);
    name[256] = '\0';
    do {
        number++;
        bytes = python_codes.bytes;
        arena_used = used; /* the objects' memory again */
        memset(arena + used, 0, 4096);
        assert_true(number < 8 * HAK_MIB / 256);
    } while (frame_of(make_code(make_ascii(name, number), make_ascii("a.py", 5), number), 0) != 0);
    assert_true(bytes <= 8 * HAK_MIB && bytes > 8 * HAK_MIB - 1000);
    assert_int_equal(python_codes.bytes, bytes);
    assert_int_equal(python_codes.count, number);
    memset(arena + used, 0, 4096);
    arena_used = used;
    assert_int_equal(frame_of(make_code(make_ascii("first", 1), make_ascii("a.py", 5), 1), 0), first);
}

static void test_many(void) { in_each_version(many); }

/* ---- Texts ---- */

/* A name of `length` characters of `width` bytes is kept as `expected`. */
static void check_text(const void *characters, size_t length, uint32_t state_bits, const char *expected)
{
    static uint64_t hash;
    uint8_t *name = make_str(characters, length, state_bits, hash++);
    uintptr_t frame = frame_of(make_code(name, make_ascii("", 1), 5), 0);

    assert_function(frame, expected, "", 6);
}

static void texts(void)
{
    static const uint32_t ends[] = { 0x24,   0x7f,   0x80,   0x7ff,   0x800,    0xd7ff,  0xd800,
                                     0xdfff, 0xe000, 0xffff, 0x10000, 0x10ffff, 0x110000 };
    uint16_t euros[200];
    uint32_t faces[100];
    char longest[400], expected[400] = "";
    uint8_t *wrong[4];

    memset(longest, 'y', sizeof longest);
    check_text("plain", 5, 1 | COMPACT | ASCII, "plain");
    check_text("h\xf6her", 5, 1 | COMPACT, "h\xc3\xb6her");
    check_text("h\xf6her", 5, 1 | COMPACT | ASCII, "h\xc3\xb6her"); /* a wrong state, and valid UTF-8 all the same */
    check_text((uint16_t[]){ 'a', 0x20ac, 0x7ff }, 3, 2 | COMPACT, "a\xe2\x82\xac\xdf\xbf");
    check_text(ends, sizeof ends / sizeof ends[0], 4 | COMPACT,
               "$\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf??"
               "\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf?");
    /* 256 bytes are kept, no part of a character. */
    for (unsigned length = 255; length <= 257; length++) {
        memset(expected, 'y', 256);
        expected[base_min(length, 256)] = '\0';
        check_text(longest, length, 1 | COMPACT | ASCII, expected);
        check_text(longest, length, 1 | COMPACT, expected);
    }
    for (unsigned i = 0; i < 200; i++)
        euros[i] = 0x20ac;
    for (unsigned i = 0; i < 85; i++)
        memcpy(expected + 3 * i, "\xe2\x82\xac", 4);
    check_text(euros, 200, 2 | COMPACT, expected);
    check_text(euros, 85, 2 | COMPACT, expected);
    for (unsigned i = 0; i < 100; i++) {
        faces[i] = 0x1f600;
        if (i < 64)
            memcpy(expected + 4 * i, "\xf0\x9f\x98\x80", 5);
    }
    check_text(faces, 64, 4 | COMPACT, expected);
    check_text(faces, 65, 4 | COMPACT, expected);
    /* A function whose name is no valid str has no frame: not compact, of a wrong kind, or too long. */
    wrong[0] = make_str("plain", 5, 1 | ASCII, 1);
    wrong[1] = make_str("plain", 1, 3 | COMPACT, 2);
    wrong[2] = make_str("plain", 1, COMPACT, 3);
    wrong[3] = make_ascii("plain", 4);
    put_word(wrong[3], layout.text_length, HAK_MIB);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(frame_of(make_code(wrong[i], make_ascii("", 1), 5), 0), 0);
    put_word(wrong[3], layout.text_length, HAK_MIB - 1);
    assert_int_not_equal(frame_of(make_code(wrong[3], make_ascii("", 1), 5), 0), 0);
}

static void test_texts(void) { in_each_version(texts); }

static void long_files(void)
{
    static char file[600], expected[600];

    memset(file, 'z', sizeof file - 1);
    for (unsigned length = 511; length <= 513; length++) {
        memset(expected, 'z', 512);
        expected[base_min(length, 512)] = '\0';
        uint8_t *text = make_str(file, length, 1 | COMPACT | ASCII, length);
        assert_function(frame_of(make_code(make_ascii("f", length), text, 5), 0), "f", expected, 6);
    }
}

static void test_long_files(void) { in_each_version(long_files); }

/* A text at the end of readable memory is read, and one that goes beyond it has no frame. */
static void texts_at_an_end(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    for (unsigned beyond = 0; beyond < 2; beyond++)
        for (unsigned kind = 0; kind < 2; kind++) {
            uint32_t bits = kind ? 1 | COMPACT : 1 | COMPACT | ASCII;
            uint32_t place = kind ? layout.text_other : layout.text_ascii;
            uint8_t *text = pages + page - place - 200 + 8 * beyond;
            put_number(text, layout.text_state, bits << layout.text_kind_shift);
            put_word(text, layout.text_length, 200);
            put_word(text, layout.text_length + 8, 10 * beyond + kind);
            memset(text + place, 'q', 200 - 8 * beyond);
            assert_int_equal(frame_of(make_code(text, make_ascii("", 1), 5), 0) == 0, beyond);
        }
}

static void test_texts_at_an_end(void) { in_each_version(texts_at_an_end); }

/* ---- Whether there is an interpreter ---- */

static void test_option_off(void)
{
    begin_unprepared(minors[0]);
    hak_options.heap_profile_python = 0;
    python_prepare(false);
    assert_false(python_found());
    hak_options.heap_profile_python = 1;
    python_prepare(false);
    assert_true(python_found());
}

/* In a debug build the type lies elsewhere. Before the dynamic linker has relocated the program, it is 0. */
static void test_type_elsewhere(void)
{
    begin_unprepared(minors[0]);
    code_type[layout.object_type / 8] = (uintptr_t)code_type;
    python_prepare(false);
    assert_false(python_found());
    code_type[layout.object_type / 8] = 0;
    python_prepare(false);
    assert_true(python_found());
}

static void test_unknown_version(void)
{
    begin_unprepared(minors[0]);
    set_version(8);
    runtime[1] = 0x030800f0;
    python_prepare(false);
    assert_int_equal(python_found(), UNIT_PYTHON < 11);
    set_version(15);
    runtime[1] = 0x030f00f0;
    python_prepare(false);
    assert_int_equal(python_found(), UNIT_PYTHON < 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_merges),
        core_unit_test(test_deep),
        core_unit_test(test_wrong_frames),
        core_unit_test(test_threads),
        core_unit_test(test_a_thread_that_is_made),
        core_unit_test(test_long_lists),
        core_unit_test(test_wrong_codes),
        core_unit_test(test_lines),
        core_unit_test(test_reused),
        core_unit_test(test_files_without_hash),
        core_unit_test(test_many),
        core_unit_test(test_texts),
        core_unit_test(test_long_files),
        core_unit_test(test_texts_at_an_end),
        core_unit_test(test_option_off),
        core_unit_test(test_type_elsewhere),
        core_unit_test(test_unknown_version),
    };

    if (!machine_has("test_python_frames", machine_lacks_process_vm_readv()))
        return MACHINE_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
