/*
 * The bound of what an allocator can save in a program: malloc adds to a pointer, and free does nothing. To preload:
 *
 *     ./hakmem bench --rows '^gcc$' --add bump=build/release/bin/libbench_bump.so
 *
 * Each thread takes 1 MiB at a time of one reservation, on huge pages where the system has them. A process that
 * allocates more than ROOM in its life gets NULL. What a program saves here it saves in calls; what it loses are first
 * touches and cache misses, because no memory is used twice.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROOM ((size_t)5 << 30)
enum { CHUNK = 1 << 20, GRAIN = 16 };

static char *_Atomic base;
static atomic_size_t taken;
static __thread char *next __attribute__((tls_model("initial-exec")));
static __thread char *end __attribute__((tls_model("initial-exec")));

void *memalign(size_t alignment, size_t size);

static char *reserve(void)
{
    char *had = NULL;
    char *got = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (got == MAP_FAILED)
        return NULL;
    madvise(got, ROOM, MADV_HUGEPAGE);
    if (!atomic_compare_exchange_strong(&base, &had, got)) {
        munmap(got, ROOM);
        got = had;
    }
    return got;
}

static void *more(size_t alignment, size_t size)
{
    char *from = atomic_load(&base);
    size_t room = size + GRAIN + alignment < CHUNK ? CHUNK : (size + alignment + 2 * (size_t)CHUNK) / CHUNK * CHUNK;

    if (alignment > ROOM || size > ROOM || (from == NULL && (from = reserve()) == NULL)) {
        errno = ENOMEM;
        return NULL;
    }
    size_t at = atomic_fetch_add(&taken, room);
    if (at + room > ROOM) {
        errno = ENOMEM;
        return NULL;
    }
    next = from + at;
    end = next + room;
    return memalign(alignment, size);
}

/* The word before a block has its size. */
void *memalign(size_t alignment, size_t size)
{
    uintptr_t at = ((uintptr_t)next + GRAIN + alignment - 1) & ~(uintptr_t)(alignment - 1);

    if (next == NULL || at + size > (uintptr_t)end)
        return more(alignment, size);
    size = (size + GRAIN - 1) & ~(size_t)(GRAIN - 1);
    next = (char *)at + size;
    ((size_t *)at)[-1] = size;
    return (void *)at;
}

void *malloc(size_t size) { return memalign(GRAIN, size); }

void free(void *block) { (void)block; }

void *calloc(size_t number, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(number, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return malloc(bytes); /* fresh from the system */
}

size_t malloc_usable_size(void *block) { return block ? ((size_t *)block)[-1] : 0; }

void *realloc(void *block, size_t size)
{
    size_t had = malloc_usable_size(block);
    void *moved;

    if (block && size <= had)
        return block;
    if (block && (char *)block + had == next && (char *)block + size + GRAIN <= end) {
        next = (char *)block + ((size + GRAIN - 1) & ~(size_t)(GRAIN - 1));
        ((size_t *)block)[-1] = (size_t)(next - (char *)block);
        return block;
    }
    moved = malloc(size);
    if (moved && block)
        memcpy(moved, block, had);
    return moved;
}

void *reallocarray(void *block, size_t number, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(number, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size)
{
    void *got = memalign(alignment < GRAIN ? GRAIN : alignment, size);

    if (got == NULL)
        return ENOMEM;
    *block = got;
    return 0;
}

void *valloc(size_t size) { return memalign(4096, size); }
