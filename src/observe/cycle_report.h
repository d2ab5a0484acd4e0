/* The cycle profile (os/cycles.h) as a table, as JSON or as Prometheus text, on standard error. docs/cycles.md says what the figures are. */
#ifndef HAK_OBSERVE_CYCLE_REPORT_H
#define HAK_OBSERVE_CYCLE_REPORT_H

#include "options/options.h"

/* Of all threads so far, those that ended included. Any thread, any time; never allocates. In builds that carry the profile. */
HAK_HIDDEN void observe_cycles(enum option_format format);

#endif
