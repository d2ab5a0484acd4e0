/*
 * Scopes: memory divided by whom it serves. A scope is a tenant with a name, a cap in bytes and exact figures. While a
 * thread is in a scope, all that it allocates by any name (malloc, operator new, hak_malloc) belongs to the scope.
 * docs/scopes.md begins with an example.
 *
 *  - Bytes are those that blocks have: sizes rounded up to the size class, above 1 MiB to whole 64 KiB, after
 *    libhakmem-secure added 8 bytes, or above 1 MiB a page.
 *  - Over a cap an allocation fails with ENOMEM, for the scope alone. Nothing passes a cap, however many threads
 *    allocate.
 *  - A block belongs to its scope until it is freed, by any thread, in any scope or none. realloc leaves it there. A
 *    block of no scope that realloc moves comes into the thread's scope, unless the system moves it (above 1 MiB).
 *  - Scopes form a tree. The bytes of a scope count in all scopes above it, too.
 *  - In a scope malloc and free of the scope's blocks take the lock of the scope's heap, like hak_heap_malloc
 *    (hakmem.h). Blocks of no scope are freed as fast as elsewhere. Outside scopes nothing costs more.
 *  - hak_heap_of tells NULL of a scope's block. Blocks of first-class heaps are never a scope's.
 *  - A new thread is in no scope. A thread that ends leaves its scopes. In the child of a fork, the forking thread is
 *    in its scopes, and the figures may be too high by blocks that other threads were taking or freeing at that moment.
 *
 * Any thread may call every function at any time, but for scopes that are being destroyed. A signal handler may call
 * hak_scope_enter and hak_scope_leave in a thread that was in a scope before, if it leaves what it enters.
 */
#ifndef HAKMEM_SCOPE_H
#define HAKMEM_SCOPE_H

#include <hakmem/hakmem.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hak_scope hak_scope_t;

#define HAK_SCOPE_NAME_MOST 47 /* bytes */
#define HAK_SCOPES_MOST 16     /* that a thread is in at a time */

/* An empty scope below `parent`; NULL: below the process. The name, which is copied, has 1 to HAK_SCOPE_NAME_MOST bytes
 * of printable ASCII without " and \. Several scopes may have one name. cap: the most bytes of its blocks and those of
 * all scopes below; 0: no bound of its own. Returns NULL with EINVAL (the name) or ENOMEM. */
HAK_API hak_scope_t *hak_scope_new(const char *name, hak_scope_t *parent, size_t cap) HAK_NOEXCEPT;

/* Changes the cap. Blocks stay if they have more: then allocations fail until they have less. */
HAK_API void hak_scope_set_cap(hak_scope_t *scope, size_t cap) HAK_NOEXCEPT;

/* Calls `over` when the scope, with those below it, has more than `soft` bytes: once, and again after it had `soft` or
 * less. A thread in the scope, or in one below it, calls it at the end of the allocation that found it so, under no
 * lock. There is one such call at a time, and none within itself. It may allocate, free, and use scopes, but not wait
 * for a thread that waits for this one, nor throw. `live` are the scope's bytes. soft 0 or over NULL: no callback. Call
 * it before a thread enters the scope. */
typedef void (*hak_scope_over)(hak_scope_t *scope, size_t live, void *argument);
HAK_API void hak_scope_on_soft(hak_scope_t *scope, size_t soft, hak_scope_over over, void *argument) HAK_NOEXCEPT;

/* The thread is in the scope until it leaves it; NULL: in no scope, as for memory that all tenants share. Returns 0, or
 *   E2BIG    the thread is in HAK_SCOPES_MOST already
 *   ENOMEM   the thread has no memory for a cache
 *   ENOTSUP  the thread is past its end (in a destructor of thread-specific data), or bound to an arena of jemalloc's
 * and is where it was before. */
HAK_API int hak_scope_enter(hak_scope_t *scope) HAK_NOEXCEPT;

/* Leaves the scope that was entered last by this value, and those that were entered after it. The thread is then in the
 * scope around it. Does nothing if the thread is not in the scope. */
HAK_API void hak_scope_leave(hak_scope_t *scope) HAK_NOEXCEPT;

/* The scope that the thread's allocations belong to; NULL: none. */
HAK_API hak_scope_t *hak_scope_current(void) HAK_NOEXCEPT;

/* The scope that the live block belongs to. NULL: none, or one that was destroyed, or block is NULL. */
HAK_API hak_scope_t *hak_scope_of(const void *block) HAK_NOEXCEPT;

/* What becomes of the blocks of a scope that is destroyed. */
enum hak_scope_blocks {
    HAK_SCOPE_FREE = 1, /* all are freed at once: no thread may use them during the call or later */
    HAK_SCOPE_KEEP      /* they live on until they are freed, and count in the scopes above until then */
};

/* Destroys the scope. Returns 0, or EBUSY (a thread is in it, or a scope below it was not destroyed) or EINVAL
 * (`blocks`), and changes nothing then. NULL is allowed. Blocks that scopes below kept live on in any case. */
HAK_API int hak_scope_destroy(hak_scope_t *scope, enum hak_scope_blocks blocks) HAK_NOEXCEPT;

/* ---- Figures ---- */

struct hak_scope_stats {
    uint64_t number;  /* from 1, never used twice; of the process 0 */
    uint64_t parent;  /* its number; 0: the process */
    uint64_t live;    /* bytes of live blocks, of the scopes below too */
    uint64_t own;     /* bytes of its own live blocks */
    uint64_t held;    /* bytes of its own slabs and mappings, with what is free between blocks */
    uint64_t peak;    /* the most that `live` was */
    uint64_t cap, soft; /* bytes; 0: none */
    uint64_t refused; /* allocations that its cap refused */
    uint64_t threads; /* how often threads have entered it and not left it */
    uint64_t closed;  /* 1: it was destroyed, and blocks live on */
    char name[HAK_SCOPE_NAME_MOST + 1];
};

/* Fills *stats up to `size` bytes, as hak_stats_get does (hakmem/stats.h). NULL: of the process, whose caps are the
 * memory limits in force; own, refused and threads are 0. Returns the bytes filled; 0: EINVAL or ENOMEM. live, own and
 * peak are exact while no other thread allocates or frees. */
HAK_API size_t hak_scope_get(hak_scope_t *scope, struct hak_scope_stats *stats, size_t size) HAK_NOEXCEPT;

/* Fills rows[0..capacity), each of row_size bytes, with all scopes, the newest first. Returns their number, which may
 * exceed the capacity. 0 with EINVAL: row_size is less than 8. */
HAK_API size_t hak_scope_list(struct hak_scope_stats *rows, size_t row_size, size_t capacity) HAK_NOEXCEPT;

/* Resident bytes of its slabs and mappings, with the slabs' share of headers, and of those of all scopes below. Asks
 * the kernel about each slab, some 15 ms for a GiB, while allocations in the scope wait. 0 if the kernel refuses. */
HAK_API size_t hak_scope_resident(hak_scope_t *scope) HAK_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
