/*
 * libhakmem-trace.so: replaces malloc and its family by LD_PRELOAD, passes each call to the allocator behind it, and
 * notes it (record.h).
 *
 * A call that frees a block is noted before it is made, a call that allocates one afterwards. So the tickets order the
 * lives of an address whatever other threads do meanwhile.
 */
#define _GNU_SOURCE
#include "record.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

PUBLIC void cfree(void *block);

/* ---- The allocator behind this ---- */

static struct {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    size_t (*malloc_usable_size)(void *);
    int (*pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int (*thrd_create)(thrd_t *, thrd_start_t, void *);
} next;

/* Blocks for dlsym itself, which may call malloc before it has found it. They are never freed. */
static _Alignas(16) char early_memory[16 * 1024];
static size_t early_used;
static bool resolving;

static void *early_malloc(size_t size)
{
    size_t taken = ((size + 15) & ~(size_t)15) + 16;
    if (size > sizeof early_memory || taken > sizeof early_memory - early_used) {
        errno = ENOMEM;
        return NULL;
    }
    char *header = early_memory + early_used;
    early_used += taken;
    memcpy(header, &size, sizeof size);
    return header + 16;
}

static bool is_early(const void *block)
{
    return (uintptr_t)block - (uintptr_t)early_memory < sizeof early_memory;
}

static size_t early_size(const void *block)
{
    size_t size;
    memcpy(&size, (const char *)block - 16, sizeof size);
    return size;
}

static void find(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        static const char line[] = "hakmem trace: this program's libraries have no malloc family to call\n";
        (void)!write(STDERR_FILENO, line, sizeof line - 1);
        _exit(127);
    }
    memcpy(function, &found, sizeof found);
}

/* Finds the functions behind these. Returns false meanwhile, for calls that come from dlsym. */
static bool resolve(void)
{
    if (resolving)
        return false;
    resolving = true;
    find(&next.free, "free");
    find(&next.calloc, "calloc");
    find(&next.realloc, "realloc");
    find(&next.posix_memalign, "posix_memalign");
    find(&next.aligned_alloc, "aligned_alloc");
    find(&next.memalign, "memalign");
    find(&next.valloc, "valloc");
    find(&next.pvalloc, "pvalloc");
    find(&next.malloc_usable_size, "malloc_usable_size");
    find(&next.pthread_create, "pthread_create");
    find(&next.thrd_create, "thrd_create");
    /* Set last: if it is there, so are the others. */
    find(&next.malloc, "malloc");
    resolving = false;
    return true;
}

static inline bool is_ready(void)
{
    return __builtin_expect(next.malloc != NULL, 1) || resolve();
}

__attribute__((constructor)) static void begin(void)
{
    is_ready();
    (void)record_is_on();
}

/* ---- Notes ---- */

static void note_new(enum trace_kind kind, const void *block, size_t size, unsigned log2_alignment)
{
    record_note(kind, (uintptr_t)block, size, log2_alignment);
}

/* memalign rounds an alignment up to the next power of two. */
static unsigned log2_of(size_t alignment)
{
    return alignment <= 1 ? 0 : 64 - (unsigned)__builtin_clzll((unsigned long long)alignment - 1);
}

static size_t product(size_t count, size_t size)
{
    size_t result;
    return __builtin_mul_overflow(count, size, &result) ? SIZE_MAX : result;
}

/* ---- malloc and its family ---- */

/* `inside` is raised around functions that some allocators build from malloc and free, perhaps those below. */

PUBLIC void *malloc(size_t size)
{
    if (!is_ready())
        return early_malloc(size);
    void *block = next.malloc(size);
    note_new(TRACE_MALLOC, block, size, 0);
    return block;
}

PUBLIC void free(void *block)
{
    if (is_early(block))
        return;
    if (!is_ready())
        return;
    /* libc calls free(NULL) a few times at the end of a thread. */
    if (block != NULL || !record_thread.ended)
        record_note(TRACE_FREE, (uintptr_t)block, 0, 0);
    next.free(block);
}

PUBLIC void cfree(void *block)
{
    free(block);
}

PUBLIC void *calloc(size_t count, size_t size)
{
    if (!is_ready())
        return early_malloc(product(count, size)); /* static memory is zero and is used only once */
    record_thread.inside++;
    void *block = next.calloc(count, size);
    record_thread.inside--;
    note_new(TRACE_CALLOC, block, product(count, size), 0);
    return block;
}

/* realloc of an early block: for the allocator behind it is an allocation. */
static void *move_early(void *old, size_t size)
{
    void *block = malloc(size);
    if (block != NULL)
        memcpy(block, old, size < early_size(old) ? size : early_size(old));
    return block;
}

PUBLIC void *realloc(void *old, size_t size)
{
    if (is_early(old))
        return move_early(old, size);
    if (!is_ready())
        return early_malloc(size);
    record_note(TRACE_REALLOC_BEGIN, (uintptr_t)old, 0, 0);
    record_thread.inside++;
    void *block = next.realloc(old, size);
    record_thread.inside--;
    note_new(TRACE_REALLOC, block, size, 0);
    return block;
}

