/*
 * endings HOW [LIBRARY]: blocks outlive their makers, and the code that runs last calls the allocator.
 *
 * HOW: library  a library is opened and closed repeatedly; its blocks live on
 *      thread   threads end; other threads resize, free and refill their blocks
 *      main     main ends by pthread_exit; other threads go on, and end the process
 *      exit     functions called by exit, in main's thread and in another, while threads allocate
 *      idle     hak_thread_idle in destructors of keys, before and after the allocator's, in fork handlers and at exit
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>

#include "foreign.h"

void hak_thread_idle(void) __attribute__((weak));

static void close_libraries(const char *path)
{
    for (int round = 0; round < 30; round++) {
        unsigned char *kept[ALL_SIZES], **given;
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        unsigned char **(*blocks)(void);
        void (*run)(void);
        if (!library)
            fail(dlerror());
        *(void **)&blocks = dlsym(library, "library_blocks");
        *(void **)&run = dlsym(library, "library_run_thread");
        given = blocks();
        memcpy(kept, given, sizeof(kept));
        run();
        if (dlclose(library) || dlopen(path, RTLD_NOW | RTLD_NOLOAD))
            fail("dlclose");
        for (unsigned i = 0; i < ALL_SIZES; i++) {
            check_block(kept[i], size_number(i));
            free(kept[i]);
        }
    }
}

enum { HEIRS = 4, INHERITED = 300 };
static struct work_block inheritance[HEIRS][INHERITED];

static void *bequeath(void *which)
{
    uint64_t state = (uintptr_t)which + 1;
    work_steps(inheritance[(uintptr_t)which], INHERITED, 2000, &state);
    return NULL;
}

static void *inherit(void *which)
{
    struct work_block *blocks = inheritance[(uintptr_t)which];
    uint64_t state = (uintptr_t)which;

    for (unsigned i = 0; i < INHERITED; i += 3)
        if (blocks[i].start) {
            struct work_block block = blocks[i];
            block.start = realloc(block.start, block.size * 2);
            if (!block.start || block.start[0] != (unsigned char)block.size)
                fail("contents of a block of a thread that has ended");
            free(block.start);
            blocks[i].start = NULL;
        }
    work_steps(blocks, INHERITED, 1000, &state);
    return NULL;
}

static void end_threads(void)
{
    for (int round = 0; round < 50; round++) {
        pthread_t threads[HEIRS];
        for (uintptr_t i = 0; i < HEIRS; i++)
            threads[i] = begin_thread(round % 2 ? inherit : bequeath, (void *)((i + (unsigned)round) % HEIRS));
        for (int i = 0; i < HEIRS; i++)
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < HEIRS; i++)
        work_drop_all(inheritance[i], INHERITED);
}

static unsigned char *of_main;
static pthread_t main_thread;

static void *outlive_main(void *unused)
{
    pthread_join(main_thread, NULL);
    use_all_sizes();
    check_block(of_main, 1000);
    of_main = realloc(of_main, 100000);
    free(of_main);
    for (int i = 0; i < 20; i++)
        pthread_join(begin_thread(bequeath, (void *)(uintptr_t)(i % HEIRS)), NULL);
    puts("done");
    exit(0);
    return unused;
}

static void end_main(void)
{
    main_thread = pthread_self();
    use_all_sizes();
    mark_block(of_main = malloc(1000), 1000);
    begin_thread(outlive_main, NULL);
    pthread_exit(NULL);
}

static unsigned char *at_exit_blocks[ALL_SIZES];

static void at_exit(void)
{
    for (unsigned i = 0; i < ALL_SIZES; i++) {
        check_block(at_exit_blocks[i], size_number(i));
        free(at_exit_blocks[i]);
        mark_block(at_exit_blocks[i] = malloc(size_number(i)), size_number(i));
    }
    use_all_sizes();
}

__attribute__((destructor(101))) static void at_the_very_end(void)
{
    if (at_exit_blocks[0])
        at_exit();
}

static void *allocate_for_ever(void *argument)
{
    struct work_block blocks[100] = { 0 };
    uint64_t state = (uint64_t)(uintptr_t)argument;
    for (;;) {
        work_steps(blocks, 100, 1000, &state);
        usleep(20);
    }
    return NULL;
}

static void *exit_in_a_thread(void *unused)
{
    exit(0);
    return unused;
}

static void exit_in_many_ways(void)
{
    for (unsigned i = 0; i < 12; i++) {
        pid_t pid = fork();
        if (pid != 0) {
            expect_child(pid, "a child that exits");
            continue;
        }
        for (unsigned k = 0; k < ALL_SIZES; k++)
            mark_block(at_exit_blocks[k] = malloc(size_number(k)), size_number(k));
        atexit(at_exit);
        atexit(at_exit);
        at_quick_exit(at_exit);
        for (uintptr_t k = 0; k < 3; k++)
            begin_thread(allocate_for_ever, (void *)(k + 1));
        if (i % 3 == 0)
            exit(0);
        if (i % 3 == 1)
            quick_exit(0);
        pthread_join(begin_thread(exit_in_a_thread, NULL), NULL);
    }
}

static pthread_key_t first_key, last_key;

static void idle(void)
{
    use_all_sizes();
    if (hak_thread_idle) {
        hak_thread_idle();
        hak_thread_idle();
    }
    use_all_sizes();
    if (hak_thread_idle)
        hak_thread_idle();
}

static void idle_in_destructor(void *rounds)
{
    idle();
    if ((uintptr_t)rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
        pthread_setspecific(first_key, (void *)((uintptr_t)rounds + 1));
}

__attribute__((constructor(101))) static void make_first_key(void)
{
    pthread_key_create(&first_key, idle_in_destructor);
}

static void *idle_at_the_end(void *unused)
{
    pthread_setspecific(first_key, (void *)1);
    pthread_setspecific(last_key, (void *)(uintptr_t)PTHREAD_DESTRUCTOR_ITERATIONS);
    idle();
    return unused;
}

static void idle_everywhere(void)
{
    pthread_key_create(&last_key, idle_in_destructor);
    pthread_atfork(idle, idle, idle);
    atexit(idle);
    for (int round = 0; round < 5; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            threads[i] = begin_thread(idle_at_the_end, NULL);
        pid_t pid = fork();
        if (pid == 0) {
            pthread_join(begin_thread(idle_at_the_end, NULL), NULL);
            exit(0);
        }
        expect_child(pid, "a child of an idle thread");
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (strcmp(argv[1], "library") == 0 && argc == 3)
        close_libraries(argv[2]);
    else if (strcmp(argv[1], "thread") == 0)
        end_threads();
    else if (strcmp(argv[1], "main") == 0)
        end_main();
    else if (strcmp(argv[1], "exit") == 0)
        exit_in_many_ways();
    else if (strcmp(argv[1], "idle") == 0)
        idle_everywhere();
    else
        return 2;
    puts("done");
    return 0;
}
