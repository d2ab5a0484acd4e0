/*
 * No function of the allocator is a cancellation point. A thread with a pending cancellation allocates, resizes, frees,
 * waits for HAKMEM's locks and gives memory back. It ends at its own pthread_testcancel. Asynchronous cancellation
 * waits while it is disabled. The functions that write reports may end the thread. No lock stays held.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>

#include "foreign.h"

size_t hak_collect(bool purge) __attribute__((weak));
void hak_thread_idle(void) __attribute__((weak));

static atomic_bool done;
static atomic_uint survived;

static void *contend(void *argument)
{
    static _Thread_local struct work_block blocks[100];
    uint64_t state = (uint64_t)(uintptr_t)argument;

    while (!atomic_load(&done)) {
        work_steps(blocks, 100, 1000, &state);
        usleep(50);
    }
    work_drop_all(blocks, 100);
    return NULL;
}

static void *work_with_a_cancellation_pending(void *argument)
{
    struct work_block blocks[100] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)argument;

    pthread_cancel(pthread_self());
    work_steps(blocks, 100, 2000, &state);
    use_all_sizes();
    for (size_t alignment = 16; alignment < (size_t)8 << 20; alignment *= 4)
        free(aligned_alloc(alignment, 1000));
    free(calloc(1000, 1000));
    malloc_trim(0);
    if (hak_collect)
        hak_collect(true);
    if (hak_thread_idle)
        hak_thread_idle();
    (void)mallinfo2();
    work_drop_all(blocks, 100);
    atomic_fetch_add(&survived, 1);
    pthread_testcancel();
    fail("a cancellation that is lost");
    return NULL;
}

static atomic_bool asked;

/* Would end at any instruction if cancellation were not disabled. */
static void *work_asynchronously(void *argument)
{
    struct work_block blocks[50] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)argument;
    int before;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    while (!atomic_load(&asked))
        work_steps(blocks, 50, 50, &state);
    work_steps(blocks, 50, 500, &state);
    work_drop_all(blocks, 50);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
    pthread_testcancel();
    return NULL;
}

static void free_blocks(void *blocks)
{
    use_all_sizes();
    work_drop_all(blocks, 50);
}

static void *wait_with_a_handler(void *argument)
{
    struct work_block blocks[50] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)argument;

    pthread_cleanup_push(free_blocks, blocks);
    work_steps(blocks, 50, 500, &state);
    for (;;)
        pause();
    pthread_cleanup_pop(1);
    return NULL;
}

static void *report(void *file)
{
    pthread_cancel(pthread_self());
    malloc_info(0, file);
    pthread_testcancel();
    return NULL;
}

static void expect_cancelled(pthread_t thread, const char *what)
{
    void *result = NULL;
    if (pthread_join(thread, &result) || result != PTHREAD_CANCELED)
        fail(what);
}

int main(void)
{
    enum { ROUNDS = 40, FILES = 10 };
    pthread_t contenders[2], threads[3];
    FILE *files[FILES];

    for (int i = 0; i < 2; i++)
        contenders[i] = begin_thread(contend, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < ROUNDS; i++) {
        atomic_store(&asked, false);
        threads[0] = begin_thread(work_with_a_cancellation_pending, (void *)(uintptr_t)i);
        threads[1] = begin_thread(work_asynchronously, (void *)(uintptr_t)i);
        threads[2] = begin_thread(wait_with_a_handler, (void *)(uintptr_t)i);
        usleep(500);
        pthread_cancel(threads[1]);
        atomic_store(&asked, true);
        pthread_cancel(threads[2]);
        expect_cancelled(threads[0], "a cancellation that was pending");
        expect_cancelled(threads[1], "a cancellation of the asynchronous kind");
        expect_cancelled(threads[2], "a cancellation with a handler");
    }
    if (atomic_load(&survived) != ROUNDS)
        fail("an allocation function is a cancellation point");
    for (int i = 0; i < FILES; i++) {
        files[i] = fopen("/dev/null", "w");
        setvbuf(files[i], NULL, _IONBF, 0);
        expect_cancelled(begin_thread(report, files[i]), "a cancellation in a report");
        use_all_sizes();
    }
    atomic_store(&done, true);
    for (int i = 0; i < 2; i++)
        pthread_join(contenders[i], NULL);
    puts("done");
    return 0;
}
