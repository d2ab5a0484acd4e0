#include "front/control.h"

#include <errno.h>

#include "front/guarded.h"
#include "front/process.h"
#include "front/sample.h"
#include "options/options.h"
#include "os/os.h"
#include "profile/dump.h"

#define AS_IT_IS UINT64_MAX
#define MS_IN_NS UINT64_C(1000000)

static _Atomic bool serving; /* Order: acquire and release, as a lock */
static uint64_t end_ns; /* when to turn the profile off (os_now_coarse); 0: never. Only the serving thread uses it */

/* EBUSY: a later call must try again. */
static int set_profile(uint64_t mean, uint64_t ms)
{
    int error = front_profile_try(mean);

    if (error)
        return error;
    end_ns = mean && ms ? os_now_coarse() + base_min(ms, UINT32_MAX) * MS_IN_NS : 0;
    if (end_ns)
        outside_want(OUTSIDE_LOOK_END);
    else
        atomic_fetch_and(&hak_outside.word.look, (uint8_t)~OUTSIDE_LOOK_END);
    return 0;
}

/* Starts a profile for tracers, and stops it when the last tracer has left. */
static int follow_readers(uint16_t readers)
{
    int error = 0;

    if (readers && !profile_on()) {
        error = set_profile(hak_options.heap_profile_rate, 0);
        atomic_store(&profile.by_readers, error == 0);
    } else if (!readers && atomic_load(&profile.by_readers)) {
        error = set_profile(0, 0);
    }
    return error;
}

static int serve_request(void)
{
    uint64_t profile_mean = __atomic_load_n(&hak_outside.profile_mean, __ATOMIC_RELAXED);
    uint64_t guard_mean = __atomic_load_n(&hak_outside.guard_mean, __ATOMIC_RELAXED);
    int error = 0;

    if (guard_mean != AS_IT_IS)
        error = front_guard_try(guard_mean);
    if (error == 0 && profile_mean != AS_IT_IS)
        error = set_profile(profile_mean, __atomic_load_n(&hak_outside.profile_ms, __ATOMIC_RELAXED));
    return error;
}

/* Serves all requests in `now`. EBUSY as in set_profile. */
static int serve(union outside_word *now)
{
    int error;

    if (now->asked != hak_outside.settled.asked) {
        error = serve_request();
        if (error == EBUSY)
            return error;
        atomic_store(&hak_outside.error, (uint32_t)error);
        atomic_store(&hak_outside.answered, now->asked);
        hak_outside.settled.asked = now->asked;
    }
    if (now->look & OUTSIDE_LOOK_FILE) {
        atomic_fetch_and(&hak_outside.word.look, (uint8_t)~OUTSIDE_LOOK_FILE);
        dump_write_wanted();
    }
    if ((now->look & OUTSIDE_LOOK_END) && end_ns && os_now_coarse() >= end_ns && set_profile(0, 0) == EBUSY)
        return EBUSY;
    /* Starts the profile again if the request above stopped it under tracers. */
    if (follow_readers(now->alloc_readers) == EBUSY)
        return EBUSY;
    hak_outside.settled.alloc_readers = now->alloc_readers;
    hak_outside.settled.free_readers = now->free_readers;
    hak_outside.settled.unused = now->unused;
    return 0;
}

void control_serve(void)
{
    union outside_word now;

    if (profile_busy() || lock_in_fork() || !process_init() ||
        atomic_exchange_explicit(&serving, true, memory_order_acquire))
        return;
    now.whole = atomic_load_explicit(&hak_outside.word.whole, memory_order_acquire);
    (void)serve(&now);
    atomic_store_explicit(&serving, false, memory_order_release);
}

void control_reset_in_child(void) { atomic_store(&serving, false); }
