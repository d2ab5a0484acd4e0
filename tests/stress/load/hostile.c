/*
 * With STRESS_HOSTILE=1 the code at each foreign point of the allocator (src/os/foreign.h) does the worst that foreign
 * code may do there: it allocates and frees all sizes, collects, gives up its thread's cache, makes a thread, forks.
 * Only debug builds have foreign points.
 */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/foreign.h"
#include "support.h"

static void use_sizes(void)
{
    static const size_t sizes[] = { 1, 40, 100, 1000, 5000, 30000, 100000, 700000, 3000000 };
    enum { COUNT = sizeof sizes / sizeof *sizes };
    char *blocks[COUNT];

    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = hak_malloc(sizes[i]);
        CHECK(blocks[i], "no memory for %zu bytes", sizes[i]);
        blocks[i][0] = blocks[i][sizes[i] - 1] = (char)i;
    }
    for (unsigned i = 0; i < COUNT; i++) {
        CHECK(blocks[i][0] == (char)i && blocks[i][sizes[i] - 1] == (char)i, "a block of %zu bytes was overwritten",
              sizes[i]);
        hak_free(blocks[i]);
    }
}

static void *use_sizes_in_thread(void *unused)
{
    use_sizes();
    return unused;
}

static void use_sizes_in_child(void)
{
    int status = 0;
    pid_t child = fork();

    CHECK(child >= 0, "no child");
    if (child == 0) {
        alarm(1200); /* only ends a hang, however busy the machine is */
        use_sizes();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "a child ended with status %#x", (unsigned)status);
}

static void do_the_worst(void)
{
    static _Thread_local unsigned calls;
    unsigned call = ++calls;

    if (call % 16 == 1)
        use_sizes();
    if (call % 512 == 100)
        hak_collect(call % 4096 == 100);
    if (call % 1024 == 300)
        hak_thread_idle();
    if (call % 2048 == 500)
        support_join(support_thread(use_sizes_in_thread, NULL));
    if (call % 4096 == 700)
        use_sizes_in_child();
}

__attribute__((constructor)) static void begin(void)
{
    const char *wanted = getenv("STRESS_HOSTILE");

    if (wanted && strcmp(wanted, "1") == 0) {
        CHECK(HAK_DEBUG, "a release build has no foreign points");
        foreign_hook = do_the_worst;
    }
}
