#include "front/flushes.h"

#include "superslab/shared_pool.h"

HAK_DATA_HERE _Atomic uint32_t cache_flushes;
static _Atomic uint32_t flush_wanted_ms; /* Order: relaxed; cache_flushes publishes it */

void cache_want_flush(void)
{
    atomic_store_explicit(&flush_wanted_ms, shared_pool_now_ms(), memory_order_relaxed);
    atomic_fetch_add_explicit(&cache_flushes, 1, memory_order_release);
}

uint32_t cache_flush_wanted_ms(void) { return atomic_load_explicit(&flush_wanted_ms, memory_order_relaxed); }
