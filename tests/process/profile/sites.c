/*
 * Programs whose memory use is known for each site: a mode allocates through functions with their own names, and prints
 *
 *   NAME BLOCKS BLOCK_SIZE
 *
 * for each: the blocks in use when the profile is written, and their usable size.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hakmem/hakmem.h>
#include <hakmem/profile.h>

/* Neither inlined nor ended by a tail call, so that its return address is on the stack. */
#define SITE(name, call)                                                                                               \
    static __attribute__((noinline, unused)) void *site_##name(size_t size)                                           \
    {                                                                                                                  \
        void *volatile block = call;                                                                                   \
        if (block == NULL)                                                                                             \
            abort();                                                                                                   \
        *(volatile char *)block = 1;                                                                                   \
        return block;                                                                                                  \
    }

static hak_heap_t *heap;

SITE(keep, malloc(size))
SITE(churn, malloc(size))
SITE(other, malloc(size))
SITE(16, malloc(size))
SITE(100, malloc(size))
SITE(1000, malloc(size))
SITE(10000, malloc(size))
SITE(100000, malloc(size))
SITE(700000, malloc(size))
SITE(3000000, malloc(size))
SITE(calloc, calloc(1, size))
SITE(realloc, realloc(malloc(16), size))
SITE(aligned, aligned_alloc(64, size))
SITE(span, aligned_alloc(262144, size))
SITE(heap, hak_heap_malloc(heap, size))
SITE(heap_huge, hak_heap_malloc(heap, size))
SITE(destroyed, hak_heap_malloc(heap, size))

static void say(const char *name, size_t blocks, const void *block, size_t size)
{
    printf("site_%s %zu %zu\n", name, blocks, block ? hak_usable_size(block) : hak_good_size(size));
}

static void **keep_list(size_t count)
{
    void **list = hak_malloc(count * sizeof *list);
    return list ? list : (abort(), NULL);
}

/* Keeps as many blocks as fill `mebibytes`. */
static void keep_bytes(const char *name, void *(*site)(size_t), size_t size, size_t mebibytes)
{
    size_t count = (mebibytes << 20) / size + 1;
    void *block = NULL;

    for (size_t i = 0; i < count; i++)
        block = site(size);
    say(name, count, block, size);
}

/* ---- Modes ---- */

static void mode_sizes(void)
{
    keep_bytes("16", site_16, 16, 4);
    keep_bytes("100", site_100, 100, 8);
    keep_bytes("1000", site_1000, 1000, 8);
    keep_bytes("10000", site_10000, 10000, 16);
    keep_bytes("100000", site_100000, 100000, 32);
    keep_bytes("700000", site_700000, 700000, 64);
    keep_bytes("3000000", site_3000000, 3000000, 64);
}

static void churn_and_keep(size_t size, size_t keeps, unsigned churns)
{
    void *last = NULL;

    for (size_t i = 0; i < keeps; i++) {
        for (unsigned n = 0; n < churns; n++)
            free(site_churn(size));
        last = site_keep(size);
    }
    say("keep", keeps, last, size);
    say("churn", 0, NULL, size);
}

static void mode_churn(void) { churn_and_keep(200, 50000, 100); }

static void mode_families(void)
{
    enum { BATCH = 100 };
    void *batch[BATCH];

    keep_bytes("calloc", site_calloc, 300, 8);
    keep_bytes("realloc", site_realloc, 400, 8);
    keep_bytes("aligned", site_aligned, 500, 8);
    keep_bytes("span", site_span, 300000, 64);
    heap = hak_heap_new();
    for (int i = 0; i < 3000; i++)
        (void)site_destroyed(3000);
    for (int i = 0; i < 10; i++)
        (void)site_destroyed(2000000);
    hak_heap_destroy(heap);
    say("destroyed", 0, NULL, 3000);
    heap = hak_heap_new();
    keep_bytes("heap", site_heap, 600, 8);
    keep_bytes("heap_huge", site_heap_huge, 2000000, 32);
    for (int i = 0; i < 200; i++)
        if (hak_malloc_batch(700, BATCH, batch) != BATCH)
            abort();
    say("batch", 200 * BATCH, batch[0], 700);
}

static void *allocate_and_die(void *list)
{
    void **blocks = list;
    for (int i = 0; i < 20000; i++)
        blocks[i] = site_keep(120);
    for (int i = 0; i < 20000; i++)
        free(site_churn(120));
    return NULL;
}

static void *free_half(void *list)
{
    void **blocks = list;
    for (int i = 0; i < 20000; i += 2)
        free(blocks[i]);
    return NULL;
}

/* Threads end, and other threads free their blocks. */
static void mode_threads(void)
{
    void **lists[6];
    pthread_t threads[6];

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 6; i++) {
            if (round == 0)
                lists[i] = keep_list(20000);
            pthread_create(&threads[i], NULL, round ? free_half : allocate_and_die, lists[i]);
        }
        for (int i = 0; i < 6; i++)
            pthread_join(threads[i], NULL);
    }
    say("keep", 60000, NULL, 120);
    say("churn", 0, NULL, 120);
}

