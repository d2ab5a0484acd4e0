/*
 * Blocks in use while their slabs are scrubbed.
 *
 *   trim SIZE    writes past the end of a block that stays, and calls malloc_trim
 *   wait SIZE    writes so, frees other memory and then waits: the purge thread is to find it
 *   closed SIZE  closes the pages of an aligned block that stays, calls malloc_trim, and opens them again
 *   work MS      threads take, resize, fill and free blocks while another one calls malloc_trim
 *
 * Prints "on" if it goes on after that.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 64, PAGE = 4096, WORKERS = 3, HELD = 40, LEFT = 20000 };

/* A block whose slab is hardly in use. Others of it were freed. */
static char *lonely(size_t size, size_t alignment)
{
    static char *blocks[BLOCKS];

    for (int i = 0; i < BLOCKS; i++)
        if (!(blocks[i] = aligned_alloc(alignment, size)))
            exit(5);
    for (int i = 0; i < BLOCKS; i++) {
        memset(blocks[i], 1, size);
        if (i != BLOCKS / 2)
            free(blocks[i]);
    }
    return blocks[BLOCKS / 2];
}

/* Frees memory that is then due to be purged. */
static void leave_memory(void)
{
    static char *blocks[BLOCKS];

    for (int i = 0; i < BLOCKS; i++)
        if (!(blocks[i] = malloc(LEFT)))
            exit(5);
        else
            memset(blocks[i], 1, LEFT);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

static void pass(char *block, size_t size)
{
    volatile char *byte = block + size + 1;

    *byte ^= *byte == 0x41 ? 1 : 0x41; /* a zero would be left to the block's free */
    fprintf(stderr, "written: %p\n", (void *)block);
}

static atomic_bool over;

static void *work(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    char *held[HELD] = { NULL };
    size_t sizes[HELD] = { 0 };

    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        int i = rand_r(&state) % HELD;
        size_t size = (size_t)(rand_r(&state) % (rand_r(&state) % 4 ? 900 : 50000)) + 1;
        /* Many resizes to and fro within one block. */
        if (held[i] && rand_r(&state) % 4)
            size = sizes[i] > 8 && rand_r(&state) % 2 ? sizes[i] - 8 : sizes[i] + 8;
        else if (held[i]) {
            free(held[i]);
            held[i] = NULL;
        }
        if (!(held[i] = realloc(held[i], size)))
            exit(5);
        memset(held[i], 0x77, size);
        sizes[i] = size;
    }
    for (int i = 0; i < HELD; i++)
        free(held[i]);
    return NULL;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1000 + (double)time.tv_nsec / 1e6;
}

static void work_for(double ms)
{
    pthread_t threads[WORKERS];
    double end = now() + ms;

    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1)))
            exit(5);
    while (now() < end)
        malloc_trim(0);
    atomic_store(&over, 1);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    size_t number = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    void *volatile other; /* the compiler would leave out a call that nobody needs */
    char *block;

    if (number == 0)
        return 2;
    alarm(1200); /* ends a hang */
    if (!strcmp(argv[1], "work")) {
        work_for((double)number);
    } else if (!strcmp(argv[1], "closed")) {
        block = lonely(number, PAGE);
        if (mprotect(block, (number + PAGE - 1) / PAGE * PAGE, PROT_NONE))
            return 5;
        malloc_trim(0);
        if (mprotect(block, (number + PAGE - 1) / PAGE * PAGE, PROT_READ | PROT_WRITE))
            return 5;
        free(block);
    } else {
        block = lonely(number, 16);
        if (!strcmp(argv[1], "trim")) {
            pass(block, number);
            malloc_trim(0);
        } else {
            malloc_trim(0);
            pass(block, number);
            other = malloc(number);
            free((void *)other); /* the slab changes, so it is scrubbed again */
            leave_memory();
            sleep(1100);
        }
    }
    puts("on");
    return 0;
}
