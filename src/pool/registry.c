#include "pool/registry.h"

#include "observe/counters.h"
#include "options/options.h"
#include "pool/heap_memory.h"
#include "pool/registry_lists.h"
#include "pool/remote.h"
#include "superslab/footprint.h"

HAK_DATA_HERE struct registry registry = { .lock = LOCK_INIT(LOCK_RANK_REGISTRY) };

/* Orphans of each list, and served heaps, that one refill looks at: a long list without the class must not slow each
 * new slab. */
#define ADOPT_MAX_ORPHANS 4u
#define ADOPT_MAX_HEAPS 16u
/* Orphans that keep their cache's memory for the next threads. */
#define KEPT_CACHES 8u
/* Groups of heaps whose dead memory goes back while the lock is held once. */
#define PURGE_GROUPS 4u

/* ---- Heaps between two uses; under registry.lock ---- */

_Static_assert(sizeof(struct class_counters) % sizeof(uint64_t) == 0 &&
                   sizeof(struct heap_counters) % sizeof(uint64_t) == 0,
               "counters are nothing but words");

static void words_move(void *to, void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++)
        ((uint64_t *)to)[i] += ((uint64_t *)from)[i];
    __builtin_memset(from, 0, bytes);
}

/* Drains a heap that nobody uses. A thread that forwards an entry there meanwhile may not get the lock: the loop drains
 * the entry (O4). */
static void heap_drain(struct heap *heap)
{
    while (atomic_load(&heap->pending)) {
        lock_acquire(&heap->lock);
        remote_drain(heap);
        lock_release(&heap->lock);
    }
}

/* Where a shared heap counts a thread's refills, the thread's own heap counts its hits (O8). */
static bool class_was_used(const struct class_counters *counters)
{
    return (counters->refills | counters->flushes | counters->malloc_hits | counters->free_hits) != 0;
}

/* Moves the counters of a heap that nobody uses to registry.departed, so that the sums stay (C1). */
static void heap_fold(struct heap *heap)
{
    registry.folds++;
    heap_drain(heap);
    lock_acquire(&heap->lock);
    words_move(&registry.departed.counters, &heap->body->counters, sizeof heap->body->counters);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        if (class_was_used(&heap->classes[class]))
            words_move(&registry.departed.classes[class], &heap->classes[class], sizeof heap->classes[class]);
    lock_release(&heap->lock);
}

/* Makes a heap that is in no list serve (O5). */
static void heap_begin(struct heap *heap, enum heap_kind kind)
{
    if (heap->kind != (uint8_t)kind)
        heap_fold(heap);
    heap->kind = (uint8_t)kind;
    heap_memory_use(heap, kind == HEAP_THREAD);
    __atomic_store_n(&heap->thread_id, os_thread_id(), __ATOMIC_RELAXED); /* read without the lock */
    atomic_store(&heap->state, HEAP_LIVE);
    list_add(heap, kind == HEAP_FIRST_CLASS ? LIST_PROGRAM : LIST_SERVED, false);
}

static struct heap *registry_make(enum heap_kind kind)
{
    struct heap *heap = heap_memory_make();

    if (!heap)
        return NULL;
    heap->kind = (uint8_t)kind;
    heap->id = ++registry.count;
    heap->next = registry.heaps;
    __atomic_store_n(&registry.heaps, heap, __ATOMIC_RELEASE);
    return heap;
}

static void make_served_by_all(enum heap_kind kind, struct heap **place)
{
    struct heap *heap;

    lock_acquire(&registry.lock);
    heap = *place ? NULL : registry_make(kind);
    if (heap) {
        heap_begin(heap, kind);
        atomic_store(&heap->state, HEAP_ORPHAN);
        __atomic_store_n(place, heap, __ATOMIC_RELEASE); /* Release: the heap */
    }
    lock_release(&registry.lock);
}

bool registry_served_by_all(enum heap_kind kind, struct heap **place)
{
    if (HAK_LIKELY(__atomic_load_n(place, __ATOMIC_ACQUIRE) != NULL)) /* Acquire: the heap */
        return true;
    make_served_by_all(kind, place);
    return __atomic_load_n(place, __ATOMIC_RELAXED) != NULL; /* as this thread or the lock's last holder stored it */
}

