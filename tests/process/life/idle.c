/*
 * idle alone|threaded|trim: frees 100 MiB of blocks, sleeps a second and a half, and prints how many MiB are resident.
 * threaded: another thread waits meanwhile. trim: it calls malloc_trim(0) before it sleeps.
 */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>

#include "work.h"

enum { BLOCKS = 100 << 10 };

/* Makes no call of malloc, which could give memory back before it is counted. */
static size_t resident_mib(void)
{
    char text[64] = "";
    int file = open("/proc/self/statm", O_RDONLY);

    if (file < 0 || read(file, text, sizeof text - 1) <= 0)
        fail("/proc/self/statm");
    close(file);
    return strtoul(strchr(text, ' '), NULL, 10) * (size_t)sysconf(_SC_PAGESIZE) >> 20;
}

static void *wait_for_the_end(void *unused)
{
    pause();
    return unused;
}

int main(int argc, char **argv)
{
    static char *blocks[BLOCKS];
    pthread_t thread;

    if (argc != 2)
        return 2;
    if (strcmp(argv[1], "threaded") == 0 && pthread_create(&thread, NULL, wait_for_the_end, NULL))
        fail("pthread_create");
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = memset(malloc(1024), 1, 1024);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    if (strcmp(argv[1], "trim") == 0)
        malloc_trim(0);
    usleep(1500000);
    printf("%zu\n", resident_mib());
    return 0;
}
