/*
 * foreign_abort MISUSE END: a misuse is reported, and the handler of SIGABRT allocates and frees, also in a thread of
 * its own, like a crash handler that writes a report. END: `exit` ends the process in the handler. `jump` leaves the
 * handler by a jump, and the program goes on.
 *
 * MISUSE: direct   a block freed twice in a row
 *         flush    a block freed twice, found when the thread's cache is flushed
 *         inside   a pointer into a block, found when the thread's cache is flushed
 *         batch    a block freed twice in one batch by a thread that does not own it
 *         remote   a block freed twice by another thread, in two batches
 *         collect  a block freed by its owner and by another thread, found when the owner collects
 *         end      the same, found when the owner's thread ends
 *         dead     a block freed twice by a thread that has ended, found when another thread flushes its cache
 *         heap     a block of a first-class heap freed twice
 *         huge     a block of 5 MB freed twice
 *         wild     an address that is no block
 *         resize   realloc of a free block
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>

#include "foreign.h"

enum { SIZE = 100, NEIGHBOURS = 500 };

static const char *misuse;
static bool jumps;
static size_t (*collect)(bool);
static void *(*heap_new)(void);
static void *(*heap_malloc)(void *, size_t);
static sigjmp_buf back;
static _Thread_local bool is_main;

static void *use(void *unused)
{
    use_all_sizes();
    return unused;
}

static void on_abort(int number)
{
    (void)number;
    use_all_sizes();
    pthread_join(begin_thread(use, NULL), NULL);
    collect(true);
    dprintf(1, "reported\n");
    if (!jumps)
        _exit(0);
    if (!is_main)
        pthread_exit(NULL);
    siglongjmp(back, 1);
}

/* A block whose slab stays in use, whatever else is freed. */
static unsigned char *allocate_among_others(void)
{
    unsigned char *block = NULL;
    for (int i = 0; i < NEIGHBOURS; i++) {
        unsigned char *next = malloc(SIZE);
        mark_block(next, SIZE);
        if (i == NEIGHBOURS / 2)
            block = next;
    }
    return block;
}

static void *volatile shared[2];

static void *free_and_flush(void *block)
{
    free(block);
    collect(false);
    return NULL;
}

static void *free_batch(void *unused)
{
    void *volatile other = malloc(SIZE);
    free(shared[0]);
    free(shared[1]);
    free(shared[0]);
    free(other);
    collect(false);
    return unused;
}

static pthread_barrier_t step;

static void *own_and_end(void *unused)
{
    shared[0] = allocate_among_others();
    free_and_flush(shared[0]);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    return unused;
}

static void *free_twice_and_end(void *unused)
{
    void *volatile block = allocate_among_others(), *volatile other = allocate_among_others();
    free(block);
    free(other);
    free(block);
    return unused;
}

/* Frees the block in this thread and in another. The thread that collects finds the second free. */
static void free_here_and_there(void *block)
{
    free(block);
    collect(false);
    pthread_join(begin_thread(free_and_flush, block), NULL);
}

static void commit(void)
{
    void *volatile block = NULL;

    if (strcmp(misuse, "direct") == 0) {
        block = allocate_among_others();
        free(block);
        free(block);
    } else if (strcmp(misuse, "flush") == 0) {
        free_twice_and_end(NULL);
        collect(false);
    } else if (strcmp(misuse, "inside") == 0) {
        free(allocate_among_others() + 16);
        collect(false);
    } else if (strcmp(misuse, "batch") == 0) {
        shared[0] = allocate_among_others();
        shared[1] = allocate_among_others();
        pthread_join(begin_thread(free_batch, NULL), NULL);
    } else if (strcmp(misuse, "remote") == 0) {
        block = allocate_among_others();
        pthread_join(begin_thread(free_and_flush, block), NULL);
        pthread_join(begin_thread(free_and_flush, block), NULL);
    } else if (strcmp(misuse, "collect") == 0) {
        free_here_and_there(allocate_among_others());
        collect(false);
    } else if (strcmp(misuse, "end") == 0) {
        pthread_t owner = begin_thread(own_and_end, NULL);
        pthread_barrier_wait(&step);
        free_and_flush(shared[0]);
        pthread_barrier_wait(&step);
        pthread_join(owner, NULL);
        collect(true);
    } else if (strcmp(misuse, "dead") == 0) {
        pthread_join(begin_thread(free_twice_and_end, NULL), NULL);
        collect(true);
    } else if (strcmp(misuse, "heap") == 0) {
        void *heap = heap_new();
        block = heap_malloc(heap, SIZE);
        if (!heap_malloc(heap, SIZE))
            fail("hak_heap_malloc");
        free(block);
        free(block);
    } else if (strcmp(misuse, "huge") == 0) {
        block = malloc(5000000);
        free(block);
        free(block);
    } else if (strcmp(misuse, "wild") == 0) {
        free((void *)(uintptr_t)0x123456789ab0);
    } else if (strcmp(misuse, "resize") == 0) {
        block = allocate_among_others();
        free(block);
        collect(false);
        if (realloc(block, 5000))
            fail("realloc of a free block");
    }
}

int main(int argc, char **argv)
{
    struct sigaction action = { .sa_handler = on_abort, .sa_flags = SA_NODEFER };

    if (argc != 3)
        return 2;
    misuse = argv[1];
    jumps = strcmp(argv[2], "jump") == 0;
    is_main = true;
    *(void **)&collect = dlsym(RTLD_DEFAULT, "hak_collect");
    *(void **)&heap_new = dlsym(RTLD_DEFAULT, "hak_heap_new");
    *(void **)&heap_malloc = dlsym(RTLD_DEFAULT, "hak_heap_malloc");
    if (!collect || !heap_new || !heap_malloc)
        fail("dlsym");
    pthread_barrier_init(&step, NULL, 2);
    sigaction(SIGABRT, &action, NULL);
    if (sigsetjmp(back, 1) == 0)
        commit();
    use_all_sizes();
    pthread_join(begin_thread(use, NULL), NULL);
    collect(true);
    pid_t pid = fork();
    if (pid == 0) {
        use_all_sizes();
        pthread_join(begin_thread(use, NULL), NULL);
        _exit(0);
    }
    expect_child(pid, "a child after the report");
    puts("done");
    return 0;
}
