/* Statistics as text on stderr, written without allocating. */
#ifndef HAK_OBSERVE_REPORT_H
#define HAK_OBSERVE_REPORT_H

#include "base/base.h"

/* Where the memory is, in one screen: the totals of usage.h, and the size classes that hold most. */
HAK_HIDDEN void observe_report(void);

/* At the end of the process: what the options ask for. */
HAK_HIDDEN void observe_exit_report(void);

#endif
