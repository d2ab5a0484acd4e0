/* The names of hakmem/guard.h. */
#include "hakmem/guard.h"

#include "front/guarded.h"
#include "options/options.h"

int hak_guard_start(size_t mean)
{
    return front_guard_set(mean ? mean : hak_options.guard_rate);
}

void hak_guard_stop(void)
{
    (void)front_guard_set(0);
}
