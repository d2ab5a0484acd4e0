/* Main forks while another thread runs the pressure handler. The child must call the handler at the limit itself. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "foreign.h"

enum { BLOCKS = 1000, SIZE = 50000 };

typedef void (*handler)(size_t mapped, size_t limit);

static int entered[2], leave[2];
static atomic_bool in_child;
static atomic_uint child_calls;

static void on_pressure(size_t mapped, size_t limit)
{
    char byte = 0;

    (void)mapped;
    (void)limit;
    if (atomic_load(&in_child)) {
        atomic_fetch_add(&child_calls, 1);
    } else if (write(entered[1], &byte, 1) != 1 || read(leave[0], &byte, 1) < 0) {
        fail("the pipes");
    }
}

static void *fill(void *unused)
{
    static _Thread_local void *blocks[BLOCKS];

    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = memset(malloc(SIZE), 1, SIZE);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return unused;
}

int main(void)
{
    handler (*set)(handler);
    pthread_t thread;
    char byte;

    *(void **)&set = dlsym(RTLD_DEFAULT, "hak_set_pressure_handler");
    if (!set || pipe(entered) || pipe(leave))
        fail("hak_set_pressure_handler");
    set(on_pressure);
    thread = begin_thread(fill, NULL);
    if (read(entered[0], &byte, 1) != 1)
        fail("read");
    pid_t pid = fork();
    if (pid == 0) {
        atomic_store(&in_child, true);
        fill(NULL);
        if (atomic_load(&child_calls) == 0)
            fail("the handler was not called in the child");
        _exit(0);
    }
    expect_child(pid, "the child");
    close(leave[1]);
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
