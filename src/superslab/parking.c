#include "superslab/parking.h"

#include "os/os.h"

/* enum parking. Order: seq_cst, like thread_count() and much_waits: the purge thread stores it, then reads these. Who
 * changes one of these then reads it. So one of them sees the other's store. */
static _Atomic uint32_t word;

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
