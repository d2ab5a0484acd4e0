/*
 * Protects the contract of each allocation function of glibc (glibc manual "Replacing malloc", C17 7.22.3, POSIX). The
 * program prints the same on glibc and on any drop-in replacement: a line for each part. Exit status 1 means that a
 * check failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            failures++;                                                                                                \
            printf("line %d: not so: %s\n", __LINE__, #condition);                                                     \
        }                                                                                                              \
    } while (0)

enum { MANY = 2000 };

/* The next size to check: all small sizes, then those around each power of two up to 64 MiB. */
static size_t next_size(size_t size)
{
    if (size < 1100)
        return size + 1;
    size_t power = (size_t)1 << (63 - __builtin_clzl(size));
    size_t steps[] = { power,         power + 1, power + power / 3, power + power / 2, 2 * power - 4096,
                       2 * power - 1, 2 * power };
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        if (steps[i] > size)
            return steps[i];
    return 2 * power;
}

enum { LARGEST = 64 << 20 };

static void fill(unsigned char *block, size_t size, unsigned seed)
{
    memset(block, (int)(seed & 0xff), size);
}

static int holds(const unsigned char *block, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        if (block[i] != (seed & 0xff))
            return 0;
    return 1;
}

static void check_malloc(void)
{
    for (size_t size = 0; size <= LARGEST; size = next_size(size)) {
        unsigned char *block = malloc(size);
        CHECK(block != NULL);
        CHECK((uintptr_t)block % 16 == 0);
        size_t usable = malloc_usable_size(block);
        CHECK(usable >= size);
        fill(block, usable, 0xa5);
        CHECK(holds(block, usable < 100000 ? usable : 100000, 0xa5));
        free(block);
    }
    void *zero[MANY];
    for (int i = 0; i < MANY; i++)
        zero[i] = malloc(0);
    for (int i = 0; i < MANY; i++)
        for (int j = 0; j < i; j++)
            if (zero[i] == NULL || zero[i] == zero[j])
                CHECK(!"malloc(0) is not NULL and unique");
    for (int i = 0; i < MANY; i++)
        free(zero[i]);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
    puts("malloc");
}

