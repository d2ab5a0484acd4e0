// Tells which shared object serves each allocation function of a process, and uses them.
//
// Prints "NAME OBJECT" for every function; OBJECT is "-" if the process has no function of that name. Then prints "ok"
// if blocks keep their contents, alignment and zeros on four threads that free each other's blocks. Run it with a
// library preloaded: any program gets the same functions.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const functions[] = {
    "malloc", "free", "calloc", "realloc", "aligned_alloc", "posix_memalign", "memalign", "malloc_usable_size",
    // operator new, new[], delete, delete[]; then sized delete, aligned new and aligned delete
    "_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZnwmSt11align_val_t", "_ZdlPvSt11align_val_t",
};

enum { THREADS = 4, BLOCKS = 4000 };

struct block {
    unsigned char *start;
    size_t size;
};

static struct block blocks[THREADS][BLOCKS];
static pthread_barrier_t all_made;

static void fail(const char *what, size_t size)
{
    fprintf(stderr, "probe: %s of %zu bytes\n", what, size);
    exit(1);
}

// The compiler trusts aligned_alloc to align and would leave the check out: it must not see where the address is from.
static int is_aligned(const void *start, size_t alignment)
{
    volatile uintptr_t address = (uintptr_t)start;
    return address % alignment == 0;
}

static unsigned char *make_block(int way, size_t size, unsigned char mark)
{
    unsigned char *start = NULL;
    if (way == 0) {
        start = malloc(size);
    } else if (way == 1) {
        start = calloc(1, size);
        for (size_t i = 0; start && i < size; i++) {
            if (start[i] != 0) {
                fail("calloc does not clear a block", size);
            }
        }
    } else if (way == 2) {
        start = aligned_alloc(256, (size + 255) / 256 * 256);
        if (!is_aligned(start, 256)) {
            fail("aligned_alloc misaligns a block", size);
        }
    } else {
        unsigned char *half = malloc(size / 2 + 1);
        if (half) {
            memset(half, mark, size / 2 + 1);
            start = realloc(half, size + 1);
            if (start && (start[0] != mark || start[size / 2] != mark)) {
                fail("realloc loses the contents of a block", size);
            }
        }
    }
    if (!start) {
        fail("no memory for a block", size);
    }
    if (size >= _Alignof(max_align_t) && !is_aligned(start, _Alignof(max_align_t))) {
        fail("misaligned block", size);
    }
    if (malloc_usable_size(start) < size) {
        fail("malloc_usable_size is too small for a block", size);
    }
    memset(start, mark, size);
    return start;
}

static void *use_blocks(void *argument)
{
    size_t self = (size_t)(uintptr_t)argument;
    uint32_t random = 12345 + (uint32_t)self;
    for (size_t i = 0; i < BLOCKS; i++) {
        random = random * 1664525 + 1013904223;
        size_t size = (random >> 8) % (i % 100 == 0 ? 300000 : 1500) + 1;
        blocks[self][i] = (struct block){make_block((int)(i % 4), size, (unsigned char)(self + i)), size};
    }
    pthread_barrier_wait(&all_made);
    size_t other = (self + 1) % THREADS;
    for (size_t i = 0; i < BLOCKS; i++) {
        struct block block = blocks[other][i];
        for (size_t byte = 0; byte < block.size; byte++) {
            if (block.start[byte] != (unsigned char)(other + i)) {
                fail("changed contents in a block", block.size);
            }
        }
        free(block.start);
    }
    return NULL;
}

int main(void)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *address = dlsym(RTLD_DEFAULT, functions[i]);
        Dl_info info;
        printf("%s %s\n", functions[i], address && dladdr(address, &info) ? info.dli_fname : "-");
    }
    pthread_t threads[THREADS];
    pthread_barrier_init(&all_made, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, use_blocks, (void *)(uintptr_t)i) != 0) {
            fputs("probe: pthread_create failed\n", stderr);
            return 1;
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    puts("ok");
    return 0;
}
