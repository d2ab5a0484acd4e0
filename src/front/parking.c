#include "front/parking.h"

#include "os/os.h"

static _Atomic uint32_t word; /* enum parking */

void parking_enter(enum parking how) { atomic_store(&word, how); }

void parking_sleep(enum parking how, uint64_t timeout_ns)
{
    os_futex_wait(&word, how, timeout_ns);
    atomic_store(&word, PARKING_AWAKE);
}

void parking_wake(enum parking least)
{
    uint32_t how = atomic_load(&word);

    if (how >= least && how != PARKING_AWAKE && atomic_compare_exchange_strong(&word, &how, PARKING_AWAKE))
        os_futex_wake(&word, 1);
}
