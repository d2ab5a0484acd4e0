#include "observe/counters.h"

HAK_DATA_HERE const struct debug_counter_name debug_counter_names[DEBUG_COUNTERS] = {
#define DEBUG_COUNTER_NAME(id, name, help) { name, help },
    DEBUG_COUNTER_TABLE(DEBUG_COUNTER_NAME)
#undef DEBUG_COUNTER_NAME
};

HAK_DATA_HERE _Atomic uint64_t debug_counters[HAK_DEBUG_COUNTERS ? DEBUG_COUNTERS : 1]
                                               [HAK_DEBUG_COUNTERS ? CLASS_COUNT : 1];

uint64_t debug_counter_of(enum debug_counter which, unsigned class)
{
    return HAK_DEBUG_COUNTERS ? atomic_load_explicit(&debug_counters[which][class], memory_order_relaxed) : 0;
}

uint64_t debug_counter_sum(enum debug_counter which)
{
    uint64_t sum = 0;

    for (unsigned class = 0; class < CLASS_COUNT; class++)
        sum += debug_counter_of(which, class);
    return sum;
}
