/* A program to link with the static libraries. It uses threads, stdio and the environment, as a static C library uses
 * malloc. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>

#include "work.h"

const char *hak_version(void) __attribute__((weak));
void *hak_malloc(size_t size) __attribute__((weak));
void hak_free(void *block) __attribute__((weak));
size_t hak_usable_size(const void *block) __attribute__((weak));

static void *run(void *argument)
{
    struct work_block blocks[100] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)argument;

    work_steps(blocks, 100, 20000, &state);
    work_drop_all(blocks, 100);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[4];

    if (argc > 1 && !strcmp(argv[1], "secure")) {
        free(malloc(10));
        printf("done\n");
        return 0;
    }
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i))
            fail("pthread_create");
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    char *text = NULL;
    if (asprintf(&text, "%s %d", "text", 5) != 6)
        fail("asprintf");
    free(text);
    setenv("NAME", "value", 1);
    void *block = malloc(100);
    /* glibc's usable size for 100 bytes is 104, HAKMEM's is a size class: the number tells whose block it is. */
    printf("version %s, usable %zu of 100\n", hak_version ? hak_version() : "none", malloc_usable_size(block));
    free(block);
    if (hak_malloc) {
        block = hak_malloc(100);
        printf("hak usable %zu of 100\n", hak_usable_size(block));
        hak_free(block);
    }
    return 0;
}
