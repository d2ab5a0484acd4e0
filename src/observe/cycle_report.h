/* The cycle profile (os/cycles.h) as a table, as JSON or as Prometheus text, on standard error. docs/dev/cycles.md says
 * what the figures are. */
#ifndef HAK_OBSERVE_CYCLE_REPORT_H
#define HAK_OBSERVE_CYCLE_REPORT_H

#include "options/options.h"

/* Covers all threads so far, also those that ended. Any thread, any time. Never allocates. Only in builds that have the
 * profile. */
HAK_HIDDEN void observe_cycles(enum option_format format);

#endif
