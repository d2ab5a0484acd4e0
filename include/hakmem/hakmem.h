/*
 * HAKMEM: a general-purpose memory allocator for Linux.
 *
 * This is the whole public C interface. Programs that preload libhakmem.so or link the override do not need it:
 * HAKMEM already provides their malloc, free, C++ operators and glibc's extensions.
 *
 * Unless a declaration says otherwise:
 *  - sizes and alignments are bytes; an alignment is a power of two;
 *  - every block is at least 16-byte aligned;
 *  - a function that returns a block returns NULL and sets errno to ENOMEM when there is no memory or the size
 *    exceeds PTRDIFF_MAX; it never aborts for lack of memory;
 *  - a request of 0 bytes returns a unique block that must be freed;
 *  - functions that free preserve errno and accept NULL;
 *  - any thread may call every function at any time, also before constructors run, but not from a signal
 *    handler that may have interrupted one of them;
 *  - misuse (a pointer that is no live block of HAKMEM) prints one line on stderr, with the function, the pointer,
 *    its size class and its owner, and calls abort(). docs/misuse.md says what HAKMEM catches, and when.
 */
#ifndef HAKMEM_HAKMEM_H
#define HAKMEM_HAKMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAK_VERSION_MAJOR 0
#define HAK_VERSION_MINOR 2
#define HAK_VERSION_PATCH 0
#define HAK_VERSION_STRING "0.2.0"

#if defined(HAK_STATIC)
#define HAK_API
#else
#define HAK_API __attribute__((visibility("default")))
#endif
#define HAK_ALLOCATES __attribute__((malloc, warn_unused_result))

