#include "front/parking.h"

#include "os/os.h"

/* enum parking. Order: seq_cst, like thread_count(): the purge thread stores it and then reads the count; a
 * thread that ends changes the count and then reads it. So one of them sees the other's store. A wake for much_free,
 * which is relaxed, may be missed: the next slow path that finds memory due repeats it. */
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
