/* Clang's entry points with tokens: types with and without pointers share no slab. Each function ends as usual. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            printf("line %d: %s\n", __LINE__, #condition);                 \
            return 1;                                                      \
        }                                                                  \
    } while (0)

void *__alloc_token_malloc(size_t, size_t), *__alloc_token_calloc(size_t, size_t, size_t),
    *__alloc_token_realloc(void *, size_t, size_t);
void *__alloc_token_reallocarray(void *, size_t, size_t, size_t), *__alloc_token_aligned_alloc(size_t, size_t, size_t);
void *__alloc_token_memalign(size_t, size_t, size_t), *__alloc_token_valloc(size_t, size_t),
    *__alloc_token_pvalloc(size_t, size_t);
int __alloc_token_posix_memalign(void **, size_t, size_t, size_t);
void *__alloc_token_0_malloc(size_t), *__alloc_token_1_malloc(size_t), *__alloc_token_0_calloc(size_t, size_t);
void *__alloc_token__Znwm(size_t, size_t), *__alloc_token__Znam(size_t, size_t), *__alloc_token_0__Znwm(size_t),
    *__alloc_token_1__Znam(size_t);
void *__alloc_token__ZnwmSt11align_val_t(size_t, size_t, size_t),
    *__alloc_token__ZnwmRKSt9nothrow_t(size_t, const void *, size_t);
void _ZdlPv(void *), _ZdaPv(void *), _ZdlPvSt11align_val_t(void *, size_t);
size_t malloc_usable_size(void *);

enum { COUNT = 3000 };
static const size_t DATA = 12345, POINTERS = SIZE_MAX - 12345;
static char *data[COUNT], *pointers[COUNT];

static int unit_of(const void *a, const void *b)
{
    uintptr_t one = *(const uintptr_t *)a >> 16, other = *(const uintptr_t *)b >> 16;
    return one < other ? -1 : one > other;
}

/* No 64 KiB hold blocks of both kinds. */
static int apart(void)
{
    qsort(data, COUNT, sizeof *data, unit_of);
    for (int i = 0; i < COUNT; i++)
        if (bsearch(&pointers[i], data, COUNT, sizeof *data, unit_of))
            return 0;
    return 1;
}

static int all_ways(void)
{
    void *block;
    char *bytes;

    CHECK(posix_memalign(&block, 64, 10) == 0);
    free(block);
    CHECK(__alloc_token_posix_memalign(&block, 64, 100, DATA) == 0 && (uintptr_t)block % 64 == 0);
    free(block);
    CHECK(__alloc_token_posix_memalign(&block, 3, 100, DATA) != 0);
    bytes = __alloc_token_calloc(10, 100, DATA);
    for (int i = 0; i < 1000; i++)
        CHECK(bytes[i] == 0);
    strcpy(bytes, "kept");
    CHECK(malloc_usable_size(bytes) == 1000);
    bytes = __alloc_token_realloc(bytes, 70000, DATA);
    CHECK(!strcmp(bytes, "kept") && malloc_usable_size(bytes) == 70000);
    bytes = __alloc_token_reallocarray(bytes, 300, 10000, DATA);
    CHECK(!strcmp(bytes, "kept"));
    free(bytes);
    CHECK(__alloc_token_calloc(SIZE_MAX / 2, 3, DATA) == NULL && __alloc_token_malloc(SIZE_MAX, DATA) == NULL);
    free(__alloc_token_realloc(NULL, 50, DATA));
    free(__alloc_token_malloc(0, DATA));
    for (size_t token = 0; token < 3; token++) {
        size_t which = token == 0 ? 0 : token == 1 ? DATA : POINTERS;
        CHECK((uintptr_t)(block = __alloc_token_aligned_alloc(4096, 100, which)) % 4096 == 0);
        free(block);
        CHECK((uintptr_t)(block = __alloc_token_memalign(256, 100, which)) % 256 == 0);
        free(block);
        CHECK((uintptr_t)(block = __alloc_token_valloc(100, which)) % 4096 == 0);
        free(block);
        CHECK((uintptr_t)(block = __alloc_token_pvalloc(100, which)) % 4096 == 0 && malloc_usable_size(block) == 4096);
        free(block);
        _ZdlPv(__alloc_token__Znwm(100, which));
        _ZdaPv(__alloc_token__Znam(5000, which));
        _ZdlPv(__alloc_token__ZnwmRKSt9nothrow_t(100000, "", which));
        _ZdlPvSt11align_val_t(__alloc_token__ZnwmSt11align_val_t(100, 128, which), 128);
        free(__alloc_token_malloc(3000000, which));
    }
    _ZdlPv(__alloc_token_0__Znwm(10));
    _ZdaPv(__alloc_token_1__Znam(10));
    free(__alloc_token_0_calloc(10, 10));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "double")) {
        char *volatile block = __alloc_token_malloc(100, DATA);
        free(block);
        free(block);
    } else if (argc > 1 && !strcmp(argv[1], "overflow")) {
        char *volatile block = __alloc_token_malloc(100, DATA);
        block[100] = 'x';
        free(block);
    } else if (argc > 1 && !strcmp(argv[1], "mixed")) {
        free(__alloc_token__Znwm(100, DATA));
    }
    for (int fast = 0; fast < 2; fast++) {
        for (int i = 0; i < COUNT; i++) {
            size_t size = (size_t)(i * 37 % 2000 + 1);
            data[i] = fast ? __alloc_token_0_malloc(size) : __alloc_token_malloc(size, DATA);
            pointers[i] = fast ? __alloc_token_1_malloc(size) : __alloc_token_malloc(size, i % 2 ? POINTERS : 0);
            memset(data[i], 1, size);
            memset(pointers[i], 2, size);
        }
        CHECK(apart());
        for (int i = 0; i < COUNT; i++) {
            free(data[i]);
            free(pointers[i]);
        }
    }
    if (all_ways())
        return 1;
    puts("apart");
    return 0;
}
