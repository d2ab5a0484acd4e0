/* Ends the process when an invariant of HAKMEM does not hold. */
#include <stdlib.h>

#include "base/base.h"
#include "base/format.h"

_Noreturn void base_assert_fail(const char *expression, const char *file, int line)
{
    base_message("broken invariant: %s (%s:%d)", expression, file, line);
    abort();
}
