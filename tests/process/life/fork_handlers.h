/*
 * Fork handlers that make every kind of call. FORK_HANDLERS in the environment lists the handlers that do: prepare,
 * parent, child. The program calls register_handlers() from an initialiser that runs before the allocator's own. Then
 * prepare runs after the allocator's prepare, and parent and child run before the allocator's.
 */
#ifndef TESTS_LIFE_FORK_HANDLERS_H
#define TESTS_LIFE_FORK_HANDLERS_H

#include <dlfcn.h>

#include "foreign.h"

/* Blocks on their way from one thread to another. The thread that takes a block frees it. */
enum { EXCHANGED = 64 };
__attribute__((weak)) _Atomic(void *) exchanged[EXCHANGED];

static inline void exchange_block(unsigned i, void *block)
{
    free(atomic_exchange(&exchanged[i % EXCHANGED], block));
}

/* The allocator's first-class heaps, if the program has them. */
struct heap_functions {
    void *(*make)(void);
    void *(*allocate)(void *heap, size_t size);
    void (*destroy)(void *heap);
};

#ifdef LINKED_STATICALLY
#include "hakmem/hakmem.h"
static struct heap_functions heaps = { (void *(*)(void))hak_heap_new, (void *(*)(void *, size_t))hak_heap_malloc,
                                       (void (*)(void *))hak_heap_destroy };
static inline void find_heaps(void)
{
}
#else
static struct heap_functions heaps;
static inline void find_heaps(void)
{
    *(void **)&heaps.make = dlsym(RTLD_DEFAULT, "hak_heap_new");
    *(void **)&heaps.allocate = dlsym(RTLD_DEFAULT, "hak_heap_malloc");
    *(void **)&heaps.destroy = dlsym(RTLD_DEFAULT, "hak_heap_destroy");
}
#endif

static inline void use_a_heap(void)
{
    if (!heaps.make)
        return;
    void *heap = heaps.make();
    for (unsigned i = 0; i < ALL_SIZES; i += 7)
        mark_block(heaps.allocate(heap, size_number(i)), size_number(i));
    heaps.destroy(heap);
}

static inline void use_everything(void)
{
    static unsigned char *kept[ALL_SIZES]; /* from one handler to the next, and from parent to child */

    for (unsigned i = 0; i < ALL_SIZES; i++) {
        if (kept[i])
            check_block(kept[i], size_number(i));
        free(kept[i]);
        mark_block(kept[i] = malloc(size_number(i)), size_number(i));
    }
    use_all_sizes();
    for (unsigned i = 0; i < EXCHANGED; i++)
        exchange_block(i, NULL);
    use_a_heap();
}

static bool handles(const char *what)
{
    const char *wanted = getenv("FORK_HANDLERS");
    return wanted && strstr(wanted, what);
}

static void before_fork(void)
{
    if (handles("prepare"))
        use_everything();
}

static void in_parent(void)
{
    if (handles("parent"))
        use_everything();
}

static void in_child(void)
{
    if (handles("child"))
        use_everything();
}

static inline void register_handlers(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

#endif
