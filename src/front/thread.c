#include "front/thread.h"

#include "base/format.h"
#include "front/process.h"
#include "front/within.h"
#include "os/cycles.h"
#include "os/foreign.h"
#include "os/threads.h"
#include "pool/heap_memory.h"
#include "pool/registry.h"
#include "profile/stack.h"
#include "superslab/parking.h"
#include "superslab/shared_pool.h"

static _Atomic uint32_t count; /* thread_count(). Order: seq_cst, with the word in parking.c */

static void thread_end(void *unused);

uint32_t thread_count(void) { return atomic_load(&count); }

void thread_reset_in_child(void) { atomic_store(&count, os_thread_exit_is_armed()); }

/* A thread whose end HAKMEM does not learn of keeps its heap for ever. */
void thread_note(void)
{
    static _Atomic bool said; /* Order: relaxed; one thread says it */

    if (os_thread_exit_is_armed())
        return;
    foreign_point(); /* os_thread_exit_arm may allocate: the thread has a cache by now */
    if (os_thread_exit_arm(thread_end))
        atomic_fetch_add(&count, 1);
    else if (!os_thread_exit_is_armed() && !atomic_exchange_explicit(&said, true, memory_order_relaxed))
        base_message("no thread-specific key is left: the blocks in a thread's cache are lost when the thread ends; "
                     "load HAKMEM before the program takes its keys, or call hak_thread_idle() at a thread's end");
}

struct thread_cache *thread_cache_get(void)
{
    struct thread_cache *cache = cache_current();
    struct heap *heap;

    if (HAK_LIKELY(cache->heap != NULL))
        return cache;
    if (hak_cache_offset == WINDOW_RETIRED_CACHE || !process_init())
        return NULL;
    heap = registry_take_heap();
    if (!heap)
        return NULL;
    if (!heap->cache && !registry_add_cache(heap, CACHE_BYTES, sizeof(struct thread_cache))) {
        registry_abandon_heap(heap);
        return NULL;
    }
    cache = heap->cache;
    cache_serve_from(cache, heap, registry_serving(heap));
    cache->deep_room = heap_memory_is_first(heap);
    labels_leave(&cache->labels); /* of a thread that is gone since a fork */
    cache_set_current((uintptr_t)cache - (uintptr_t)hak_window);
    cache_want_no_deep();
    thread_note();
    if (HAK_CYCLES)
        cycles_thread_begin();
    return cache_current()->heap ? cache_current() : NULL; /* foreign code may have given it up */
}

struct thread_cache *thread_cache_own(void)
{
    struct thread_cache *cache = cache_current();

    if (HAK_LIKELY(cache->heap != NULL))
        return cache;
    cache = cache_own();
    return cache->heap ? cache : thread_cache_get();
}

void thread_expect(void)
{
    struct thread_cache *cache = cache_own();

    atomic_fetch_add(&count, 1);
    registry_expect_thread();
    if (cache->deep_bytes)
        cache_close_deep(cache);
}

static void count_end(void)
{
    uint32_t left = atomic_fetch_sub(&count, 1) - 1;

    if (left <= 1)
        parking_wake(left == 0 ? PARKING_WORK : PARKING_LONG);
}

void thread_not_begun(void) { count_end(); }

/* A thread whose end HAKMEM does not learn of is not counted. Nor is one twice that a signal made allocate before. */
void thread_begun(void)
{
    if (!os_thread_exit_arm(thread_end))
        count_end();
}

static void leave_cache(struct thread_cache *cache, uintptr_t offset)
{
    struct heap *heap = cache->own;

    stack_leave(&cache->stacks);
    labels_leave(&cache->labels);
    cache_set_current(offset);
    registry_abandon_heap(heap);
    shared_pool_want_purge();
}

void thread_release(void)
{
    struct thread_cache *cache = cache_own();

    if (cache->heap == NULL)
        return;
    cache_flush_all(cache, true);
    leave_cache(cache, 0);
}

/* The cache stays as it is for the next thread, until a tick. Destructors that run later use the house heap. */
static void thread_end(void *unused)
{
    struct thread_cache *cache;

    (void)unused;
    within_end();
    cache = cache_current();
    if (cache->heap) {
        cache_close_deep(cache);
        leave_cache(cache, WINDOW_RETIRED_CACHE);
    } else {
        cache_set_current(WINDOW_RETIRED_CACHE);
    }
    if (HAK_CYCLES)
        cycles_thread_end();
    count_end();
}
