/*
 * late KIND SIZE END: a misuse that may pass at the call, and is caught when the block leaves the thread's cache.
 * Prints "passed" when the call passes. KIND: interior, unaligned (an address inside a block), elsewhere (inside a
 * block of the main thread, as the first call of the thread of "exit"), repeated (free a, b, a).
 * END: what flushes the cache: trim (malloc_trim), exit (malloc_trim after the thread's end), work (ordinary calls).
 * "at once": nothing does, and the process ends.
 */
#include <pthread.h>

#include "use.h"

static const char *kind;
static const char *end;
static size_t size;
static char *of_main;

static void *run(void *argument)
{
    if (!strcmp(kind, "elsewhere")) {
        free(announce(of_main + (size / 2 & ~(size_t)15)));
        say(1, "passed\n");
        return argument;
    }

    char *block = memset(malloc(size), 1, size);
    char *other = memset(malloc(size), 1, size);

    if (!strcmp(kind, "repeated")) {
        announce(block);
        free(block);
        free(other);
        free(block);
    } else if (!strcmp(kind, "interior")) {
        free(announce(block + (size / 2 & ~(size_t)15)));
    } else {
        free(announce(block + 8));
    }
    say(1, "passed\n");
    if (!strcmp(end, "at once"))
        exit(0);
    if (!strcmp(end, "trim"))
        malloc_trim(0);
    if (!strcmp(end, "work")) {
        enum { COUNT = 2000 };
        static void *blocks[COUNT];
        int count = size > 100000 ? 50 : COUNT;
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < count; i++)
                blocks[i] = malloc(size);
            for (int i = 0; i < count; i++)
                free(blocks[i]);
        }
    }
    return argument;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    if (argc != 4)
        return 2;
    kind = argv[1];
    size = (size_t)atol(argv[2]);
    end = argv[3];
    if (!strcmp(kind, "elsewhere"))
        of_main = memset(malloc(size), 1, size);
    if (!strcmp(end, "exit")) {
        if (pthread_create(&thread, NULL, run, NULL))
            return 2;
        pthread_join(thread, NULL);
        malloc_trim(0);
    } else {
        run(NULL);
    }
    check_the_allocator_works();
    return 0;
}
