/*
 * limits SIZE WANTED [MOST]: allocates blocks of SIZE bytes, written in full, until allocation fails, or up to MOST
 * MiB. It must fail with ENOMEM before 4 GiB, and at least WANTED MiB must succeed. Then frees half, allocates again,
 * starts threads, and ends normally.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>

#include "work.h"

static void *run(void *argument)
{
    struct work_block blocks[50] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)argument;

    for (int i = 0; i < 500; i++) {
        struct work_block *block = &blocks[work_next(&state) % 50];
        if (block->start) {
            work_drop(block);
        } else {
            block->size = work_next(&state) % 20000 + 1;
            block->start = malloc(block->size);
            if (!block->start)
                fail("malloc in a thread");
            memset(block->start, (int)block->size, block->size);
        }
    }
    work_drop_all(blocks, 50);
    return NULL;
}

static long allocate(char **chain, size_t size, long most)
{
    long got = 0;

    while (got < most) {
        char *block = work_chain(chain, size);
        if (!block)
            break;
        memset(block + sizeof(*chain), 0x5a, size - sizeof(*chain));
        if ((size_t)++got * size > (size_t)4 << 30)
            fail("no limit in sight");
    }
    return got;
}

static long release(char **chain, long count, size_t size)
{
    long freed = 0;

    while (freed < count && *chain) {
        work_unchain(chain, size);
        freed++;
    }
    return freed;
}

int main(int argc, char **argv)
{
    pthread_t threads[4];
    char *chain = NULL;

    if (argc < 3)
        return 2;
    size_t size = (size_t)atol(argv[1]);
    long wanted = (long)(((size_t)atol(argv[2]) << 20) / size);
    long most = argc > 3 ? (long)(((size_t)atol(argv[3]) << 20) / size) : 1L << 40;
    long got = allocate(&chain, size, most);
    dprintf(1, "%ld MiB\n", (long)((size_t)got * size >> 20));
    if (got < wanted)
        fail("too little could be had");
    if (most == 1L << 40) {
        errno = 0;
        char *larger = realloc(chain, (size_t)1 << 40);
        if (larger || errno != ENOMEM)
            fail("realloc past the limit");
        if (calloc(1, (size_t)1 << 40) || errno != ENOMEM)
            fail("calloc past the limit");
    }
    release(&chain, got / 2, size);
    long again = allocate(&chain, size, got / 4);
    if (again < got / 4)
        fail("freed memory cannot be had again");
    release(&chain, got, size);
    if (chain)
        fail("the chain of blocks");
    malloc_trim(0);
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i))
            fail("pthread_create");
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    /* One block of another size takes a quarter of it: freed memory is not bound to its old size. */
    void *other = malloc((size_t)got * size / 4);
    if (!other)
        fail("freed memory cannot be had in one block");
    free(other);
    puts("done");
    return 0;
}
