/*
 * Blocks of all kinds, threads that free each other's blocks, short-lived threads, and forks of a process with threads.
 * Prints "ok" if each byte kept its value, and mallinfo2's figures if it exists.
 *
 * use ROUNDS [alone]
 *
 * alone: forks only while the process has one thread, because qemu's user mode hangs in forks beside threads (6 of 25
 * runs of this program on glibc alone, qemu 7.2).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, BLOCKS = 400, LARGEST = 300000 };

static char *_Atomic handed[THREADS];
static int rounds;

static size_t size_of(unsigned i)
{
    return i % 50 == 0 ? 1000 + (size_t)i * 7919 % LARGEST : 1 + (size_t)i * 37 % 2000;
}

static void check(const char *block, size_t size, char value)
{
    if (block[0] != value || block[size - 1] != value) {
        fprintf(stderr, "a block of %zu bytes has changed\n", size);
        abort();
    }
}

static char *filled(size_t size, char value)
{
    char *block = malloc(size);
    if (block == NULL || (uintptr_t)block % 16 != 0)
        abort();
    return memset(block, value, size);
}

static void *work(void *argument)
{
    unsigned self = (unsigned)(uintptr_t)argument;
    char *blocks[BLOCKS];

    for (int round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < BLOCKS; i++)
            blocks[i] = filled(size_of(i), (char)i);
        for (unsigned i = 0; i < BLOCKS; i += 3) {
            size_t size = size_of(i);
            blocks[i] = realloc(blocks[i], 2 * size);
            check(blocks[i], size, (char)i);
        }
        /* Each thread takes its neighbour's blocks, and frees them. */
        for (unsigned i = 0; i < BLOCKS; i++) {
            check(blocks[i], size_of(i), (char)i);
            free(__atomic_exchange_n(&handed[(self + 1) % THREADS], NULL, __ATOMIC_ACQ_REL));
            char *before = __atomic_exchange_n(&handed[self], blocks[i], __ATOMIC_ACQ_REL);
            free(before);
        }
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            abort();
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void *fork_beside(void *unused)
{
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            rounds = 1;
            work(NULL);
            run_threads();
            _exit(7);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
            abort();
    }
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t forker;
    void *aligned = NULL;
    struct { size_t figures[10]; } (*figures)(void) = NULL;

    rounds = count > 1 ? atoi(arguments[1]) : 1;
    if (count > 2 && strcmp(arguments[2], "alone") == 0) {
        fork_beside(NULL);
        run_threads();
    } else {
        pthread_create(&forker, NULL, fork_beside, NULL);
        run_threads();
        pthread_join(forker, NULL);
    }
    run_threads();
    for (size_t alignment = sizeof(void *); alignment <= 1 << 20; alignment *= 2) {
        if (posix_memalign(&aligned, alignment, 100) != 0 || (uintptr_t)aligned % alignment != 0)
            abort();
        free(aligned);
    }
    char *zeroed = calloc(1 << 22, 1);
    check(zeroed, 1 << 22, 0);
    free(zeroed);
#ifndef WITHOUT_DLSYM
    void *symbol = dlsym(RTLD_DEFAULT, "mallinfo2");
    memcpy(&figures, &symbol, sizeof figures);
#endif
    if (figures != NULL)
        printf("arena %zu\n", figures().figures[0]);
    /* Only HAKMEM here gives exactly 100 usable bytes for 100. */
    printf("page %ld usable %zu ok\n", sysconf(_SC_PAGESIZE), malloc_usable_size(zeroed = malloc(100)));
    free(zeroed);
    return 0;
}
