/*
 * jemalloc's arenas. Arena 0 is everything that malloc gives. Each other arena is a first-class heap.
 *
 * Q2: arenas.create sets an arena's heap, and arenas.destroy sets it to NULL, both under control_lock. Numbers are used
 *     again. Readers take no lock, because nobody may use an arena while it is destroyed.
 */
#ifndef HAK_JE_ARENAS_H
#define HAK_JE_ARENAS_H

#include "os/lock.h"

struct heap;

/* MALLOCX_ARENA has 12 bits, and 0 means no arena. */
#define ARENAS_MOST 4095u
#define ARENA_NAME_MOST 32u

struct arena {
    struct heap *_Atomic heap;      /* NULL: number 0, or no arena. Order: release, acquire: its fields */
    _Atomic uint32_t threads;       /* bound to it; not counted for number 0. Order: any; binds under control_lock */
    char name[ARENA_NAME_MOST];     /* under control_lock */
};

/* The outermost lock: arenas and figures. */
HAK_DATA struct lock control_lock;

/* The count of numbers given so far, with number 0 and those of destroyed arenas. */
HAK_HIDDEN uint32_t arenas_count(void);

/* The arena's heap; NULL for number 0, and if there is no such arena. */
HAK_HIDDEN struct heap *arenas_heap(uint32_t number);
/* Whether there is an arena of that number. */
HAK_HIDDEN bool arenas_exists(uint32_t number);
/* The heap's arena number; 0 for NULL and for heaps that are no arenas. */
HAK_HIDDEN uint32_t arenas_number(const struct heap *heap);

/* Return 0, EAGAIN (no memory, or no number left), or EFAULT (number 0, no arena, or threads are bound to it). */
HAK_HIDDEN int arenas_create(uint32_t *number);
HAK_HIDDEN int arenas_reset(uint32_t number);
HAK_HIDDEN int arenas_destroy(uint32_t number);

/* The calling thread's arena. arenas_bind_thread gives the thread another one, and returns 0 or an errno. */
HAK_HIDDEN uint32_t arenas_of_thread(void);
HAK_HIDDEN int arenas_bind_thread(uint32_t number);
/* The number of threads bound to the arena. */
HAK_HIDDEN uint32_t arenas_threads(uint32_t number);

/* The arena's name, of at most ARENA_NAME_MOST - 1 characters. Under control_lock. */
HAK_HIDDEN char *arenas_name(uint32_t number);

#endif
