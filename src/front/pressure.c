/* The program's handler for memory pressure: kept, and called in one thread at a time. */
#include "front/pressure.h"

#include "os/os.h"

static _Atomic(pressure_handler) current;
static _Atomic uint32_t caller; /* thread that is in the handler; 0: none */

pressure_handler pressure_set_handler(pressure_handler handler)
{
    return atomic_exchange_explicit(&current, handler, memory_order_acq_rel);
}

void pressure_call(size_t bytes_mapped, size_t bytes_limit)
{
    pressure_handler handler = atomic_load_explicit(&current, memory_order_acquire);
    uint32_t nobody = 0;
    if (handler == NULL || !atomic_compare_exchange_strong(&caller, &nobody, os_thread_id()))
        return; /* it is at work already, in this thread or in another */
    handler(bytes_mapped, bytes_limit);
    atomic_store(&caller, 0);
}
