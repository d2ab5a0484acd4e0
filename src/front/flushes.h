/* The flushes of thread caches that other threads want. */
#ifndef HAK_FRONT_FLUSHES_H
#define HAK_FRONT_FLUSHES_H

#include "base/base.h"

/* Makes each thread flush its cache on its next slow call, as a tick does. Any thread. */
HAK_HIDDEN void cache_want_flush(void);

/* How often a flush was wanted, and when last (milliseconds of shared_pool_now_ms). */
HAK_DATA _Atomic uint32_t cache_flushes; /* Order: release in cache_want_flush, acquire: the time, and what changed */
HAK_INLINE uint32_t cache_flush_number(void) { return atomic_load_explicit(&cache_flushes, memory_order_acquire); }
HAK_HIDDEN uint32_t cache_flush_wanted_ms(void);

#endif
