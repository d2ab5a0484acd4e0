/*
 * Reports an error at a guarded block: as text on standard error, and as a line of JSON in HAKMEM_GUARD_FILE. Nothing
 * here allocates or uses much stack: a report may be made in a signal handler on an alternate stack.
 */
#ifndef HAK_PROFILE_GUARD_REPORT_H
#define HAK_PROFILE_GUARD_REPORT_H

#include "profile/guard.h"

enum guard_error {
    GUARD_BEHIND,         /* touched behind the block's end */
    GUARD_BEFORE,         /* before its start */
    GUARD_AFTER_FREE,     /* touched when it was free */
    GUARD_NO_BLOCK,       /* no block was ever near */
    GUARD_INSIDE,         /* no known error: there is no report */
    GUARD_DOUBLE_FREE,    /* passed to free or a like function when it was free */
    GUARD_INVALID_FREE,   /* passed to free or a like function, but not the start of a block */
    GUARD_DAMAGED_BEHIND, /* found changed behind the end when the block was freed */
    GUARD_DAMAGED_BEFORE,
};

/* Makes the report. address: what was touched, passed to the function, or found changed. here: the stack of the access
 * or call. slot: the block, or NULL. Under guard_report_lock. */
HAK_HIDDEN void report_make(enum guard_error error, const char *function, enum os_access access, uintptr_t address,
                            const struct guard_slot *slot, const struct guard_stack *here);

#endif
