/*
 * many_threads COUNT [tell]: COUNT short threads, eight at a time. Each allocates, frees, and leaves one block that its
 * successor frees. The process must not grow with COUNT (work.h, tell).
 */
#include <pthread.h>

#include "work.h"

static char *left[8];

static void *run(void *argument)
{
    struct work_block blocks[20] = { 0 };
    char **mine = argument;
    uint64_t state = (uint64_t)(uintptr_t)argument;

    work_steps(blocks, 20, 60, &state);
    work_drop_all(blocks, 20);
    free(*mine);
    *mine = malloc(500);
    return NULL;
}

int main(int argc, char **argv)
{
    size_t before = 0;

    if (argc < 2)
        return 2;
    int rounds = atoi(argv[1]) / 8;
    for (int n = 0; n < rounds; n++) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++)
            if (pthread_create(&threads[i], NULL, run, &left[i]))
                fail("pthread_create");
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
        if (n == rounds / 4)
            before = work_resident();
    }
    work_check_growth(before, argc > 2);
    puts("done");
    return 0;
}
