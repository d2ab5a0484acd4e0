/*
 * Protects the functions that glibc 2.36 lacks or hides (C23's sized frees, jemalloc's sdallocx and nallocx, cfree,
 * malloc_good_size) and what HAKMEM promises beyond glibc. Looks the functions up at run time, as programs do that can
 * do without them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            failures++;                                                                                                \
            printf("line %d: not so: %s\n", __LINE__, #condition);                                                     \
        }                                                                                                              \
    } while (0)

static void (*find(const char *name))(void)
{
    void (*function)(void);
    *(void **)&function = dlsym(RTLD_DEFAULT, name);
    if (function == NULL) {
        printf("%s is not there\n", name);
        exit(1);
    }
    return function;
}

static const size_t sizes[] = { 1,    8,     16,    24,    100,   128,    129,     1000,   1024,
                                4000, 20000, 32768, 32769, 60000, 200000, 1048576, 5000000 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

int main(void)
{
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))find("free_sized");
    void (*free_aligned_sized)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))find("free_aligned_sized");
    void (*sdallocx)(void *, size_t, int) = (void (*)(void *, size_t, int))find("sdallocx");
    size_t (*nallocx)(size_t, int) = (size_t(*)(size_t, int))find("nallocx");
    void (*cfree)(void *) = (void (*)(void *))find("cfree");
    size_t (*malloc_good_size)(size_t) = (size_t(*)(size_t))find("malloc_good_size");

    for (int i = 0; i < SIZES; i++) {
        size_t size = sizes[i];
        for (int k = 0; k < 200; k++) {
            void *block = memset(malloc(size), k, size);
            errno = 77;
            switch (k % 4) {
            case 0:
                free_sized(block, size);
                break;
            case 1:
                sdallocx(block, size, 0);
                break;
            case 2:
                cfree(block);
                break;
            default:
                free_sized(block, malloc_usable_size(block));
                break;
            }
            CHECK(errno == 77);
        }
        for (size_t alignment = 16; alignment <= 1 << 21; alignment *= 4) {
            void *block = aligned_alloc(alignment, size);
            CHECK(block != NULL && (uintptr_t)block % alignment == 0);
            memset(block, 1, size);
            free_aligned_sized(block, alignment, size);
            int log = __builtin_ctzl(alignment);
            block = aligned_alloc(alignment, size);
            memset(block, 1, size);
            sdallocx(block, size, log);
            CHECK(nallocx(size, log) >= size);
        }
        void *calloced = calloc(1, size);
        free_sized(calloced, size);
        void *grown = realloc(malloc(1), size);
        free_sized(grown, size);

        size_t good = malloc_good_size(size);
        void *block = malloc(size);
        CHECK(good >= size && malloc_good_size(good) == good);
        CHECK(malloc_usable_size(block) == good);
        CHECK(nallocx(size, 0) == good);
        free(block);
    }
    free_sized(NULL, 5);
    free_aligned_sized(NULL, 64, 5);
    cfree(NULL);

    /* Every block is 16-byte aligned, even the smallest. */
    for (size_t size = 0; size < 16; size++) {
        void *block = malloc(size);
        CHECK((uintptr_t)block % 16 == 0);
        free(block);
    }
    /* posix_memalign reports errors by its result alone. */
    void *place = NULL;
    errno = 77;
    CHECK(posix_memalign(&place, 64, (size_t)PTRDIFF_MAX + 1) == ENOMEM && errno == 77);
    CHECK(posix_memalign(&place, 3, 1) == EINVAL && errno == 77);
    /* C17 7.22.3.1: an alignment that is not supported, because it is no power of two. */
    static const size_t wrong[] = { 0, 3, 5, 24, 48, 4097, SIZE_MAX, ((size_t)1 << 63) + 16 };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        volatile size_t odd = wrong[i]; /* compilers warn of a constant */
        errno = 0;
        CHECK(aligned_alloc(odd, 100) == NULL && errno == EINVAL);
        errno = 0;
        CHECK(aligned_alloc(odd, 0) == NULL && errno == EINVAL);
    }
    malloc_stats();
    puts("done");
    return failures != 0;
}