bool registry_init(void)
{
    size_t cpus = os_cpu_count();

    registry.own_most = (uint32_t)base_max(OWN_LEAST, 4 * cpus);
    registry.shared_count = (uint32_t)base_min(base_max(SHARED_LEAST, 4 * cpus), SHARED_MOST);
    return registry_served_by_all(HEAP_HOUSE, &registry.house);
}

/* ---- Threads' heaps ---- */

/* Whether the heap's cache has its memory. */
static bool keeps_cache(const struct heap *heap) { return heap->cache && heap->cache_purged == MEMORY_IN_USE; }

static struct heap *take_orphan(void)
{
    struct heap *heap = list_take_first(LIST_LEFT);

    if (!heap) {
        heap = list_take_first(LIST_SETTLED);
        registry.kept -= heap && keeps_cache(heap);
    }
    if (heap)
        atomic_fetch_sub_explicit(&registry.orphan_count, 1, memory_order_relaxed);
    return heap;
}

/* Sets the number of threads that have a heap, and the share of each. Under registry.lock, so the shares always belong
 * to the present number. */
static void set_live_threads(uint32_t threads)
{
    atomic_store_explicit(&registry.live_threads, threads, memory_order_relaxed);
    threads = (uint32_t)base_max(threads, 1);
    atomic_store_explicit(&heap_signals.several, threads > 1, memory_order_relaxed);
    atomic_store_explicit(&heap_signals.warm_share, (uint32_t)base_max(WARM_TOTAL / threads, 1), memory_order_relaxed);
    atomic_store_explicit(&heap_signals.cache_share,
                          threads == 1 ? UINT32_MAX : (uint32_t)base_max(CACHES_TOTAL / threads, CACHE_SHARE_LEAST),
                          memory_order_relaxed);
}

struct heap *registry_take_heap(void)
{
    struct heap *heap;

    lock_acquire(&registry.lock);
    heap = take_orphan();
    if (!heap)
        heap = list_take_first(LIST_UNUSED);
    if (!heap)
        heap = registry_make(HEAP_THREAD);
    if (heap) {
        heap_begin(heap, HEAP_THREAD);
        set_live_threads(atomic_load_explicit(&registry.live_threads, memory_order_relaxed) + 1);
    }
    lock_release(&registry.lock);
    return heap;
}

struct heap *registry_serving(struct heap *own)
{
    struct heap **shared;

    /* A heap that still has slabs, as an orphan may, goes on to serve. */
    if (atomic_load_explicit(&registry.live_threads, memory_order_relaxed) <= registry.own_most ||
        registry.shared_count == 0 || atomic_load_explicit(&own->slabs, memory_order_relaxed) != 0)
        return own;
    lock_acquire(&registry.lock);
    shared = &registry.shared[own->id % registry.shared_count];
    if (*shared == NULL || atomic_load(&(*shared)->state) == HEAP_LOST) {
        *shared = list_take_first(LIST_UNUSED);
        if (*shared == NULL)
            *shared = registry_make(HEAP_SHARED);
        if (*shared) {
            heap_begin(*shared, HEAP_SHARED);
            (*shared)->caches = 0;
        }
    }
    if (*shared) {
        (*shared)->caches++;
        own = *shared;
    }
    lock_release(&registry.lock);
    return own;
}

bool registry_add_cache(struct heap *heap, size_t size, size_t first_size)
{
    bool done;

    lock_acquire(&registry.lock);
    done = heap_memory_add_cache(heap, size, first_size);
    lock_release(&registry.lock);
    return done;
}

static void heap_leave(struct heap *heap)
{
    /* Sequentially consistent: a pusher sees this state, or the last drain sees the push (O4). */
    atomic_store(&heap->state, HEAP_ORPHAN);
    list_add(list_remove(heap), LIST_LEFT, true);
    atomic_fetch_add_explicit(&registry.orphan_count, 1, memory_order_relaxed);
}

