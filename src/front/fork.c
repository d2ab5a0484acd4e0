/*
 * The forking thread holds every lock when the process is copied, so the child finds every structure whole; the caches are whole by
 * T4. The child's other threads are gone: their heaps become orphans with what is in their caches, and the next threads
 * take them as they are.
 *
 * What a vanished thread held in its registers is lost to the child: at most one batch of blocks a thread, and the units
 * that were being purged.
 */
#include "front/fork.h"

#include "base/stderr.h"
#include "front/thread.h"
#include "os/cycles.h"
#include "os/threads.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "profile/profile.h"
#include "superslab/metadata.h"

static void fork_prepare(void)
{
    lock_acquire_for_fork(&profile_control);
    lock_acquire_for_fork(&registry.lock);
    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        lock_acquire_for_fork(&heap->lock);
    lock_acquire_for_fork(&huge_lock);
    lock_acquire_for_fork(&metadata_lock);
    lock_acquire_for_fork(&shared_pool.lock);
    lock_acquire_for_fork(&profile_lock);
}

static void fork_release(void)
{
    lock_release_after_fork(&profile_lock);
    lock_release_after_fork(&shared_pool.lock);
    lock_release_after_fork(&metadata_lock);
    lock_release_after_fork(&huge_lock);
    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        lock_release_after_fork(&heap->lock);
    lock_release_after_fork(&registry.lock);
    lock_release_after_fork(&profile_control);
}

static void fork_child(void)
{
    struct heap *mine = cache_current()->heap;

    for (struct heap *heap = registry.heaps; heap; heap = heap->next) {
        if (heap->kind != HEAP_THREAD || heap == mine || atomic_load(&heap->state) != HEAP_LIVE)
            continue;
        atomic_store(&heap->state, HEAP_ORPHAN);
        heap->next_orphan = registry.orphans;
        registry.orphans = heap;
        atomic_fetch_add(&registry.orphan_count, 1);
    }
    if (mine)
        mine->thread_id = os_thread_id();
    thread_reset_after_fork();
    base_stderr_drop();
    if (HAK_CYCLES)
        cycles_reset_after_fork();
    fork_release();
}

void fork_register(void) { os_fork_register(fork_prepare, fork_release, fork_child); }
