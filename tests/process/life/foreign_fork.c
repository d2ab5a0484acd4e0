/*
 * foreign_fork FORKS: main forks while four threads allocate and pass blocks to each other. The fork handlers of
 * fork_handlers.h allocate and free blocks of all kinds. If OWN_HANDLERS is set, this program registers them before all
 * constructors run. A child uses all sizes, in two threads.
 */
#define _GNU_SOURCE
#include "fork_handlers.h"

/* Takes the environment as an argument, because getenv() has none yet. */
static void register_first(int argc, char **argv, char **environment)
{
    (void)argc;
    (void)argv;
    for (; *environment; environment++)
        if (strcmp(*environment, "OWN_HANDLERS=1") == 0)
            register_handlers();
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) = register_first;

static atomic_bool done;

static void *allocate(void *argument)
{
    static _Thread_local struct work_block blocks[100];
    uint64_t state = (uint64_t)(uintptr_t)argument;

    while (!atomic_load(&done)) {
        work_steps(blocks, 100, 200, &state);
        for (unsigned i = 0; i < 8; i++)
            exchange_block((unsigned)work_next(&state), malloc(work_size(&state)));
        use_a_heap();
        usleep(100);
    }
    work_drop_all(blocks, 100);
    return NULL;
}

static void *allocate_in_child(void *unused)
{
    use_all_sizes();
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[4];

    if (argc != 2)
        return 2;
    find_heaps();
    for (int i = 0; i < 4; i++)
        threads[i] = begin_thread(allocate, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < atoi(argv[1]); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            use_all_sizes();
            pthread_join(begin_thread(allocate_in_child, NULL), NULL);
            for (unsigned k = 0; k < EXCHANGED; k++)
                exchange_block(k, NULL);
            use_a_heap();
            _exit(0);
        }
        use_all_sizes();
        expect_child(pid, "a child");
    }
    atomic_store(&done, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
