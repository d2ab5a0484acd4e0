/* The epoch, threads, and how well slabs are used. */
#include <errno.h>
#include <string.h>

#include <hakmem/jemalloc.h>

#include "api/names.h"
#include "front/block.h"
#include "front/purge_thread.h"
#include "front/thread.h"
#include "je/arenas.h"
#include "je/control.h"
#include "je/figures.h"
#include "je/names.h"
#include "observe/usage.h"
#include "os/os.h"
#include "pool/dense.h"
#include "pool/registry.h"
#include "pool/slab.h"

/* Writing any number begins a new epoch. */
int figures_epoch(const struct control_call *call)
{
    const struct figures *figures;
    uint64_t epoch = 0, wanted;
    bool taken = true;
    int error = control_writes(call) ? control_take(call, &wanted, sizeof wanted) : 0;

    if (error)
        return error;
    lock_acquire(&control_lock);
    if (control_writes(call))
        taken = figures_take();
    figures = figures_get();
    if (figures)
        epoch = figures->epoch;
    lock_release(&control_lock);
    return figures && taken ? control_give(call, &epoch, sizeof epoch) : EAGAIN;
}

uint64_t figures_uptime(const struct control_call *call)
{
    const struct figures *figures;
    uint64_t uptime = 0;

    (void)call;
    lock_acquire(&control_lock);
    figures = figures_get();
    if (figures)
        uptime = figures->taken_ns - figures->started_ns;
    lock_release(&control_lock);
    return uptime;
}

uint64_t figures_threads(const struct control_call *call)
{
    uint32_t arena = call->index[0];

    if (arena == MALLCTL_ARENAS_DESTROYED)
        return 0;
    return arena == 0 || arena == MALLCTL_ARENAS_ALL || arena == arenas_count() ? thread_count()
                                                                                : arenas_threads(arena);
}

uint64_t figures_purge_threads(const struct control_call *call)
{
    (void)call;
    return purge_thread_is_there();
}

/* ---- Utilization ---- */

/* The block's slab, if it has more than one block; else NULL. */
static struct slab *shared_slab(const void *address, struct block *block)
{
    *block = block_look(address);
    return block->slab && block->slab->blocks > 1 ? block->slab : NULL;
}

/* The slab's blocks in use without those that other threads freed (H1). Other threads may change it meanwhile. */
static size_t slab_used(struct slab *slab)
{
    size_t used = __atomic_load_n(&slab->used, __ATOMIC_RELAXED);

    return used - base_min(used, atomic_load_explicit(&slab->remote_count, memory_order_relaxed));
}

static void look(const void *address, struct jemalloc_utilization *use)
{
    struct block block;
    struct slab *slab = shared_slab(address, &block);

    *use = (struct jemalloc_utilization){ 0, block.size != 0, block.size };
    if (slab) {
        use->nregs = slab->blocks;
        use->nfree = slab->blocks - base_min(slab->blocks, slab_used(slab));
        use->size = slab_bytes(slab);
    }
}

int figures_utilization(const struct control_call *call)
{
    struct jemalloc_utilization_verbose *out = call->old, got = { 0 };
    struct jemalloc_utilization use;
    const struct figures_arena *all;
    const struct figures_size *size;
    struct block block;
    struct slab *slab;
    void *address;

    if (!control_reads(call) || *call->old_length != sizeof *out || !control_writes(call) ||
        call->new_length != sizeof address)
        return EINVAL;
    memcpy(&address, call->new, sizeof address);
    look(address, &use);
    got.nfree = use.nfree;
    got.nregs = use.nregs;
    got.size = use.size;
    slab = shared_slab(address, &block);
    if (slab) {
        struct thread_cache *cache = thread_cache_get();
        lock_acquire(&control_lock);
        all = figures_of_arena(MALLCTL_ARENAS_ALL);
        if (all) {
            size = &all->sizes[slab->class - 1];
            got.bin_nregs = size->curslabs * slab->blocks;
            got.bin_nfree = got.bin_nregs - base_min(got.bin_nregs, size->curregs);
        }
        lock_release(&control_lock);
        if (cache) {
            lock_acquire(&cache->heap->lock);
            if (cache->heap->body->available[slab->class].head)
                got.slabcur_addr = cache->heap->body->available[slab->class].head->start;
            lock_release(&cache->heap->lock);
        }
    }
    memcpy(out, &got, sizeof got);
    return 0;
}

int figures_utilization_batch(const struct control_call *call)
{
    size_t count = call->new_length / sizeof(void *);

    if (!control_reads(call) || !control_writes(call) || count == 0 || call->new_length % sizeof(void *) ||
        *call->old_length != count * sizeof(struct jemalloc_utilization))
        return EINVAL;
    for (size_t i = 0; i < count; i++) {
        struct jemalloc_utilization use;
        void *address;
        memcpy(&address, (const char *)call->new + i * sizeof address, sizeof address);
        look(address, &use);
        memcpy((char *)call->old + i * sizeof use, &use, sizeof use);
    }
    return 0;
}

/* ---- The hint ---- */

#define HINT_NS UINT64_C(100000000) /* how long the average of a class is used */

static struct {
    _Atomic uint64_t time;            /* of the last look; 0: never. Order: any; a hint */
    _Atomic size_t slabs, used;       /* slabs that are neither full nor empty, and their blocks in use. Order: any */
} hints[CLASS_COUNT];

static void look_at_class(unsigned class, uint64_t now)
{
    struct dense_usage usage = { 0, 0 };

    lock_acquire(&registry.lock);
    for (struct heap *heap = registry.heaps; heap; heap = heap->next)
        if (heap_is_readable(heap)) {
            lock_acquire(&heap->lock);
            heap_add_dense_usage(heap, class, &usage);
            lock_release(&heap->lock);
        }
    lock_release(&registry.lock);
    hints[class].slabs = usage.slabs;
    hints[class].used = usage.used;
    hints[class].time = now;
}

/* A block should move if its slab has at most 9/8 of the average use of slabs with room, and is not the slab that the
 * class's blocks come from now. */
API_EXPORT int get_defrag_hint(void *address)
{
    struct block block;
    struct slab *slab = shared_slab(address, &block);
    struct heap *owner = slab ? atomic_load_explicit(&slab->owner, memory_order_acquire) : NULL;
    uint64_t now;
    size_t used;
    unsigned class;

    if (slab == NULL || owner == NULL || block.heap)
        return 0;
    class = slab->class;
    used = slab_used(slab);
    if (used == 0 || used == slab->blocks ||
        __atomic_load_n(&owner->body->available[class].head, __ATOMIC_RELAXED) == slab)
        return 0;
    now = os_now_coarse();
    if (hints[class].time == 0 || now - hints[class].time > HINT_NS)
        look_at_class(class, now);
    return hints[class].slabs > 1 && used * hints[class].slabs * 8 <= hints[class].used * 9;
}

JE_ALIAS(get_defrag_hint)
