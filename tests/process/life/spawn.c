/* spawn COUNT: four threads start programs with posix_spawn, vfork and popen while four others allocate. */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "work.h"

extern char **environ;

static int count;
static atomic_bool done;

static void expect(pid_t pid, int wanted)
{
    int status = -1;
    if (pid <= 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != wanted)
        fail("a program that was started");
}

static char *const quiet[] = { "sh", "-c", "exit 7", NULL };

static __attribute__((noinline)) pid_t start_by_vfork(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execvp("sh", quiet);
        _exit(1);
    }
    return pid;
}

static void *starts(void *argument)
{
    char line[64];

    for (int i = 0; i < count; i++) {
        pid_t pid = 0;
        char *block = malloc(1000);
        if (posix_spawnp(&pid, "sh", NULL, NULL, quiet, environ))
            fail("posix_spawnp");
        expect(pid, 7);
        expect(start_by_vfork(), 7);
        FILE *pipe = popen("echo spoken", "r");
        if (!pipe || !fgets(line, sizeof(line), pipe) || strcmp(line, "spoken\n") != 0 || pclose(pipe) != 0)
            fail("popen");
        if (system("exit 0") != 0)
            fail("system");
        free(block);
    }
    return argument;
}

static void *allocates(void *argument)
{
    static _Thread_local struct work_block blocks[100];
    uint64_t state = (uint64_t)(uintptr_t)argument;

    while (!atomic_load(&done)) {
        work_steps(blocks, 100, 1000, &state);
        usleep(500);
    }
    work_drop_all(blocks, 100);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t starters[4], allocators[4];

    if (argc != 2)
        return 2;
    count = atoi(argv[1]);
    for (int i = 0; i < 4; i++) {
        pthread_create(&allocators[i], NULL, allocates, (void *)(uintptr_t)i);
        pthread_create(&starters[i], NULL, starts, NULL);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(starters[i], NULL);
    atomic_store(&done, true);
    for (int i = 0; i < 4; i++)
        pthread_join(allocators[i], NULL);
    puts("done");
    return 0;
}
