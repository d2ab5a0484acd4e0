#include "je/arenas.h"

#include <errno.h>
#include <pthread.h>

#include "base/format.h"
#include "front/front.h"
#include "front/seats.h"
#include "je/counted.h"
#include "os/threads.h"

HAK_DATA_HERE struct lock control_lock = LOCK_INIT(LOCK_RANK_CONTROL);

static struct arena arenas[ARENAS_MOST];
static _Atomic uint32_t arenas_given = 1; /* Order: release in arenas_create, acquire: the new arena */
static _Thread_local uint32_t bound __attribute__((tls_model("initial-exec")));

/* ---- Fork: the child finds a consistent table ---- */

static void before_fork(void)
{
    if (!lock_is_mine(&control_lock))
        lock_acquire(&control_lock);
}

static void after_fork(void)
{
    if (lock_is_mine(&control_lock))
        lock_release(&control_lock);
}

/* ---- A thread that ends leaves its arena, which can then be destroyed ---- */

static pthread_key_t end_key;
static bool has_end_key;

static void leave(void *unused)
{
    (void)unused;
    if (bound)
        atomic_fetch_sub(&arenas[bound].threads, 1);
    bound = 0;
    counted.bound = NULL;
}

static bool watch_end(void) { return has_end_key && pthread_setspecific(end_key, &end_key) == 0; }

/* After HAKMEM's own fork handlers, which take the inner locks: prepare handlers registered later run earlier. */
__attribute__((constructor(102))) static void arenas_at_start(void)
{
    os_fork_register(before_fork, after_fork, after_fork);
    has_end_key = pthread_key_create(&end_key, leave) == 0;
}

/* ---- Numbers ---- */

uint32_t arenas_count(void) { return atomic_load_explicit(&arenas_given, memory_order_acquire); }

struct heap *arenas_heap(uint32_t number)
{
    return number < arenas_count() ? atomic_load_explicit(&arenas[number].heap, memory_order_acquire) : NULL;
}

bool arenas_exists(uint32_t number) { return number == 0 || arenas_heap(number) != NULL; }

uint32_t arenas_number(const struct heap *heap)
{
    uint32_t count = heap ? arenas_count() : 0;

    for (uint32_t i = 1; i < count; i++)
        if (atomic_load_explicit(&arenas[i].heap, memory_order_relaxed) == heap)
            return i;
    return 0;
}

/* ---- Life ---- */

int arenas_create(uint32_t *number)
{
    struct heap *heap = front_heap_new();
    uint32_t i, count;

    if (heap == NULL)
        return EAGAIN;
    lock_acquire(&control_lock);
    count = arenas_count();
    for (i = 1; i < count && atomic_load_explicit(&arenas[i].heap, memory_order_relaxed); i++)
        continue;
    if (i < ARENAS_MOST) {
        base_format(arenas[i].name, sizeof arenas[i].name, "manual_%u", i);
        atomic_store_explicit(&arenas[i].heap, heap, memory_order_release);
        if (i == count)
            atomic_store_explicit(&arenas_given, count + 1, memory_order_release);
    }
    lock_release(&control_lock);
    if (i == ARENAS_MOST) {
        front_heap_destroy(heap);
        return EAGAIN;
    }
    *number = i;
    return 0;
}

int arenas_reset(uint32_t number)
{
    struct heap *heap = arenas_heap(number);

    if (heap == NULL)
        return EFAULT;
    front_heap_reset(heap);
    return 0;
}

int arenas_destroy(uint32_t number)
{
    struct heap *heap;

    lock_acquire(&control_lock);
    heap = arenas_threads(number) ? NULL : arenas_heap(number);
    if (heap)
        atomic_store_explicit(&arenas[number].heap, NULL, memory_order_release);
    lock_release(&control_lock);
    front_heap_destroy(heap);
    return heap ? 0 : EFAULT;
}

/* ---- Threads ---- */

uint32_t arenas_of_thread(void) { return bound; }

uint32_t arenas_threads(uint32_t number)
{
    return number < ARENAS_MOST ? atomic_load_explicit(&arenas[number].threads, memory_order_relaxed) : 0;
}

int arenas_bind_thread(uint32_t number)
{
    struct heap *heap;

    if (number == bound)
        return 0;
    if (number && !watch_end())
        return EAGAIN;
    lock_acquire(&control_lock);
    heap = arenas_heap(number);
    if (heap)
        atomic_fetch_add(&arenas[number].threads, 1);
    lock_release(&control_lock);
    if (number && heap == NULL)
        return EFAULT;
    if (bound)
        atomic_fetch_sub(&arenas[bound].threads, 1);
    bound = number;
    counted.bound = heap;
    front_set_thread_cached(heap == NULL && !counted.uncached);
    return 0;
}

char *arenas_name(uint32_t number) { return arenas[number].name; }
