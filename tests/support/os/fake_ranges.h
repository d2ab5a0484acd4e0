/* Which addresses the fake OS has given out, and in what state: a sorted list of ranges. Not thread-safe. */
#ifndef HAK_OS_FAKE_RANGES_H
#define HAK_OS_FAKE_RANGES_H

#include "base/base.h"

enum range_state {
    RANGE_FREE,
    RANGE_PLACED, /* by os_map_at */
    RANGE_MAPPED, /* by os_map */
    RANGE_STATE_COUNT
};

struct range {
    uintptr_t start, end; /* start < end */
    enum range_state state;
};

/* A1: ranges are ascending, do not overlap, are not free, and no two that touch have one state.
 * A2: bytes[state] is the sum of the lengths of the ranges in that state. */
struct range_list {
    struct range *ranges; /* room for capacity */
    size_t count, capacity;
    size_t bytes[RANGE_STATE_COUNT];
};

HAK_HIDDEN void ranges_set(struct range_list *list, uintptr_t start, uintptr_t end, enum range_state state);

/* Whether every byte of [start, end) is in one of the states whose bits (1 << state) are set. */
HAK_HIDDEN bool ranges_all(const struct range_list *list, uintptr_t start, uintptr_t end, unsigned states);

#endif