static void mode_all_freed(void)
{
    static const size_t sizes[] = { 16, 200, 5000, 70000, 900000, 4000000 };

    for (int round = 0; round < 4; round++)
        for (unsigned s = 0; s < 6; s++) {
            void *blocks[100];
            for (int i = 0; i < 100; i++)
                blocks[i] = site_keep(sizes[s]);
            for (int i = 0; i < 100; i++)
                blocks[i] = realloc(blocks[i], sizes[s] * 2 + 100);
            for (int i = 0; i < 100; i++)
                free(blocks[i]);
        }
    say("keep", 0, NULL, 16);
}

/* A huge block that grows counts as a free and a malloc. One that stays keeps its record. */
static void mode_huge(void)
{
    char *block = site_keep(2000000);
    for (int i = 1; i <= 40; i++)
        block = realloc(block, 2000000 + (size_t)i * 500000);
    block[1] = 1;
    say("other", 0, NULL, 16);
    printf("huge 1 %zu\n", hak_usable_size(block));
}

static void *end_process(void *unused)
{
    (void)unused;
    keep_bytes("other", site_other, 240, 8);
    fflush(NULL);
    exit(0);
}

static void mode_exit_from_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, end_process, NULL);
    pthread_join(thread, NULL);
}

/* The child's file has the blocks from its parent, and its own. */
static void mode_fork(void)
{
    pid_t child;

    keep_bytes("keep", site_keep, 120, 8);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        keep_bytes("other", site_other, 240, 8);
        fflush(NULL);
        exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        abort();
    printf("child %d\n", (int)child);
}

/* The program turns the profile off and on. Blocks allocated meanwhile are not in it. */
static void mode_program(void)
{
    if (hak_profile_start(16384) != 0)
        abort();
    hak_collect(false);
    keep_bytes("keep", site_keep, 120, 8);
    hak_profile_stop();
    hak_collect(false);
    for (int i = 0; i < 50000; i++)
        (void)site_churn(120);
    say("churn", 0, NULL, 120);
    if (hak_profile_start(16384) != 0)
        abort();
    hak_collect(false);
    keep_bytes("other", site_other, 240, 8);
    if (hak_profile_write(getenv("PROFILE_TO")) != 0)
        abort();
    printf("missing %d\n", hak_profile_write("/nonexistent/folder/file"));
    printf("closed %d\n", hak_profile_write_fd(-1));
}

/* The peak is in the middle, and the printed figures are the peak's. */
static void mode_peak(void)
{
    enum { COUNT = 60000 };
    static void *held[COUNT];

    for (unsigned round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT / 2 * (int)(2 - round); i++)
            held[i] = site_churn(240);
        for (int i = 0; i < COUNT / 2 * (int)(2 - round); i++)
            free(held[i]);
        keep_bytes(round ? "other" : "keep", round ? site_other : site_keep, 120, 2);
    }
    printf("site_churn %d %zu\n", COUNT, hak_good_size(240));
}

static void mode_alloc_at(void)
{
    static const char place[1];
    void *block = NULL;

    for (int i = 0; i < 60000; i++)
        block = hak_alloc_at(80, place);
    printf("place %d %zu %p\n", 60000, hak_usable_size(block), (const void *)place);
}

static void mode_signal(void)
{
    keep_bytes("keep", site_keep, 120, 8);
    fflush(NULL);
    raise(SIGUSR2);
    for (int i = 0; i < 200000; i++)
        (void)site_other(24); /* takes slow paths */
    _exit(0);
}

static void mode_handled(void)
{
    raise(SIGUSR2);
    puts("not ended");
}

static void mode_double_free(void)
{
    char *volatile blocks[2] = { site_keep(100), site_keep(100) };
    free(blocks[0]);
    free(blocks[1]);
    free(blocks[0]);
    puts("not ended");
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {
        { "sizes", mode_sizes },
        { "churn", mode_churn },
        { "families", mode_families },
        { "threads", mode_threads },
        { "all_freed", mode_all_freed },
        { "huge", mode_huge },
        { "exit_from_thread", mode_exit_from_thread },
        { "fork", mode_fork },
        { "program", mode_program },
        { "peak", mode_peak },
        { "alloc_at", mode_alloc_at },
        { "signal", mode_signal },
        { "handled", mode_handled },
        { "double_free", mode_double_free },
    };

    setvbuf(stdout, NULL, _IONBF, 0); /* no buffer is in use at the end */
    for (unsigned i = 0; count == 2 && i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(arguments[1], modes[i].name) == 0) {
            modes[i].run();
            return 0;
        }
    return 2;
}
