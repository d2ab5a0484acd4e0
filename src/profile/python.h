/*
 * The Python functions of a stack, for CPython 3.9 to 3.14. They are read from the interpreter's memory when a sample
 * is taken. No call enters the interpreter, which may be the one that allocates, in any state. Nothing is read
 * before a system call has shown that it can be read (os/peek.h), and what was read is checked before it is followed.
 * Other threads free thread states, so these are read by system calls alone. The calling thread's frames keep their
 * code objects and texts alive: of these, pages that could be read a second ago are read directly.
 *
 * A Python frame is one word: PYTHON_MARK, a bit that no code address has, the function's number, and the line. The
 * file, name and first line are kept when the function is first seen: it may be gone when a profile is written.
 *
 * R5: a kept function is never removed, moved or changed. Any process may read it without the lock.
 */
#ifndef HAK_PROFILE_PYTHON_H
#define HAK_PROFILE_PYTHON_H

#include "base/base.h"

#define PYTHON_MARK (UINT64_C(1) << 63)
#define PYTHON_LINE_BITS 24u
#define PYTHON_LINE_MOST ((UINT64_C(1) << PYTHON_LINE_BITS) - 1)

_Static_assert(sizeof(uintptr_t) == sizeof(uint64_t), "a frame holds the mark");

struct python_code {
    struct python_code *next; /* the one made after this one */
    struct python_code *same; /* the next in its hash chain */
    uint64_t hash;
    uint32_t id;              /* from 1 on, in the order of their making */
    uint32_t first_line;
    uint32_t name_bytes, file_bytes;
    char text[];              /* UTF-8: the name, then the file */
};

/* All kept functions. Under profile_lock. */
struct python_codes {
    struct python_code *first, *last;
    size_t count, bytes;
};
HAK_DATA struct python_codes python_codes;

/* What a thread knows of its own state in the interpreter. */
struct python_memory {
    uintptr_t thread; /* the state's last known address; 0: not known */
    uintptr_t link;   /* the pointer in the list of states that leads to it */
    unsigned skip;    /* samples until the state is looked for again */
};

HAK_INLINE bool python_is_frame(uintptr_t frame) { return (frame & PYTHON_MARK) != 0; }
HAK_INLINE uint32_t python_frame_id(uintptr_t frame) { return (uint32_t)((frame & ~PYTHON_MARK) >> PYTHON_LINE_BITS); }
HAK_INLINE uint32_t python_frame_line(uintptr_t frame) { return (uint32_t)(frame & PYTHON_LINE_MOST); }

/* Looks for an interpreter in the process. Holding no lock. Waits for a thread that loads a library, but not in the
 * child of a fork, where that thread may be gone. */
HAK_HIDDEN void python_prepare(bool in_child);
HAK_HIDDEN bool python_found(void);

/* Inserts the calling thread's Python functions into the `count` return addresses of its stack, innermost first: those
 * of a run of the interpreter's loop come before the loop's own frame. most: the array's room, at least count + 64.
 * whole: the stack is not cut off. Returns the number of frames. Holding no lock. */
HAK_HIDDEN unsigned python_merge(struct python_memory *memory, uintptr_t *frames, unsigned count, unsigned most,
                                 bool whole);

/* The function of a frame, or NULL. Takes profile_lock. */
HAK_HIDDEN const struct python_code *python_code_of(uintptr_t frame);

#endif