/* Under registry.lock. */
static void serve_less(struct heap *shared)
{
    HAK_ASSERT(shared->kind == HEAP_SHARED && shared->caches > 0);
    if (--shared->caches > 0)
        return;
    for (unsigned i = 0; i < registry.shared_count; i++)
        if (registry.shared[i] == shared)
            registry.shared[i] = NULL;
    shared->kind = HEAP_THREAD;
    heap_leave(shared);
    lock_acquire(&shared->lock);
    remote_drain(shared); /* O4 */
    heap_release_warm(shared);
    lock_release(&shared->lock);
}

void registry_serve_less(struct heap *shared)
{
    lock_acquire(&registry.lock);
    serve_less(shared);
    lock_release(&registry.lock);
}

void registry_abandon_heap(struct heap *heap)
{
    lock_acquire(&registry.lock);
    heap_leave(heap);
    set_live_threads(atomic_load_explicit(&registry.live_threads, memory_order_relaxed) - 1);
    lock_release(&registry.lock);
    /* The last drain comes after the state changed (O4). The next thread may have the heap by now. */
    lock_acquire(&heap->lock);
    remote_drain(heap);
    heap_release_warm(heap);
    lock_release(&heap->lock);
}

/* Whether a signal handler forked and did not get the heap's lock (O7). A first-class heap stays the program's. */
static bool heap_is_lost(const struct heap *heap, const struct heap *mine)
{
    return heap_serves_threads(heap) && heap != mine && lock_is_held(&heap->lock) && !lock_is_mine(&heap->lock);
}

/* Whether a thread that is gone may have been changing the heap's cache under the lock of a shared heap (O8). */
static bool cache_is_lost(const struct heap *heap, const struct heap *mine, struct heap *(*serving)(const void *cache))
{
    const struct heap *shared =
        heap->kind == HEAP_THREAD && heap != mine && keeps_cache(heap) ? serving(heap->cache) : NULL;

    return shared && shared != heap && (atomic_load(&shared->state) == HEAP_LOST || heap_is_lost(shared, mine));
}

/* The list that the heap belongs to by its kind and state. */
static enum registry_list list_in_child(struct heap *heap, const struct heap *mine)
{
    if ((!heap_serves_threads(heap) && heap->kind != HEAP_FIRST_CLASS) || heap == mine)
        return LIST_SERVED;
    if (atomic_load(&heap->state) == HEAP_LOST)
        return LIST_NONE;
    if (heap->kind == HEAP_SHARED)
        return LIST_SERVED;
    if (atomic_load(&heap->state) == HEAP_UNUSED)
        return LIST_UNUSED;
    return heap->kind == HEAP_THREAD ? LIST_LEFT : LIST_PROGRAM;
}

/* Builds all lists anew, because vanished threads may have been changing the lists and their heaps. */
void registry_reset_in_child(struct heap *mine, struct heap *(*serving)(const void *cache))
{
    __builtin_memset(registry.lists, 0, sizeof registry.lists);
    registry.kept = 0;
    heap_memory_reset_in_child(registry.heaps);
    for (struct heap *heap = registry.heaps; heap; heap = heap->next) {
        enum registry_list list;
        if (heap_is_lost(heap, mine) || cache_is_lost(heap, mine, serving))
            atomic_store(&heap->state, HEAP_LOST);
        list = list_in_child(heap, mine);
        heap->list = LIST_NONE;
        if (list == LIST_LEFT)
            atomic_store(&heap->state, HEAP_ORPHAN);
        if (list != LIST_NONE)
            list_add(heap, list, false);
    }
    atomic_store(&registry.orphan_count, list_length(LIST_LEFT));
    set_live_threads(mine != NULL);
    atomic_store(&registry.trimming, false);
    if (mine)
        mine->thread_id = os_thread_id();
}

/* Whether the heap owns no slab, and nothing is in its queue or on its way there. Under heap.lock. */
static bool heap_is_bare(struct heap *heap)
{
    for (unsigned number = 0; number < WARM_STOCKS; number++)
        if (heap->body->warm[number].count)
            return false;
    return heap->slabs == 0 && atomic_load(&heap->pending) == NULL;
}

/* Makes an orphan that is in no list unused (O5). The next purge takes its body and its cache. */
static void heap_end(struct heap *heap)
{
    atomic_store(&heap->state, HEAP_UNUSED);
    heap->body_purged = MEMORY_DEAD;
    heap_memory_bury(heap);
    list_add(heap, LIST_UNUSED, false);
    atomic_fetch_sub_explicit(&registry.orphan_count, 1, memory_order_relaxed);
}

