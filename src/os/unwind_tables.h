/*
 * A walk up the stack by the unwind tables that programs contain (.eh_frame, in DWARF's form), without a library. Code
 * that has no tables is passed by frame pointers. It reads the tables of loaded objects, and words of the thread's
 * stack; an address elsewhere ends the walk. No call allocates; os/unwind_objects.h says when a lock is taken.
 */
#ifndef HAK_OS_UNWIND_TABLES_H
#define HAK_OS_UNWIND_TABLES_H

#include "os/unwind.h"

/* How many words the caller's frame pointer and the return address lie from where a frame pointer points. */
#if defined(__riscv)
enum { FRAME_WORDS = -2 };
#else
enum { FRAME_WORDS = 0 };
#endif

/* Whether the program's objects can be looked through. */
HAK_HIDDEN bool os_tables_can(void);

/* Whether the bytes are on the stack, or another mapping that the walk may read. */
typedef bool os_tables_may_read(uintptr_t address);

struct cfi_bytes {
    const uint8_t *at, *end;
    bool bad; /* more was read than there is */
};
struct cfi_description {
    struct cfi_bytes common, own; /* instructions */
    uintptr_t start, size;        /* of the code */
    uint64_t code_unit;
    int64_t data_unit;
    uint64_t return_register;
    bool is_signal_frame;
};
/* Reads the description of the code at the address. `table`: of the object that the code is in; NULL: the code is
 * registered, or has none. False: there is none. */
HAK_HIDDEN bool cfi_describe(const uint8_t *table, uintptr_t address, struct cfi_description *made);

/* The stack from this call outwards. Calls `stop`, unless it is NULL, after each frame with the number of frames so
 * far, and ends when it returns true. Returns the frames. */
HAK_HIDDEN unsigned os_tables_walk(struct unwind_frame *frames, unsigned capacity, os_tables_may_read *may_read,
                                   bool (*stop)(void *argument, unsigned count), void *argument);

#endif
