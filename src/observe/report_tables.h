/* The tables that have options of their own. Each is a few lines of text. */
#ifndef HAK_OBSERVE_REPORT_TABLES_H
#define HAK_OBSERVE_REPORT_TABLES_H

#include "observe/output.h"
#include "observe/stats.h"

/* Lines that the text of all statistics contains, too. report_lru_lines tells what happened to empty SuperSlabs; it
 * answers HAKMEM_SS_LRU_DEBUG and HAKMEM_SS_PREWARM_DEBUG alone. */
HAK_HIDDEN void report_front_lines(struct output *output, const struct hak_stats *totals);
HAK_HIDDEN void report_warm_lines(struct output *output, const struct hak_stats *totals);
HAK_HIDDEN void report_lru_lines(struct output *output, const struct hak_stats *totals);

/* HAKMEM_FRONT_STATS: the thread caches, by class. */
HAK_HIDDEN void report_front_table(struct output *output, const struct stats_shot *shot);
/* HAKMEM_WARM_POOL_STATS: the warm pools, and the slabs by class. */
HAK_HIDDEN void report_warm_table(struct output *output, const struct stats_shot *shot);
/* HAKMEM_DEBUG_COUNTERS: all counters that are not 0, with their classes; or a line that the build has none. */
HAK_HIDDEN void report_debug_table(struct output *output);

#endif