/* Settles an orphan that is in no list, and whose cache is empty. Under registry.lock and heap.lock. */
static void heap_settle(struct heap *heap)
{
    bool keep = keeps_cache(heap) && registry.kept < KEPT_CACHES;

    remote_drain(heap);
    heap_release_warm(heap);
    if (keep) {
        registry.kept++;
    } else if (keeps_cache(heap)) {
        heap->cache_purged = MEMORY_DEAD;
        heap_memory_bury(heap);
    }
    if (!keep && heap_is_bare(heap))
        heap_end(heap);
    else
        list_add(heap, LIST_SETTLED, keep);
}

/* Makes the caches and bodies of heaps that ended due for a purge. */
static void purge_ripens(void)
{
    heap_memory_ripen();
    atomic_store(&registry.purging, heap_memory_is_due());
}

void registry_settle(bool all, struct heap *(*flush)(void *cache))
{
    uint32_t most = list_length(LIST_LEFT);
    bool more = most != 0;

    for (most = all ? most : (uint32_t)base_min(most, REGISTRY_STEP); more && most > 0; most--) {
        struct heap *heap, *served;
        lock_acquire(&registry.lock);
        heap = list_take_first(LIST_LEFT);
        if (heap) {
            served = keeps_cache(heap) ? flush(heap->cache) : NULL;
            if (served && served != heap)
                serve_less(served);
            lock_acquire(&heap->lock);
            heap_settle(heap);
            lock_release(&heap->lock);
        }
        more = registry.lists[LIST_LEFT].first != NULL;
        if (!more)
            purge_ripens();
        lock_release(&registry.lock);
    }
    atomic_store(&registry.settling, more && !all);
}

/* ---- First-class heaps ---- */

struct heap *registry_new_first_class(void)
{
    struct heap *heap;

    lock_acquire(&registry.lock);
    heap = list_take_first(LIST_UNUSED);
    if (!heap)
        heap = registry_make(HEAP_FIRST_CLASS);
    if (heap)
        heap_begin(heap, HEAP_FIRST_CLASS);
    lock_release(&registry.lock);
    return heap;
}

void registry_drop_first_class(struct heap *heap)
{
    lock_acquire(&registry.lock);
    if (atomic_load(&heap->state) == HEAP_LIVE) {
        atomic_store(&heap->state, HEAP_UNUSED);
        heap->body_purged = MEMORY_DEAD;
        heap_memory_bury(heap);
        list_add(list_remove(heap), LIST_UNUSED, true);
    }
    lock_release(&registry.lock);
    heap_drain(heap); /* O4 */
    shared_pool_want_purge();
}

/* ---- Adoption ---- */

/* Takes one slab with free blocks of the class from `from`, whose lock is held. */
static bool adopt_from(struct heap *heap, struct heap *from, unsigned class)
{
    remote_drain(from);
    if (!from->body->available[class].head)
        return false;
    heap_adopt_slab(heap, from, from->body->available[class].head);
    return true;
}

static bool adopt_of_list(struct heap *heap, struct heap_list *list, unsigned class)
{
    unsigned most = (unsigned)base_min(ADOPT_MAX_ORPHANS, list->count);
    bool adopted = false;

    for (unsigned looks = 0; looks < most && !adopted; looks++) {
        struct heap *orphan = list_turn(list, &list->adopt_hand);
        if (orphan == NULL)
            break;
        if (atomic_load_explicit(&orphan->slabs, memory_order_relaxed) != 0 && lock_try(&orphan->lock)) {
            adopted = adopt_from(heap, orphan, class);
            lock_release(&orphan->lock);
        }
    }
    return adopted;
}

static bool adopt_orphaned(struct heap *heap, unsigned class)
{
    bool adopted;

    if (atomic_load_explicit(&registry.orphan_count, memory_order_relaxed) == 0 || !lock_try(&registry.lock))
        return false;
    adopted = adopt_of_list(heap, &registry.lists[LIST_LEFT], class) ||
              adopt_of_list(heap, &registry.lists[LIST_SETTLED], class);
    lock_release(&registry.lock);
    return adopted;
}

