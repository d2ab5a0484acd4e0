/*
 * The entry points of an allocator: bench/drivers/entries.c measures them, and tests/cost/golden/fastpath_trace.c
 * counts what they execute.
 *
 * A row is X(NAME, THERE, BEFORE, CALL, AFTER): CALL is the call in question, BEFORE and AFTER are the calls that it
 * needs around it, and THERE says whether the allocator has the function. The statements use `size` and the variables
 * of a struct entry_place: `block` is a block of `size` bytes before and after each row.
 */
#ifndef BENCH_ENTRIES_H
#define BENCH_ENTRIES_H

#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct entry_place {
    void *block, *other;
    volatile size_t answer;
};

/* The functions that only some allocators or libraries have. */
static struct {
    void *(*new_one)(size_t), *(*new_aligned)(size_t, size_t);
    void (*delete_one)(void *), (*delete_sized)(void *, size_t), (*delete_aligned)(void *, size_t);
    size_t (*nallocx)(size_t, int), (*sallocx)(const void *, int), (*hak_usable_size)(const void *);
    void (*sdallocx)(void *, size_t, int), (*free_sized)(void *, size_t);
} entry;

static inline void entries_find(void)
{
    /* POSIX makes a function of what dlsym returns by way of the pointer's bytes. */
    *(void **)&entry.new_one = dlsym(RTLD_DEFAULT, "_Znwm");
    *(void **)&entry.new_aligned = dlsym(RTLD_DEFAULT, "_ZnwmSt11align_val_t");
    *(void **)&entry.delete_one = dlsym(RTLD_DEFAULT, "_ZdlPv");
    *(void **)&entry.delete_sized = dlsym(RTLD_DEFAULT, "_ZdlPvm");
    *(void **)&entry.delete_aligned = dlsym(RTLD_DEFAULT, "_ZdlPvSt11align_val_t");
    *(void **)&entry.nallocx = dlsym(RTLD_DEFAULT, "nallocx");
    *(void **)&entry.sallocx = dlsym(RTLD_DEFAULT, "sallocx");
    *(void **)&entry.sdallocx = dlsym(RTLD_DEFAULT, "sdallocx");
    *(void **)&entry.free_sized = dlsym(RTLD_DEFAULT, "free_sized");
    *(void **)&entry.hak_usable_size = dlsym(RTLD_DEFAULT, "hak_usable_size");
}

/* A number of bytes that is at least `size` and a multiple of `step`, a power of two. */
static inline size_t entry_multiple(size_t size, size_t step) { return (size + step - 1) & ~(step - 1); }

/* Those of a bounded number of instructions, except calloc, which fills the block. */
#define ENTRIES_THAT_HIT(X)                                                                                            \
    X(calloc, true, (void)0, at->other = calloc(1, size), free(at->other))                                             \
    X(realloc, true, (void)0, at->block = realloc(at->block, size), (void)0)                                           \
    X(realloc_3_more, true, at->block = realloc(at->block, size - 3), at->block = realloc(at->block, size), (void)0)   \
    X(malloc_usable_size, true, (void)0, at->answer = malloc_usable_size(at->block), (void)0)                          \
    X(aligned_alloc_64, true, (void)0, at->other = aligned_alloc(64, entry_multiple(size, 64)), free(at->other))       \
    X(posix_memalign_32, true, (void)0, at->answer = (size_t)posix_memalign(&at->other, 32, size), free(at->other))    \
    X(memalign_4096, true, (void)0, at->other = memalign(4096, size), free(at->other))                                 \
    X(reallocarray, true, (void)0, at->other = reallocarray(NULL, size, 1), free(at->other))                           \
    X(new, entry.new_one && entry.delete_one, (void)0, at->other = entry.new_one(size), entry.delete_one(at->other))   \
    X(delete, entry.new_one && entry.delete_one, at->other = entry.new_one(size), entry.delete_one(at->other),         \
      (void)0)                                                                                                         \
    X(delete_sized, entry.new_one && entry.delete_sized, at->other = entry.new_one(size),                              \
      entry.delete_sized(at->other, size), (void)0)                                                                    \
    X(nallocx, entry.nallocx, (void)0, at->answer = entry.nallocx(size, 0), (void)0)                                   \
    X(sallocx, entry.sallocx, (void)0, at->answer = entry.sallocx(at->block, 0), (void)0)                              \
    X(hak_usable_size, entry.hak_usable_size, (void)0, at->answer = entry.hak_usable_size(at->block), (void)0)         \
    X(sdallocx, entry.sdallocx, at->other = malloc(size), entry.sdallocx(at->other, size, 0), (void)0)

/* The others. Some of them copy the block; a sequence is what programs call together. */
#define ENTRIES_BESIDE(X)                                                                                              \
    X(malloc, true, (void)0, at->other = malloc(size), free(at->other))                                                \
    X(malloc_and_usable_size, true, at->other = malloc(size), at->answer = malloc_usable_size(at->other),              \
      free(at->other))                                                                                                 \
    X(realloc_half_more, true, at->other = malloc(size), at->other = realloc(at->other, size + size / 2),              \
      free(at->other))                                                                                                 \
    X(realloc_to_third, true, at->other = malloc(size), at->other = realloc(at->other, size / 3 + 1), free(at->other)) \
    X(realloc_four_times, true, at->other = malloc(size), at->other = realloc(at->other, 4 * size), free(at->other))   \
    X(free_sized, entry.free_sized, at->other = malloc(size), entry.free_sized(at->other, size), (void)0)              \
    X(new_aligned_64, entry.new_aligned && entry.delete_aligned, (void)0, at->other = entry.new_aligned(size, 64),     \
      entry.delete_aligned(at->other, 64))

#define ENTRIES(X) ENTRIES_THAT_HIT(X) ENTRIES_BESIDE(X)

#endif