static void check_too_large(void)
{
    volatile size_t huge[] = { (size_t)PTRDIFF_MAX + 1, SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX - 16, (size_t)1 << 62 };
    void *block = malloc(100);
    fill(block, 100, 7);
    for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++) {
        errno = 0;
        CHECK(malloc(huge[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(calloc(1, huge[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(realloc(block, huge[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(realloc(NULL, huge[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(memalign(64, huge[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(aligned_alloc(4096, huge[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(valloc(huge[i]) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(pvalloc(huge[i]) == NULL && errno == ENOMEM);
        void *place = &failures;
        CHECK(posix_memalign(&place, 64, huge[i]) == ENOMEM && place == &failures);
    }
    CHECK(holds(block, 100, 7));
    free(block);
    puts("too large");
}

static void check_overflow(void)
{
    volatile size_t half = (size_t)1 << 33;
    volatile size_t most = SIZE_MAX;
    void *block = malloc(10);
    fill(block, 10, 3);
    errno = 0;
    CHECK(calloc(half, half) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(calloc(most, 2) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(calloc(2, most / 2 + 1) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(NULL, half, half) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(block, half, half) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(block, most / 16, 17) == NULL && errno == ENOMEM);
    CHECK(holds(block, 10, 3));
    block = reallocarray(block, 100, 50);
    CHECK(block != NULL && malloc_usable_size(block) >= 5000 && holds(block, 10, 3));
    free(block);
    void *empty = calloc(0, 5);
    void *other = calloc(5, 0);
    CHECK(empty != NULL && other != NULL && empty != other);
    free(empty);
    free(other);
    puts("overflow");
}

static void check_calloc(void)
{
    for (int round = 0; round < 3; round++) {
        for (size_t size = 1; size <= LARGEST / 4; size = next_size(size)) {
            unsigned char *dirty = malloc(size);
            fill(dirty, malloc_usable_size(dirty), 0xff);
            free(dirty);
            unsigned char *block = calloc(1, size);
            CHECK(block != NULL && holds(block, size, 0));
            fill(block, size, 0xee);
            free(block);
        }
    }
    unsigned char *blocks[MANY];
    for (int i = 0; i < MANY; i++)
        blocks[i] = memset(malloc((size_t)i * 37 % 5000 + 1), 0x77, (size_t)i * 37 % 5000 + 1);
    for (int i = 0; i < MANY; i++)
        free(blocks[i]);
    for (int i = 0; i < MANY; i++) {
        size_t size = (size_t)i * 41 % 5000 + 1;
        blocks[i] = calloc(size, 1);
        CHECK(holds(blocks[i], size, 0));
    }
    for (int i = 0; i < MANY; i++)
        free(blocks[i]);
    puts("calloc");
}

static void check_realloc(void)
{
    unsigned char *block = realloc(NULL, 1);
    CHECK(block != NULL);
    block[0] = 1;
    size_t old = 1;
    for (size_t size = 2; size <= LARGEST; size = next_size(size)) {
        block = realloc(block, size);
        CHECK(block != NULL && (uintptr_t)block % 16 == 0 && malloc_usable_size(block) >= size);
        size_t seen = old < 5000 ? old : 5000;
        CHECK(holds(block, seen, 1) && block[old - 1] == 1);
        memset(block + old, 1, size - old);
        old = size;
    }
    while (old > 1) {
        size_t size = old / 2 + old / 7;
        if (size >= old)
            size = old - 1;
        block = realloc(block, size);
        CHECK(block != NULL && malloc_usable_size(block) >= size);
        CHECK(holds(block, size < 5000 ? size : 5000, 1) && block[size - 1] == 1);
        old = size;
    }
    /* glibc frees the block. */
    CHECK(realloc(block, 0) == NULL);
    void *empty = realloc(NULL, 0);
    CHECK(empty != NULL);
    free(empty);
    for (size_t alignment = 32; alignment <= 65536; alignment *= 2) {
        unsigned char *aligned = aligned_alloc(alignment, 3 * alignment);
        fill(aligned, 3 * alignment, 9);
        aligned = realloc(aligned, 7 * alignment);
        CHECK(aligned != NULL && holds(aligned, 3 * alignment, 9));
        aligned = realloc(aligned, alignment);
        CHECK(aligned != NULL && holds(aligned, alignment, 9));
        free(aligned);
    }
    puts("realloc");
}

static void check_alignment(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    static const size_t sizes[] = { 0, 1, 7, 16, 100, 1000, 4096, 5000, 33000, 70000, 300000, 1100000, 5000000 };
    for (size_t alignment = 8; alignment <= (size_t)4 << 20; alignment *= 2) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            unsigned char *blocks[4] = { aligned_alloc(alignment, sizes[i]), memalign(alignment, sizes[i]), NULL,
                                         NULL };
            void *place = NULL;
            CHECK(posix_memalign(&place, alignment, sizes[i]) == 0);
            blocks[2] = place;
            blocks[3] = aligned_alloc(alignment, sizes[i] + alignment);
            for (int k = 0; k < 4; k++) {
                CHECK(blocks[k] != NULL && (uintptr_t)blocks[k] % alignment == 0);
                CHECK(malloc_usable_size(blocks[k]) >= sizes[i]);
                fill(blocks[k], malloc_usable_size(blocks[k]), (unsigned)k + 1);
            }
            for (int k = 0; k < 4; k++) {
                CHECK(holds(blocks[k], sizes[i], (unsigned)k + 1));
                free(blocks[k]);
            }
        }
    }
    void *place = &failures;
    CHECK(posix_memalign(&place, 0, 10) == EINVAL && place == &failures);
    CHECK(posix_memalign(&place, 4, 10) == EINVAL && place == &failures);
    CHECK(posix_memalign(&place, 24, 10) == EINVAL && place == &failures);
    CHECK(posix_memalign(&place, 3 * sizeof(void *), 10) == EINVAL && place == &failures);
    void *v = valloc(10);
    CHECK(v != NULL && (uintptr_t)v % page == 0);
    void *p = pvalloc(page + 1);
    CHECK(p != NULL && (uintptr_t)p % page == 0 && malloc_usable_size(p) >= 2 * page);
    fill(p, 2 * page, 1);
    free(v);
    free(p);
    puts("alignment");
}

static void check_errno(void)
{
    for (size_t size = 0; size <= LARGEST; size = next_size(size)) {
        void *block = malloc(size);
        errno = 12345;
        free(block);
        if (errno != 12345)
            CHECK(!"free preserves errno");
    }
    errno = 12345;
    free(NULL);
    CHECK(errno == 12345);
    puts("errno");
}

static size_t in_use(struct mallinfo2 info)
{
    return info.uordblks + info.hblkhd;
}

static void check_mallinfo(void)
{
    enum { BLOCK = 10000 };
    void *blocks[MANY];
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < MANY; i++)
        blocks[i] = memset(malloc(BLOCK), 1, BLOCK);
    struct mallinfo2 full = mallinfo2();
    CHECK(in_use(full) >= in_use(before) + (size_t)MANY * BLOCK);
    CHECK(in_use(full) <= in_use(before) + (size_t)MANY * BLOCK * 5 / 4 + (2 << 20));
    CHECK(full.arena + full.hblkhd >= in_use(full));
    for (int i = 0; i < MANY; i++)
        free(blocks[i]);
    struct mallinfo2 after = mallinfo2();
    CHECK(in_use(after) <= in_use(before) + (2 << 20));
    CHECK(after.arena >= after.uordblks);
    CHECK(after.fordblks <= after.arena);
    void *large = malloc(40 << 20);
    struct mallinfo2 with = mallinfo2();
    CHECK(with.hblks == after.hblks + 1);
    CHECK(with.hblkhd >= after.hblkhd + (40 << 20) && with.hblkhd <= after.hblkhd + (42 << 20));
    free(large);
    CHECK(mallinfo2().hblks == after.hblks);
    struct mallinfo small = mallinfo();
    CHECK((size_t)small.uordblks <= mallinfo2().uordblks + 65536 &&
          (size_t)small.uordblks + 65536 >= mallinfo2().uordblks);
    puts("mallinfo");
}

static size_t resident(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*u %zu", &pages) != 1)
        CHECK(!"/proc/self/statm can be read");
    if (file != NULL)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void check_trim(void)
{
    enum { BLOCK = 3000, COUNT = 30000 };
    static void *blocks[COUNT];
    malloc_trim(0);
    size_t before = resident();
    for (int i = 0; i < COUNT; i++)
        blocks[i] = memset(malloc(BLOCK), 1, BLOCK);
    CHECK(resident() >= before + (size_t)BLOCK * COUNT * 9 / 10);
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    malloc_trim(0);
    CHECK(resident() <= before + (4 << 20));
    int result = malloc_trim(0);
    CHECK(result == 0 || result == 1);
    CHECK(mallopt(M_ARENA_MAX, 1) == 1);
    puts("trim");
}

static void check_info(void)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    CHECK(malloc_info(0, stream) == 0);
    fclose(stream);
    CHECK(length > 20 && strstr(text, "<malloc") != NULL && strstr(text, "</malloc>") != NULL);
    free(text);
    CHECK(malloc_info(1, stdout) == EINVAL);
    puts("info");
}

int main(void)
{
    check_malloc();
    check_too_large();
    check_overflow();
    check_calloc();
    check_realloc();
    check_alignment();
    check_errno();
    check_mallinfo();
    check_trim();
    check_info();
    return failures != 0;
}
