/* The calling thread's stack, as return addresses. Nothing here allocates or takes a lock but os_unwind_prepare. */
#ifndef HAK_OS_UNWIND_H
#define HAK_OS_UNWIND_H

#include "base/base.h"

struct unwind_frame {
    uintptr_t address;     /* the return address */
    const uintptr_t *slot; /* where on the stack it was found; NULL: not known */
};

enum unwind_kind { UNWIND_AUTO = 0, UNWIND_TABLES, UNWIND_POINTERS };

/* Finds the unwinder: tables (.eh_frame) by libgcc_s's, or frame pointers, which `auto` takes where the former is not to be had. May
 * allocate; holding no lock. False: tables were asked for and there is no unwinder; frame pointers are used. */
HAK_HIDDEN bool os_unwind_prepare(enum unwind_kind kind);
HAK_HIDDEN bool os_unwind_by_tables(void);

/* The stack from the caller's caller outwards: from the return address into the caller on. Returns the frames. */
HAK_HIDDEN unsigned os_unwind(struct unwind_frame *frames, unsigned capacity);

/* Whether the address lies in HAKMEM's own code. */
HAK_HIDDEN bool os_unwind_is_own(uintptr_t address);

#endif
