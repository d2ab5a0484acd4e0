/*
 * An allocator that defines some allocation functions and lacks others: -DHAS_name compiles each in. It is linked into
 * the program, or preloaded before HAKMEM. Two kinds:
 *   own       blocks out of an arena, with a header of their own; a foreign block ends the program
 *   -DWRAPPER calls the next object's functions (RTLD_NEXT) and counts the calls, as tracers do
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The test reads these to learn whether the functions were called. */
_Atomic unsigned long interposed_allocations, interposed_frees;

#define UNUSED __attribute__((unused))

#ifndef WRAPPER

enum { ARENA = 512 << 20, MAGIC = 0x6f776e21 };

struct header {
    uint64_t magic; /* the block's address with MAGIC */
    uint64_t size;
};

static char arena[ARENA] __attribute__((aligned(4096)));
static _Atomic size_t used;

UNUSED static void *take(size_t alignment, size_t size)
{
    size_t room = size > ARENA ? 0 : (size + alignment + sizeof(struct header) + 15) & ~(size_t)15;
    size_t at = atomic_fetch_add(&used, room);
    uintptr_t block = ((uintptr_t)arena + at + sizeof(struct header) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (room == 0 || at + room > ARENA) {
        errno = ENOMEM;
        return NULL;
    }
    struct header *header = (struct header *)block - 1;
    header->magic = block ^ MAGIC;
    header->size = size;
    atomic_fetch_add(&interposed_allocations, 1);
    return (void *)block;
}

UNUSED static struct header *header_of(void *block, const char *function)
{
    uintptr_t address = (uintptr_t)block;
    struct header *header = (struct header *)block - 1;
    if (address < (uintptr_t)arena || address >= (uintptr_t)arena + ARENA || header->magic != (address ^ MAGIC)) {
        char line[100];
        int length = snprintf(line, sizeof line, "own %s(%p): not my block\n", function, block);
        if (write(2, line, (size_t)length) != length)
            _exit(3);
        _exit(2);
    }
    return header;
}

UNUSED static void give(void *block, const char *function)
{
    if (block == NULL)
        return;
#ifdef TOLERANT
    if ((uintptr_t)block < (uintptr_t)arena || (uintptr_t)block >= (uintptr_t)arena + ARENA)
        return;
#endif
    struct header *header = header_of(block, function);
    header->magic = 0;
    memset(block, 0x5a, header->size);
    atomic_fetch_add(&interposed_frees, 1);
}

UNUSED static void *again(void *block, size_t size)
{
    void *fresh = take(16, size);
    if (block == NULL || fresh == NULL)
        return fresh;
    size_t old = header_of(block, "realloc")->size;
    memcpy(fresh, block, old < size ? old : size);
    give(block, "realloc");
    return fresh;
}

#else

/* The next object's function. */
#define NEXT(type, name)                              \
    static __typeof__(type) *next;                    \
    if (next == NULL) {                               \
        void *found = dlsym(RTLD_NEXT, name);         \
        memcpy(&next, &found, sizeof next);           \
    }

#endif

#ifndef WRAPPER

#ifdef HAS_malloc
void *malloc(size_t size) { return take(16, size); }
#endif
#ifdef HAS_free
void free(void *block) { give(block, "free"); }
#endif
#ifdef HAS_calloc
void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return take(16, bytes); /* arena memory is zero, because it is never used twice */
}
#endif
#ifdef HAS_realloc
void *realloc(void *block, size_t size) { return again(block, size); }
#endif
#ifdef HAS_reallocarray
void *reallocarray(void *block, size_t count, size_t size) { return again(block, count * size); }
#endif
#ifdef HAS_memalign
void *memalign(size_t alignment, size_t size) { return take(alignment < 16 ? 16 : alignment, size); }
#endif
#ifdef HAS_aligned_alloc
void *aligned_alloc(size_t alignment, size_t size) { return take(alignment < 16 ? 16 : alignment, size); }
#endif
#ifdef HAS_posix_memalign
int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = take(alignment < 16 ? 16 : alignment, size);
    return *block == NULL ? ENOMEM : 0;
}
#endif
#ifdef HAS_valloc
void *valloc(size_t size) { return take(4096, size); }
#endif
#ifdef HAS_pvalloc
void *pvalloc(size_t size) { return take(4096, (size + 4095) & ~(size_t)4095); }
#endif
#ifdef HAS_malloc_usable_size
size_t malloc_usable_size(void *block) { return block == NULL ? 0 : header_of(block, "malloc_usable_size")->size; }
#endif

