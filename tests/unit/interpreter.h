/* A CPython interpreter for tests: its objects are made in this program's memory. UNIT_PYTHON is 9 or 10 for these
 * versions, and 11 for an interpreter that tells its version, which is then any from 3.11 on. */
#ifndef HAK_TESTS_UNIT_INTERPRETER_H
#define HAK_TESTS_UNIT_INTERPRETER_H

#include "core.h"

#include "profile/python_layout.h"

/* Versions that this one can be. */
extern const unsigned minors[], minor_count;

/* Makes an interpreter of the version with one thread, the calling one, without a frame. begin() finds it, too. */
void begin_unprepared(unsigned minor);
void begin(unsigned minor);
void set_version(unsigned minor);

/* The places of the version's fields, and the interpreter's parts. */
extern struct python_layout layout;
extern uint64_t runtime[160] __asm__("_PyRuntime");
extern uintptr_t type_type[64] __asm__("PyType_Type"), code_type[64] __asm__("PyCode_Type");
extern uint8_t *interpreter, *thread_state;
int loop(int number) __asm__("_PyEval_EvalFrameDefault");

/* Objects lie in the arena, one behind the other. take returns zeroed memory. */
extern uint8_t arena[24 * HAK_MIB];
extern size_t arena_used;
uint8_t *take(size_t size);
void put_word(void *object, uint32_t offset, uint64_t word);
void put_number(void *object, uint32_t offset, uint32_t word);

/* A str of `length` characters. bits: of its state: the bytes of a character, and these. hash: -1: it has none. */
enum { COMPACT = 8, ASCII = 16 };
uint8_t *make_str(const void *characters, size_t length, uint32_t bits, uint64_t hash);
uint8_t *make_ascii(const char *characters, uint64_t hash);

/* A code object. Instructions 0 to 9 are of the line after the first, 10 to 19 of the next, 20 to 29 of the third. */
uint8_t *make_code(const uint8_t *name, const uint8_t *file, uint32_t first_line);
/* A frame at the instruction. */
uint8_t *make_frame(const uint8_t *code, int place);
/* A thread's state. */
uint8_t *make_state(uintptr_t thread);

/* Makes the frame, or a stack of functions, innermost first, that of the thread. is_entry: by number; a run of the loop
 * ends with an entry. */
void set_frame(const uint8_t *frame);
void set_stack(uint8_t *const *codes, const bool *is_entry, unsigned count);

#endif
