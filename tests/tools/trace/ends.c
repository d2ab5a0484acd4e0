/* ends HOW: makes 5000 blocks, frees the first 1000, and ends by kill (SIGKILL), abort or _exit; many: makes 100,000
 * more; fork: a child frees 100 and makes 300, then the parent makes 20. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *blocks[5000];

static void make(int count, size_t size)
{
    for (int i = 0; i < count; i++)
        blocks[i] = malloc(size);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    make(5000, 48);
    for (int i = 0; i < 1000; i++)
        free(blocks[i]);
    if (strcmp(argv[1], "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(argv[1], "abort") == 0)
        abort();
    if (strcmp(argv[1], "_exit") == 0)
        _exit(7);
    if (strcmp(argv[1], "many") == 0)
        for (int i = 0; i < 20; i++)
            make(5000, 16);
    if (strcmp(argv[1], "fork") == 0) {
        pid_t child = fork();
        if (child == 0) {
            for (int i = 1000; i < 1100; i++)
                free(blocks[i]);
            make(300, 200);
            return 0;
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            return 1;
        make(20, 400);
    }
    return 0;
}
