#include "front/thread.h"

#include "base/format.h"
#include "front/front.h"
#include "front/pressure.h"
#include "options/options.h"
#include "os/cycles.h"
#include "os/threads.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "pool/remote.h"
#include "profile/dump.h"
#include "profile/stack.h"
#include "superslab/metadata.h"
#include "superslab/shared_pool.h"

_Thread_local uintptr_t hak_cache_offset __attribute__((tls_model("initial-exec")));

/* ---- The caches' memory: in chunks, so that the dead ones of a crowd of threads are purged with few calls ---- */

#define CHUNK_CACHES 16u

struct cache_chunk {
    struct cache_chunk *next;
    char *first;
    uint32_t made; /* caches handed out */
    uint32_t dead; /* bits of those about to be purged */
};

static struct cache_chunk *chunks; /* under registry.lock */

static size_t cache_stride(void) { return base_align_up(sizeof(struct thread_cache), os_page_size()); }

/* Gives the heap a cache, all zeros, for good. */
static bool cache_new(struct heap *heap)
{
    lock_acquire(&registry.lock);
    if (!chunks || chunks->made == CHUNK_CACHES) {
        struct cache_chunk *chunk = metadata_allocate(sizeof *chunk, _Alignof(struct cache_chunk));
        char *first = chunk ? metadata_allocate(CHUNK_CACHES * cache_stride(), os_page_size()) : NULL;
        if (first) {
            *chunk = (struct cache_chunk){ .next = chunks, .first = first };
            chunks = chunk;
        }
    }
    if (chunks && chunks->made < CHUNK_CACHES) {
        heap->cache_chunk = chunks;
        heap->cache_index = (uint8_t)chunks->made++;
        heap->cache = chunks->first + heap->cache_index * cache_stride();
    }
    lock_release(&registry.lock);
    return heap->cache != NULL;
}

/* Returns the blocks in caches whose threads are gone. An orphan in the list belongs to whoever holds the registry's lock. */
static void caches_flush_dead(void)
{
    struct heap *orphan;

    do {
        lock_acquire(&registry.lock);
        for (orphan = registry.orphans; orphan; orphan = orphan->next_orphan) {
            struct thread_cache *cache = orphan->cache;
            if (cache && !orphan->cache_purged && cache->capacity_bytes)
                break;
        }
        if (orphan)
            cache_flush_all(orphan->cache, true);
        lock_release(&registry.lock);
    } while (orphan);
}

/* Purges the memory of caches whose threads are gone, but for the ones that the next threads will take. */
static size_t caches_purge_dead(void)
{
    enum { KEEP = 8 }; /* the top orphans, taken first */
    struct cache_chunk *chunk;
    struct heap *orphan;
    unsigned kept = 0;
    size_t stride = cache_stride(), purged = 0;
    bool refused = false;

    if (atomic_load_explicit(&registry.orphan_count, memory_order_relaxed) <= KEEP || !lock_try(&registry.lock))
        return 0;
    for (orphan = registry.orphans; orphan; orphan = orphan->next_orphan) {
        struct thread_cache *cache = orphan->cache;
        if (!cache || ++kept <= KEEP || !lock_try(&orphan->lock))
            continue;
        if (!orphan->cache_purged && cache->capacity_bytes == 0) {
            ((struct cache_chunk *)orphan->cache_chunk)->dead |= (uint32_t)1 << orphan->cache_index;
            orphan->cache_purged = true;
        }
        lock_release(&orphan->lock);
    }
    for (chunk = chunks; chunk; chunk = chunk->next) {
        uint64_t dead = chunk->dead;
        if (dead)
            shared_pool_split_at(chunk->first); /* P7 */
        while (dead) {
            unsigned first = base_low_bit(dead), count = base_low_bit(~(dead >> first));
            if (os_purge(chunk->first + first * stride, count * stride))
                purged += count * stride;
            else
                refused = true;
            dead &= ~(base_low_mask(count) << first);
        }
        chunk->dead = 0;
    }
    /* All are asked for again: what was given back costs a system call, and no memory. */
    for (orphan = registry.orphans; refused && orphan; orphan = orphan->next_orphan) {
        lock_acquire(&orphan->lock);
        orphan->cache_purged = false;
        lock_release(&orphan->lock);
    }
    lock_release(&registry.lock);
    return purged;
}