#ifdef __cplusplus
#define HAK_NOEXCEPT noexcept
extern "C" {
#else
#define HAK_NOEXCEPT
#endif

/* The version of the library that runs, such as "0.2.0". It may differ from the header's HAK_VERSION_STRING. */
HAK_API const char *hak_version(void) HAK_NOEXCEPT;

/* A program may define this to bring its own settings: names of docs/options.md without HAKMEM_, separated by
 * semicolons. HAKMEM reads them at its first call. A HAKMEM_ variable in the environment overrides them.
 *
 *     const char hakmem_options[] = "PURGE_DELAY=100;THP=never";
 */
extern __attribute__((visibility("default"))) const char hakmem_options[];

/* ---- Blocks: the contracts of malloc, free and their family (C17 7.22.3, POSIX, glibc manual) ---- */

HAK_API HAK_ALLOCATES void *hak_malloc(size_t size) HAK_NOEXCEPT;
HAK_API void hak_free(void *block) HAK_NOEXCEPT;

/* Zeroed; ENOMEM when count * size overflows. */
HAK_API HAK_ALLOCATES void *hak_calloc(size_t count, size_t size) HAK_NOEXCEPT;

/* On failure the old block is untouched. realloc(block, 0) frees the block and returns NULL, as glibc does. */
HAK_API void *hak_realloc(void *block, size_t size) HAK_NOEXCEPT;
HAK_API void *hak_reallocarray(void *block, size_t count, size_t size) HAK_NOEXCEPT;

/* NULL with EINVAL when the alignment is 0 or another number that is no power of two (C17 7.22.3.1). The size need not
 * be a multiple of it. The C library's aligned_alloc does the same. */
HAK_API HAK_ALLOCATES void *hak_aligned_alloc(size_t alignment, size_t size) HAK_NOEXCEPT;

/* Returns 0, EINVAL (not a power of two, or no multiple of sizeof(void *)) or ENOMEM; leaves *block alone and
 * errno untouched on failure. */
HAK_API int hak_posix_memalign(void **block, size_t alignment, size_t size) HAK_NOEXCEPT;

/* How many bytes of the block the program may write: at least the requested size. 0 for NULL. */
HAK_API size_t hak_usable_size(const void *block) HAK_NOEXCEPT;

/* The usable size of a block for this request: a request of that many bytes wastes nothing. A guarded block
 * (hakmem/guard.h) has exactly the requested size, so request all the bytes that the program will use. */
HAK_API size_t hak_good_size(size_t size) HAK_NOEXCEPT;

/* C23 7.24.3.4 and .5: size (and alignment) must be those of the request; a block that cannot be of that size
 * is misuse. */
HAK_API void hak_free_sized(void *block, size_t size) HAK_NOEXCEPT;
HAK_API void hak_free_aligned_sized(void *block, size_t alignment, size_t size) HAK_NOEXCEPT;

/* malloc with a call site. `site` is an address in the caller's code, or NULL for the return address. In the heap
 * profile, a site that is not NULL is the leaf of the stack of a sampled call.
 *
 * While the program runs, HAKMEM learns which sites' blocks outlive most blocks of hak_alloc_at, and when this changes.
 * Later blocks of such a site lie in slabs of their own, so that they pin no memory of blocks that are freed sooner.
 * Their calls and frees cost as much as those of a hak_heap_t; to other calls the learning adds some 15 instructions.
 * It knows up to 1,024 sites, in 56 KiB, and forgets those that are called no longer. Lifetimes are measured in bytes
 * that hak_alloc_at gives out. Blocks above 1 MiB, blocks in a scope (hakmem/scope.h) and all blocks of
 * libhakmem-secure lie where malloc's would. In all else the block is malloc's: hak_heap_of gives NULL. */
HAK_API HAK_ALLOCATES void *hak_alloc_at(size_t size, const void *site) HAK_NOEXCEPT;

/* Grows without moving, and never shrinks. Returns the usable size when it is at least `size`, else 0 with the block
 * unchanged. */
HAK_API size_t hak_expand(void *block, size_t size) HAK_NOEXCEPT;

/* Fills blocks[0..count) with blocks of `size` bytes. Returns how many it got; if fewer, errno is ENOMEM. */
HAK_API size_t hak_malloc_batch(size_t size, size_t count, void **blocks) HAK_NOEXCEPT;

/* Frees blocks[0..count); NULLs are allowed. The array itself is not changed. */
HAK_API void hak_free_batch(void *const *blocks, size_t count) HAK_NOEXCEPT;

/* ---- Giving memory back ---- */

/* Flushes the calling thread's cache and collects the blocks of its heap that other threads freed. With `purge` it
 * also gives every free page of the process back to the system now, without the purge delay. Returns those bytes. */
HAK_API size_t hak_collect(bool purge) HAK_NOEXCEPT;

/* Call it when the thread is about to sleep for long. Flushes its cache and leaves its slabs to other threads. The
 * thread may allocate again at any time. */
HAK_API void hak_thread_idle(void) HAK_NOEXCEPT;

/* HAKMEM calls the handler when a purge leaves the soft memory limit (HAKMEM_MEMORY_LIMIT_SOFT) exceeded, or with
 * `auto` the system short of memory: in any thread that calls HAKMEM, without a lock. The handler may free, and must
 * not wait for another thread. A process has one handler; NULL removes it. Returns the previous one. */
typedef void (*hak_pressure_handler)(size_t bytes_mapped, size_t bytes_limit);
HAK_API hak_pressure_handler hak_set_pressure_handler(hak_pressure_handler handler) HAK_NOEXCEPT;

/* ---- First-class heaps: blocks that live and die together ---- */

typedef struct hak_heap hak_heap_t;

/* A heap of its own slabs. Any thread may allocate in it (calls take the heap's lock) and any thread may free
 * its blocks with hak_free. Returns NULL with ENOMEM. */
HAK_API hak_heap_t *hak_heap_new(void) HAK_NOEXCEPT;
HAK_API HAK_ALLOCATES void *hak_heap_malloc(hak_heap_t *heap, size_t size) HAK_NOEXCEPT;
HAK_API HAK_ALLOCATES void *hak_heap_calloc(hak_heap_t *heap, size_t count, size_t size) HAK_NOEXCEPT;
HAK_API HAK_ALLOCATES void *hak_heap_aligned_alloc(hak_heap_t *heap, size_t alignment, size_t size) HAK_NOEXCEPT;

/* realloc. A block that moves moves into `heap`. */
HAK_API void *hak_heap_realloc(hak_heap_t *heap, void *block, size_t size) HAK_NOEXCEPT;

/* The heap that the block belongs to. NULL: the process's own. */
HAK_API hak_heap_t *hak_heap_of(const void *block) HAK_NOEXCEPT;

/* Frees every block of the heap, and the heap. No other thread may use the heap or its blocks during the call
 * or after it. NULL is allowed. */
HAK_API void hak_heap_destroy(hak_heap_t *heap) HAK_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
