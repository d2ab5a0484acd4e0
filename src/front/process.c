#include "front/process.h"

#include "base/format.h"
#include "harden/harden.h"
#include "options/options.h"
#include "os/cycles.h"
#include "os/threads.h"
#include "pool/registry.h"
#include "superslab/limits.h"
#include "superslab/shared_pool.h"

HAK_DATA_HERE struct lock process_lock = LOCK_INIT(LOCK_RANK_INIT);

static _Atomic bool initialised; /* Order: release in begin, acquire in process_init: all that begin did */

static bool begin(void)
{
    lock_begin();
    options_read();
    if (HAK_SECURE)
        harden_begin();
    if (!shared_pool_init() || !registry_init())
        return false;
    os_thread_exit_prepare();
    limits_begin();
    if (HAK_CYCLES && hak_options.tiny_profile)
        cycles_start();
    atomic_store_explicit(&initialised, true, memory_order_release);
    if (hak_options.verbose)
        options_print();
    if (hak_options.ss_prewarm) {
        size_t made = shared_pool_prewarm((size_t)hak_options.ss_prewarm);
        if (hak_options.ss_prewarm_debug)
            base_message("prewarm: %zu of %zu SuperSlabs made ready", made, (size_t)hak_options.ss_prewarm);
    }
    return true;
}

bool process_init(void)
{
    bool done;

    if (HAK_LIKELY(atomic_load_explicit(&initialised, memory_order_acquire)))
        return true;
    lock_acquire(&process_lock);
    done = atomic_load(&initialised) || begin();
    lock_release(&process_lock);
    return done;
}
