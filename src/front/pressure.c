/* The program's handler for memory pressure: kept, and called in one thread at a time. */
#include "front/pressure.h"

#include <errno.h>

#include "os/foreign.h"
#include "os/os.h"

static _Atomic(pressure_handler) current; /* Order: release as it is set, acquire: what the program did before */
static _Atomic uintptr_t caller; /* os_thread_token() of the thread that is in it; 0: none. Order: acquire, release */

pressure_handler pressure_set_handler(pressure_handler handler)
{
    return atomic_exchange_explicit(&current, handler, memory_order_acq_rel);
}

void pressure_call(size_t bytes_mapped, size_t bytes_limit)
{
    pressure_handler handler = atomic_load_explicit(&current, memory_order_acquire);
    uintptr_t nobody = 0;
    int saved_errno = errno;

    if (handler == NULL || !atomic_compare_exchange_strong(&caller, &nobody, os_thread_token()))
        return; /* the handler runs already, in this thread or in another */
    foreign_point();
    handler(bytes_mapped, bytes_limit);
    foreign_point();
    atomic_store(&caller, 0);
    errno = saved_errno;
}

/* A handler that called fork goes on in the child. */
void pressure_reset_in_child(void)
{
    if (atomic_load(&caller) != os_thread_token())
        atomic_store(&caller, 0);
}
