/* other_thread SIZE: two threads free the same block in turn. The second free must be reported. */
#include <pthread.h>

#include "use.h"

static void *run(void *block)
{
    free(block);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    if (argc != 2)
        return 2;
    size_t size = (size_t)atol(argv[1]);
    void *block = memset(malloc(size), 1, size);
    void *neighbour = malloc(size);
    announce(block);
    if (pthread_create(&thread, NULL, run, block))
        return 2;
    pthread_join(thread, NULL);
    free(block);
    malloc_trim(0);
    free(neighbour);
    check_the_allocator_works();
    return 0;
}
