/* Threads on POSIX's smallest stack plus 16 KiB. Every call takes the allocator's longest path. */
#define _GNU_SOURCE
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include "work.h"

static void *run(void *argument)
{
    void *blocks[24];

    for (size_t size = 1; size <= (size_t)32 << 20; size = size * 2 + size / 3 + 1) {
        for (int i = 0; i < 24; i++) {
            int many = size > 1 << 20 ? 2 : 24;
            blocks[i] = i < many ? i % 3 ? malloc(size) : calloc(1, size) : NULL;
            if (i < many && !blocks[i])
                fail("malloc");
        }
        for (int i = 0; i < 24; i++) {
            if (i % 2 && blocks[i])
                blocks[i] = realloc(blocks[i], size * 2);
            free(blocks[i]);
        }
    }
    free(aligned_alloc(1 << 20, 100));
    malloc_trim(0);
    struct mallinfo2 info = mallinfo2();
    if (info.uordblks > (size_t)1 << 40)
        fail("mallinfo2");
    return argument;
}

int main(void)
{
    pthread_attr_t attributes;
    size_t size = (size_t)sysconf(_SC_THREAD_STACK_MIN) + 16 * 1024;

    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, size))
        fail("pthread_attr_setstacksize");
    for (int n = 0; n < 10; n++) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            if (pthread_create(&threads[i], &attributes, run, NULL))
                fail("pthread_create");
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
    }
    puts("done");
    return 0;
}
