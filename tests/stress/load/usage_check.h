/* Compares the allocator's own figures (src/observe/usage.h) with the test's record. No other thread may run. */
#ifndef TESTS_STRESS_USAGE_CHECK_H
#define TESTS_STRESS_USAGE_CHECK_H

#include "observe/usage.h"
#include "support.h"

/* Checks U1, and that live bytes exceed live_at_start by the record's (block.h). `when` goes into the message. */
void usage_check(const char *when, size_t live_at_start);
/* Checks U1 only. Returns the figures. */
struct usage usage_read(const char *when);

#endif
