/* Threads are cancelled between their calls of the allocator. Their clean-up handlers free, and no lock stays held. */
#include <pthread.h>

#include "work.h"

enum { LIVE = 50 };

static void clean_up(void *blocks)
{
    work_drop_all(blocks, LIVE);
}

static void work_for_ever(struct work_block *blocks, uint64_t state)
{
    for (;;) {
        work_steps(blocks, LIVE, 100, &state);
        pthread_testcancel();
        usleep(10);
    }
}

static void *run(void *argument)
{
    static _Thread_local struct work_block blocks[LIVE];

    pthread_cleanup_push(clean_up, blocks);
    work_for_ever(blocks, (uint64_t)(uintptr_t)argument);
    pthread_cleanup_pop(1);
    return NULL;
}

int main(void)
{
    for (int n = 0; n < 300; n++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            if (pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)(n * 4 + i)))
                fail("pthread_create");
        usleep(300);
        for (int i = 0; i < 4; i++)
            pthread_cancel(threads[i]);
        for (int i = 0; i < 4; i++) {
            void *result = NULL;
            pthread_join(threads[i], &result);
            if (result != PTHREAD_CANCELED)
                fail("cancellation");
        }
    }
    puts("done");
    return 0;
}
