/* known: makes calls that test_record.py counts. known empty: makes none, which shows libc's own calls. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void need(int holds)
{
    if (!holds)
        _exit(9);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "empty") == 0)
        return 0;
    char *blocks[10];
    for (int i = 0; i < 10; i++) {
        blocks[i] = malloc(100);
        need(blocks[i] != NULL);
    }
    for (int i = 0; i < 10; i++)
        free(blocks[i]);
    for (int i = 0; i < 3; i++) {
        char *zeros = calloc(5, 20);
        need(zeros != NULL && zeros[99] == 0);
        free(zeros);
    }
    char *grown = realloc(NULL, 50);
    need(grown != NULL);
    memset(grown, 'x', 50);
    grown = realloc(grown, 5000);
    need(grown != NULL && grown[49] == 'x');
    grown = reallocarray(grown, 10, 300);
    need(grown != NULL && grown[49] == 'x');
    volatile size_t too_much = SIZE_MAX / 4;
    /* A failed call leaves the block unchanged. The compiler must not assume otherwise. */
    void *(*volatile resize)(void *, size_t) = realloc;
    void *(*volatile resize_array)(void *, size_t, size_t) = reallocarray;
    need(resize(grown, too_much) == NULL);
    need(resize_array(grown, too_much, 100) == NULL);
    need(resize(grown, 0) == NULL);
    need(malloc(too_much) == NULL);

    void *aligned = NULL;
    need(posix_memalign(&aligned, 64, 1000) == 0 && (uintptr_t)aligned % 64 == 0);
    void *others[] = {aligned_alloc(4096, 8192), memalign(32, 10), valloc(10), pvalloc(10)};
    need(malloc_usable_size(others[0]) >= 8192);
    for (int i = 0; i < 4; i++) {
        need(others[i] != NULL);
        free(others[i]);
    }
    free(aligned);
    free(NULL);
    free(NULL);
    /* 7 blocks stay: 3 MiB and 4 x 1000 bytes at the peak. The last two are given back. */
    void *held[7];
    for (int i = 0; i < 7; i++)
        held[i] = malloc(i < 3 ? 1 << 20 : 1000);
    free(held[0]);
    free(held[6]);
    return 0;
}