/* ---- The process ---- */

static struct lock init_lock = LOCK_INIT(0);
static _Atomic bool initialised;
static _Atomic bool ticking;
static _Atomic uint32_t last_tick_ms;
_Atomic uint32_t thread_ticks;
static _Atomic uint32_t flush_wanted_ms; /* when it last rose */
static _Atomic bool purge_thread_started;

static void thread_end(void *unused);

/* How long nobody may have been on a slow path for the process to be idle, which is sooner than memory is unwanted for a delay. */
#define QUIET_MS 50u

/* With `auto` it ends when there is nothing left to do, and is started anew. */
static void purge_thread_run(void)
{
    static _Atomic uint32_t never;
    bool always = hak_options.purge_thread == OPTION_ALWAYS;
    uint64_t pause = always ? base_max(hak_options.purge_delay, 10) : base_min(base_max(hak_options.purge_delay, 1), QUIET_MS);
    uint32_t activity = registry_activity(), before;

    do {
        os_futex_wait(&never, 0, pause * 1000000);
        before = activity;
        activity = registry_activity();
        dump_poll();
        if (!always && activity == before)
            thread_purge(true);
        else
            thread_tick();
    } while (always || atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed) != 0);
    atomic_store_explicit(&shared_pool.much_free, false, memory_order_relaxed);
    atomic_store_explicit(&purge_thread_started, false, memory_order_release);
}

bool front_process_init(void)
{
    bool done;

    if (HAK_LIKELY(atomic_load_explicit(&initialised, memory_order_acquire)))
        return true;
    lock_acquire_for_fork(&init_lock);
    done = atomic_load(&initialised);
    if (!done) {
        options_read();
        done = window_init() && registry_init();
        if (done) {
            os_thread_exit_register(thread_end);
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
        }
    }
    lock_release_after_fork(&init_lock);
    return done;
}

/* ---- Threads ---- */

struct thread_cache *thread_cache_get(void)
{
    struct thread_cache *cache = cache_current();
    struct heap *heap;

    if (HAK_LIKELY(cache->heap != NULL))
        return cache;
    if (hak_cache_offset == WINDOW_RETIRED_CACHE || !front_process_init())
        return NULL;
    heap = registry_take_heap();
    if (!heap)
        return NULL;
    if (!heap->cache && !cache_new(heap)) {
        registry_abandon_heap(heap);
        return NULL;
    }
    cache = heap->cache;
    lock_acquire(&heap->lock);
    heap->cache_purged = false;
    if (cache->heap == NULL)
        cache_init(cache, heap);
    lock_release(&heap->lock);
    hak_cache_offset = (uintptr_t)cache - (uintptr_t)hak_window;
    os_thread_exit_arm();
    if (HAK_CYCLES)
        cycles_thread_begin();
    return cache;
}

static void thread_leave(struct thread_cache *cache, uintptr_t offset)
{
    struct heap *heap = cache->heap;

    stack_leave(&cache->stacks);
    hak_cache_offset = offset;
    registry_abandon_heap(heap);
    shared_pool_want_purge();
}

void thread_release(void)
{
    struct thread_cache *cache = cache_current();

    if (cache->heap == NULL)
        return;
    cache_flush_all(cache, true);
    thread_leave(cache, 0);
}

/* The cache stays as it is for the next thread, until a tick. What other destructors free or allocate after this one goes through
 * the house heap. */
static void thread_end(void *unused)
{
    struct thread_cache *cache = cache_current();

    (void)unused;
    if (cache->heap)
        thread_leave(cache, WINDOW_RETIRED_CACHE);
    if (HAK_CYCLES)
        cycles_thread_end();
}

/* ---- The tick ---- */

