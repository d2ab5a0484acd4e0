/* Statistics as text, on request and at the end of the process; written without allocating. */
#ifndef HAK_OBSERVE_REPORT_H
#define HAK_OBSERVE_REPORT_H

#include "observe/output.h"

/* Everything in one screen: where the memory is, the pools, the size classes and heaps that hold most, the counters. */
HAK_HIDDEN void report_text(struct output *output);

/* On standard error; what malloc_stats prints. */
HAK_HIDDEN void observe_report(void);

/* Prints in the format through `write`, or to standard error if it is NULL. Returns 0, EINVAL or what `write` returned. */
HAK_HIDDEN int observe_print(enum hak_stats_format format, hak_stats_write write, void *argument);

/* Before the program's own constructors, and at the end of the process: what the options ask for. */
HAK_HIDDEN void observe_start(void);
HAK_HIDDEN void observe_exit_report(void);

#endif