/* Operators. Their blocks lie 16 bytes further on than malloc's, so that a free of one is noticed. */
UNUSED static void *new_block(size_t alignment, size_t size)
{
    char *block = take(alignment, size + alignment);
    if (block == NULL)
        return NULL; /* the test requests this only with nothrow */
    ((struct header *)(block + alignment) - 1)->magic = 0x6e6577; /* "new" */
    ((struct header *)(block + alignment) - 1)->size = alignment;
    return block + alignment;
}

UNUSED static void delete_block(void *block)
{
    if (block == NULL)
        return;
    struct header *header = (struct header *)block - 1;
    if ((uintptr_t)block < (uintptr_t)arena || (uintptr_t)block >= (uintptr_t)arena + ARENA ||
        header->magic != 0x6e6577)
        header_of(NULL, "operator delete");
    header->magic = 0;
    give((char *)block - header->size, "operator delete");
}

#ifdef HAS_new
void *_Znwm(size_t size) { return new_block(16, size); }
void _ZdlPv(void *block) { delete_block(block); }
#endif
#ifdef HAS_new_array
void *_Znam(size_t size) { return new_block(16, size); }
void _ZdaPv(void *block) { delete_block(block); }
#endif
#ifdef HAS_new_aligned
void *_ZnwmSt11align_val_t(size_t size, size_t alignment) { return new_block(alignment < 16 ? 16 : alignment, size); }
void _ZdlPvSt11align_val_t(void *block, size_t alignment)
{
    (void)alignment;
    delete_block(block);
}
#endif

#else /* WRAPPER */

#ifdef HAS_malloc
void *malloc(size_t size)
{
    NEXT(malloc, "malloc")
    atomic_fetch_add(&interposed_allocations, 1);
    return next(size);
}
#endif
#ifdef HAS_free
void free(void *block)
{
    NEXT(free, "free")
    atomic_fetch_add(&interposed_frees, block != NULL);
    next(block);
}
#endif
#ifdef HAS_calloc
void *calloc(size_t count, size_t size)
{
    NEXT(calloc, "calloc")
    atomic_fetch_add(&interposed_allocations, 1);
    return next(count, size);
}
#endif
#ifdef HAS_realloc
void *realloc(void *block, size_t size)
{
    NEXT(realloc, "realloc")
    atomic_fetch_add(&interposed_allocations, 1);
    return next(block, size);
}
#endif
#ifdef HAS_posix_memalign
int posix_memalign(void **block, size_t alignment, size_t size)
{
    NEXT(posix_memalign, "posix_memalign")
    atomic_fetch_add(&interposed_allocations, 1);
    return next(block, alignment, size);
}
#endif
#ifdef HAS_aligned_alloc
void *aligned_alloc(size_t alignment, size_t size)
{
    NEXT(aligned_alloc, "aligned_alloc")
    atomic_fetch_add(&interposed_allocations, 1);
    return next(alignment, size);
}
#endif
/* One function calls the other, and the calls must not form a loop. */
#ifdef HAS_posix_memalign_by_aligned_alloc
int posix_memalign(void **block, size_t alignment, size_t size)
{
    atomic_fetch_add(&interposed_allocations, 1);
    *block = aligned_alloc(alignment, size);
    return *block == NULL ? ENOMEM : 0;
}
#endif
#ifdef HAS_new
void *_Znwm(size_t size)
{
    NEXT(malloc, "_Znwm")
    atomic_fetch_add(&interposed_allocations, 1);
    return next(size);
}
void _ZdlPv(void *block)
{
    NEXT(free, "_ZdlPv")
    atomic_fetch_add(&interposed_frees, block != NULL);
    next(block);
}
#endif

#endif