PUBLIC void *reallocarray(void *old, size_t count, size_t size)
{
    size_t bytes = product(count, size);
    if (is_early(old))
        return move_early(old, bytes);
    if (!is_ready())
        return early_malloc(bytes);
    record_note(TRACE_REALLOC_BEGIN, (uintptr_t)old, 0, 0);
    /* realloc rather than reallocarray, which may call the realloc above. No allocator has SIZE_MAX bytes. */
    record_thread.inside++;
    void *block = next.realloc(old, bytes);
    record_thread.inside--;
    note_new(TRACE_REALLOCARRAY, block, bytes, 0);
    return block;
}

PUBLIC int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (!is_ready())
        return ENOMEM;
    record_thread.inside++;
    int error = next.posix_memalign(result, alignment, size);
    record_thread.inside--;
    note_new(TRACE_POSIX_MEMALIGN, error == 0 ? *result : NULL, size, log2_of(alignment));
    return error;
}

PUBLIC void *aligned_alloc(size_t alignment, size_t size)
{
    if (!is_ready())
        return NULL;
    record_thread.inside++;
    void *block = next.aligned_alloc(alignment, size);
    record_thread.inside--;
    note_new(TRACE_ALIGNED_ALLOC, block, size, log2_of(alignment));
    return block;
}

PUBLIC void *memalign(size_t alignment, size_t size)
{
    if (!is_ready())
        return NULL;
    record_thread.inside++;
    void *block = next.memalign(alignment, size);
    record_thread.inside--;
    note_new(TRACE_MEMALIGN, block, size, log2_of(alignment));
    return block;
}

PUBLIC void *valloc(size_t size)
{
    if (!is_ready())
        return NULL;
    record_thread.inside++;
    void *block = next.valloc(size);
    record_thread.inside--;
    note_new(TRACE_VALLOC, block, size, log2_of((size_t)getpagesize()));
    return block;
}

PUBLIC void *pvalloc(size_t size)
{
    if (!is_ready())
        return NULL;
    record_thread.inside++;
    void *block = next.pvalloc(size);
    record_thread.inside--;
    note_new(TRACE_PVALLOC, block, size, log2_of((size_t)getpagesize()));
    return block;
}

PUBLIC size_t malloc_usable_size(void *block)
{
    if (is_early(block))
        return early_size(block);
    return is_ready() ? next.malloc_usable_size(block) : 0;
}

/* ---- Threads ---- */

/* Hands a new thread its number and the function to run. */
struct handover {
    _Atomic bool taken;
    uint32_t thread;
    void *(*routine)(void *);
    thrd_start_t c11_routine;
    void *argument;
};

static struct handover handovers[256];

static struct handover *take_place(void)
{
    for (size_t i = 0; i < sizeof handovers / sizeof handovers[0]; i++)
        if (!atomic_exchange_explicit(&handovers[i].taken, true, memory_order_acquire))
            return &handovers[i];
    return NULL;
}

static void give_place_back(struct handover *place)
{
    atomic_store_explicit(&place->taken, false, memory_order_release);
}

/* In the new thread: takes its number and returns the function to run. */
static struct handover begin_thread(void *argument)
{
    struct handover *place = argument;
    struct handover copy = {
        .routine = place->routine, .c11_routine = place->c11_routine, .argument = place->argument };
    record_thread.reserved = place->thread;
    give_place_back(place);
    /* The thread's end is noted even if it never allocates. */
    if (record_is_on())
        record_more_room();
    return copy;
}

static void *run_thread(void *argument)
{
    struct handover place = begin_thread(argument);
    return place.routine(place.argument);
}

static int run_c11_thread(void *argument)
{
    struct handover place = begin_thread(argument);
    return place.c11_routine(place.argument);
}

/* Announces a thread. NULL: create it as without this library, because nothing is recorded or all places are taken. In
 * the latter case the trace counts it as created by the first thread. */
static struct handover *announce_thread(void *argument)
{
    if (!record_is_on())
        return NULL;
    struct handover *place = take_place();
    if (place == NULL)
        return NULL;
    place->argument = argument;
    place->thread = record_reserve_thread();
    record_note(TRACE_THREAD, place->thread, 0, 0);
    return place;
}

static void withdraw_thread(struct handover *place)
{
    record_note(TRACE_THREAD_FAILED, place->thread, 0, 0);
    give_place_back(place);
}

/* Does not note what the thread library allocates for a thread, because a replay creates threads too. */
PUBLIC int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument)
{
    is_ready();
    struct handover *place = announce_thread(argument);
    if (place != NULL)
        place->routine = routine;
    record_thread.inside++;
    int error = next.pthread_create(thread, attributes, place != NULL ? run_thread : routine,
                                    place != NULL ? place : argument);
    record_thread.inside--;
    if (error != 0 && place != NULL)
        withdraw_thread(place);
    return error;
}

PUBLIC int thrd_create(thrd_t *thread, thrd_start_t routine, void *argument)
{
    is_ready();
    struct handover *place = announce_thread(argument);
    if (place != NULL)
        place->c11_routine = routine;
    record_thread.inside++;
    int result = next.thrd_create(thread, place != NULL ? run_c11_thread : routine, place != NULL ? place : argument);
    record_thread.inside--;
    if (result != thrd_success && place != NULL)
        withdraw_thread(place);
    return result;
}