/* Whether `epoch` has stayed the same since a call that saw it first, at least the threshold ago. */
static bool heap_is_idle(struct heap *heap, uint64_t now)
{
    uint32_t epoch = atomic_load_explicit(&heap->epoch, memory_order_relaxed);

    if (atomic_load_explicit(&heap->seen_epoch, memory_order_relaxed) != epoch) {
        atomic_store_explicit(&heap->seen_epoch, epoch, memory_order_relaxed);
        atomic_store_explicit(&heap->seen_time, now, memory_order_relaxed);
        return false;
    }
    return now - atomic_load_explicit(&heap->seen_time, memory_order_relaxed) >=
           hak_options.mf2_idle_threshold_us * 1000;
}

/* Fills heaps[] with the next served heaps in turn. A heap that ends meanwhile owns nothing to take. */
static unsigned served_in_turn(struct heap **heaps)
{
    struct heap_list *list = &registry.lists[LIST_SERVED];
    unsigned most = 0;

    if (lock_try(&registry.lock)) {
        most = (unsigned)base_min(ADOPT_MAX_HEAPS, list->count);
        for (unsigned i = 0; i < most; i++)
            heaps[i] = list_turn(list, &list->adopt_hand);
        lock_release(&registry.lock);
    }
    return most;
}

static bool adopt_idle(struct heap *heap, unsigned class)
{
    struct heap *heaps[ADOPT_MAX_HEAPS];
    uint64_t now, queues = 0;
    unsigned count;

    if (atomic_load_explicit(&heap_signals.queues, memory_order_relaxed) == 0 || hak_options.mf2_max_queues == 0)
        return false;
    now = os_now();
    count = served_in_turn(heaps);
    for (unsigned i = 0; i < count && queues < hak_options.mf2_max_queues; i++) {
        struct heap *other = heaps[i];
        bool adopted = false;
        if (other == heap || atomic_load_explicit(&other->pending_count, memory_order_relaxed) <
                                 hak_options.mf2_enqueue_threshold)
            continue;
        queues++;
        if (heap_is_idle(other, now) && lock_try(&other->lock)) {
            adopted = heap_serves_threads(other) && adopt_from(heap, other, class);
            lock_release(&other->lock);
        }
        if (adopted)
            return true;
    }
    return false;
}

bool registry_adopt(struct heap *heap, unsigned class)
{
    if (adopt_orphaned(heap, class)) {
        debug_count_of(COUNT_MF2_ADOPTED_ORPHAN, class, 1);
        return true;
    }
    if (hak_options.mf2_enable && adopt_idle(heap, class)) {
        debug_count_of(COUNT_MF2_ADOPTED_IDLE, class, 1);
        return true;
    }
    return false;
}

/* ---- Warm pools ---- */

void registry_release_warm(void)
{
    struct heap_list *list = &registry.lists[LIST_SERVED];
    struct heap *heaps[REGISTRY_STEP]; /* half a KiB of the stack */
    unsigned count = 0;

    lock_acquire(&registry.lock);
    for (; count < base_min(REGISTRY_STEP, list->count); count++)
        heaps[count] = list_turn(list, &list->warm_hand);
    lock_release(&registry.lock);
    for (unsigned i = 0; i < count && footprint_warm() != 0; i++)
        if (lock_try(&heaps[i]->lock)) {
            heap_release_warm(heaps[i]);
            lock_release(&heaps[i]->lock);
        }
}

/* ---- The tick ---- */

/* Trims one heap, whose lock is held. With `all` it need not be quiet. True: it may have more to give later. */
static bool heap_trim(struct heap *heap, bool all, struct slab_look *look, size_t *purged)
{
    uint32_t epoch = atomic_load_explicit(&heap->epoch, memory_order_relaxed);
    bool quiet = epoch == heap->tick_epoch;
    size_t drained;

    heap->tick_epoch = epoch;
    drained = remote_drain(heap);
    heap_release_warm(heap);
    if (!quiet && !all)
        return true;
    if (heap->scrubbed_epoch != epoch || drained) {
        if (!heap_scrub(heap, look, purged))
            return true;
        heap->scrubbed_epoch = epoch;
    }
    return false;
}

