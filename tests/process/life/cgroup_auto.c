/*
 * cgroup_auto FILE BEFORE AFTER PRESSURE: runs under HAKMEM_MEMORY_LIMIT=auto. FILE is the memory limit of a cgroup
 * above this process, and says BEFORE MiB. Allocation ends there. A second after FILE says AFTER MiB, it ends there.
 * Then PRESSURE, the cgroup's memory.pressure, reports stalls, and free memory goes back at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "work.h"

enum { BLOCK = 1 << 20, MOST = 1000 };

static char *blocks[MOST];
static int count;

static void put(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text))
        fail(path);
    close(file);
}

/* Waits until the limits are due to be read again. */
static void wait_a_while(void)
{
    struct timespec pause = { 1, 200000000 };

    nanosleep(&pause, NULL);
}

static void allocate_all(void)
{
    for (; count < MOST; count++) {
        blocks[count] = malloc(BLOCK);
        if (!blocks[count]) {
            if (errno != ENOMEM)
                fail("errno is not ENOMEM");
            return;
        }
        memset(blocks[count], 1, BLOCK);
    }
    fail("no limit in sight");
}

static int resident_mib(void)
{
    char text[200];
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t length = read(file, text, sizeof text - 1);
    long total, resident;

    if (file < 0 || length <= 0)
        fail("/proc/self/statm");
    close(file);
    text[length] = 0;
    if (sscanf(text, "%ld %ld", &total, &resident) != 2)
        fail("/proc/self/statm");
    return (int)(resident * sysconf(_SC_PAGESIZE) >> 20);
}

int main(int argc, char **argv)
{
    int before, after, waiting;
    char text[32];

    if (argc != 5)
        return 2;
    before = atoi(argv[2]);
    after = atoi(argv[3]);
    allocate_all();
    if (count > before || count < before - before / 8)
        fail("what can be had before");
    snprintf(text, sizeof text, "%zu\n", (size_t)after << 20);
    put(argv[1], text);
    wait_a_while();
    allocate_all();
    if (count > after || count < after - after / 8)
        fail("what can be had after");
    while (count > 0)
        free(blocks[--count]);
    waiting = resident_mib();
    if (waiting < after / 2)
        fail("nothing waits");
    put(argv[4],
        "some avg10=55.00 avg60=10.00 avg300=1.00 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
    wait_a_while();
    /* Waiting memory cannot serve this size, so the footprint would grow. */
    for (int i = 0; i < 8; i++)
        free(memset(malloc(5 * BLOCK), 1, 5 * BLOCK));
    if (resident_mib() > waiting / 4)
        fail("what is free waits although memory is short");
    printf("%d MiB waited\n", waiting);
    return 0;
}
