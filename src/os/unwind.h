/* The calling thread's stack as return addresses. Nothing allocates. Walks by tables take a lock with musl and with
 * glibc before 2.35 (os/unwind_objects.h). */
#ifndef HAK_OS_UNWIND_H
#define HAK_OS_UNWIND_H

#include "base/base.h"

struct unwind_frame {
    uintptr_t address;     /* the return address */
    const uintptr_t *slot; /* where on the stack it was found; NULL: not known */
};

enum unwind_kind { UNWIND_AUTO = 0, UNWIND_TABLES, UNWIND_POINTERS };

/* Finds the way to unwind: by tables (.eh_frame), or by frame pointers. `auto` takes frame pointers if no tables can be
 * read. no_lock: takes none; in the child of a fork the holder of the linker's lock may be gone. False: the caller
 * asked for tables, but only frame pointers are available. */
HAK_HIDDEN bool os_unwind_prepare(enum unwind_kind kind, bool no_lock);
HAK_HIDDEN bool os_unwind_by_tables(void);

/* The stack from the caller's caller outwards, beginning with the return address into the caller. Returns the number of
 * frames. */
HAK_HIDDEN unsigned os_unwind(struct unwind_frame *frames, unsigned capacity);

/* As os_unwind, by tables. Calls `stop` after each frame with the number of frames so far, and ends when it returns
 * true. */
HAK_HIDDEN unsigned os_unwind_until(struct unwind_frame *frames, unsigned capacity,
                                    bool (*stop)(void *argument, unsigned count), void *argument);

/* In the handler of a fault: the stack of the instruction that faulted. `frame` is its frame pointer register. The
 * callers' frames begin at *first. */
HAK_HIDDEN unsigned os_unwind_fault(uintptr_t instruction, uintptr_t frame, struct unwind_frame *frames,
                                    unsigned capacity, unsigned *first);

/* An address in the program's own code; 0: not known. */
HAK_HIDDEN uintptr_t os_unwind_program(void);

/* Whether the address lies in HAKMEM's own code. */
HAK_HIDDEN bool os_unwind_is_own(uintptr_t address);

#endif