/* Makes a settled orphan that gave away its last slab unused, unless it kept its cache for the next thread. */
static void heap_end_if_bare(struct heap *heap)
{
    lock_acquire(&registry.lock);
    lock_acquire(&heap->lock);
    if (heap->list == LIST_SETTLED && !keeps_cache(heap) && heap_is_bare(heap))
        heap_end(list_remove(heap));
    lock_release(&heap->lock);
    lock_release(&registry.lock);
}

/* Fills heaps[] with the next heaps of this round. Begins a round if there is none. */
static unsigned trim_in_turn(struct heap **heaps, bool *stale)
{
    unsigned count = 0;

    lock_acquire(&registry.lock);
    if (!registry.trimming) {
        for (enum registry_list number = LIST_SERVED; number <= LIST_PROGRAM; number++)
            registry.trim_left[number] = list_length(number);
        registry.trim_more = false;
        registry.trim_stale = *stale;
        registry.trimming = true;
    }
    *stale = registry.trim_stale;
    for (enum registry_list number = LIST_SERVED; number <= LIST_PROGRAM; number++) {
        struct heap_list *list = &registry.lists[number];
        for (; count < REGISTRY_STEP && registry.trim_left[number]; registry.trim_left[number]--) {
            struct heap *heap = list_turn(list, &list->trim_hand);
            if (heap)
                heaps[count++] = heap;
        }
    }
    lock_release(&registry.lock);
    return count;
}

static bool trim_step(struct heap *const *heaps, unsigned count, bool stale, struct slab_look *look, size_t *purged)
{
    uint64_t now = os_now();
    bool left = false;

    for (unsigned i = 0; i < count; i++) {
        struct heap *heap = heaps[i];
        bool idle = heap_is_idle(heap, now) || atomic_load(&heap->state) == HEAP_ORPHAN, bare;
        if ((stale || idle) && lock_try(&heap->lock)) {
            left |= heap_trim(heap, stale, look, purged);
            bare = heap->slabs == 0 && atomic_load(&heap->state) == HEAP_ORPHAN;
            lock_release(&heap->lock);
            if (bare)
                heap_end_if_bare(heap);
        } else {
            left = true;
        }
    }
    return left;
}

/* Notes one step's *left, and sets *left to that of the round. True: the round is over. */
static bool trim_note(bool *left)
{
    bool over = true;

    lock_acquire(&registry.lock);
    for (enum registry_list number = LIST_SERVED; number <= LIST_PROGRAM; number++)
        over &= registry.trim_left[number] == 0;
    registry.trim_more |= *left;
    *left = registry.trim_more;
    if (over)
        purge_ripens();
    registry.trimming = !over;
    lock_release(&registry.lock);
    return over;
}

bool registry_trim_idle(bool stale, bool all, struct slab_look *look, size_t *purged)
{
    struct heap *heaps[REGISTRY_STEP]; /* half a KiB of the stack */
    bool left, over;

    if (all)
        atomic_store(&registry.trimming, false); /* from the beginning */
    do {
        unsigned count = trim_in_turn(heaps, &stale);
        left = trim_step(heaps, count, stale, look, purged);
        over = trim_note(&left);
    } while (all && !over);
    return left;
}

size_t registry_purge_dead(bool all)
{
    size_t purged = 0;
    unsigned groups = 0;

    while (registry.purging && (all || groups < REGISTRY_STEP) && lock_try(&registry.lock)) {
        purged += heap_memory_purge(PURGE_GROUPS, heap_fold);
        groups += PURGE_GROUPS;
        atomic_store(&registry.purging, heap_memory_is_due());
        lock_release(&registry.lock);
    }
    return purged;
}

bool registry_has_more(void)
{
    return atomic_load_explicit(&registry.settling, memory_order_relaxed) ||
           atomic_load_explicit(&registry.trimming, memory_order_relaxed) ||
           atomic_load_explicit(&registry.purging, memory_order_relaxed);
}

uint32_t registry_activity(void)
{
    static _Atomic uint32_t number; /* Order: any; for one caller */

    if (atomic_exchange(&heap_signals.active, false))
        atomic_fetch_add(&number, 1);
    return atomic_load(&number);
}
