/* Statistics as text, on request and at exit. Nothing here allocates. */
#ifndef HAK_OBSERVE_REPORT_H
#define HAK_OBSERVE_REPORT_H

#include "observe/output.h"
#include "observe/stats.h"

/* All on one screen: where the memory is, the pools, the size classes and heaps that hold most, and the counters. */
HAK_HIDDEN void report_text(struct output *output, struct stats_shot *shot);

/* On standard error; what malloc_stats prints. */
HAK_HIDDEN void observe_report(void);

/* Prints in the format through `write`, or to standard error if it is NULL. Returns 0, EINVAL or what `write`
 * returned. */
HAK_HIDDEN int observe_print(enum hak_stats_format format, hak_stats_write write, void *argument);

/* Do what the options ask for: observe_start before the program's constructors, the next function at exit. */
HAK_HIDDEN void observe_start(void);
HAK_HIDDEN void observe_exit_report(void);

#endif
