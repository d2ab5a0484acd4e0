/* Checks of the allocator's own figures (src/observe/usage.h) against the test's record; nothing else may run. */
#ifndef TESTS_STRESS_USAGE_CHECK_H
#define TESTS_STRESS_USAGE_CHECK_H

#include "observe/usage.h"
#include "support.h"

/* U1 holds, and live is the record's live bytes (block.h) above live_at_start. `when` is for the message. */
void usage_check(const char *when, size_t live_at_start);
/* U1 alone; returns the figures. */
struct usage usage_read(const char *when);

#endif