void thread_want_flush(void)
{
    atomic_store_explicit(&flush_wanted_ms, shared_pool_now_ms(), memory_order_relaxed);
    atomic_fetch_add_explicit(&thread_ticks, 1, memory_order_release);
}

/* Everything that a purge delay makes due: the ticking thread's own cache, idle heaps, and then what is free. `stale`: what is
 * given up now was unwanted for a delay already. */
static size_t tick_run(uint32_t now, bool stale, bool all)
{
    struct thread_cache *cache = cache_current();
    size_t bytes = 0;
    bool left;

    atomic_store_explicit(&last_tick_ms, now, memory_order_relaxed);
    thread_want_flush();
    atomic_store_explicit(&shared_pool.stale, stale, memory_order_relaxed);
    purge_begin(); /* G2: a thread that ends from here on wants another */
    if (cache->heap)
        cache_flush_all(cache, false);
    caches_flush_dead();
    left = registry_trim_idle(stale, &bytes);
    atomic_store_explicit(&shared_pool.stale, false, memory_order_relaxed);
    bytes += purge_free_units(all) + huge_purge(all) + caches_purge_dead();
    if (left)
        shared_pool_want_purge();
    return bytes;
}

static bool cache_is_empty(const struct thread_cache *cache)
{
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        if (cache_count(cache, class))
            return false;
    return true;
}

void thread_follow_tick(struct thread_cache *cache)
{
    uint32_t now = shared_pool_now_ms();

    (void)atomic_load_explicit(&thread_ticks, memory_order_acquire); /* what was stored before it rose */
    if (cache_is_empty(cache) ||
        now - atomic_load_explicit(&flush_wanted_ms, memory_order_relaxed) < hak_options.purge_delay ||
        atomic_exchange_explicit(&ticking, true, memory_order_acquire)) {
        cache_flush_all(cache, false);
        return;
    }
    tick_run(now, true, false);
    atomic_store_explicit(&ticking, false, memory_order_release);
}

size_t thread_purge(bool all) { return tick_run(shared_pool_now_ms(), all, all); }

/* `auto` makes no threaded process of a single-threaded one, which may rely on being that. */
static bool purge_thread_wanted(void)
{
    if (hak_options.purge_thread == OPTION_AUTO)
        return atomic_load_explicit(&shared_pool.much_free, memory_order_relaxed) &&
               atomic_load_explicit(&registry.live_threads, memory_order_relaxed) > 1;
    return hak_options.purge_thread == OPTION_ALWAYS;
}

static void purge_thread_start(void)
{
    if (purge_thread_wanted() && !atomic_exchange(&purge_thread_started, true) &&
        !os_thread_start(purge_thread_run, "hakmem-purge") && hak_options.purge_thread == OPTION_ALWAYS)
        base_message("the purge thread could not be started");
}

void thread_tick_due(void)
{
    uint32_t now, due;

    purge_thread_start();
    now = shared_pool_now_ms();
    due = atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed);
    if (!purge_is_due(now) || atomic_exchange_explicit(&ticking, true, memory_order_acquire))
        return;
    /* Long overdue: nobody was on a slow path for a whole delay, so what caches and warm pools hold is as old. Too early: only
     * the shared pool asks, because it holds too much. */
    if (now - atomic_load_explicit(&last_tick_ms, memory_order_relaxed) >= hak_options.purge_delay) {
        tick_run(now, now - due >= hak_options.purge_delay / 2, false);
    } else {
        purge_run(false);
        shared_pool_want_purge(); /* G2: dead threads' caches and pending slabs may have wanted it too */
    }
    if (hak_options.memory_limit_soft && shared_pool_footprint() > hak_options.memory_limit_soft)
        pressure_call(shared_pool_footprint(), (size_t)hak_options.memory_limit_soft);
    atomic_store_explicit(&ticking, false, memory_order_release);
}

void thread_reset_after_fork(void)
{
    atomic_store(&ticking, false);
    atomic_store(&purge_thread_started, false);
    atomic_store(&shared_pool.much_free, false);
    atomic_store(&registry.live_threads, cache_current()->heap != NULL);
}
