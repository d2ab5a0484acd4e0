/* A program of one thread, linked only to the C library: forks, blocks of all sizes. Prints "ok". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 20, BLOCKS = 1000 };

int main(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        char *blocks[BLOCKS];
        for (size_t i = 0; i < BLOCKS; i++)
            memset(blocks[i] = malloc(i * 30 + 1), 1, i * 30 + 1);
        for (size_t i = 0; i < BLOCKS; i++)
            free(blocks[i]);
        pid_t child = fork();
        if (child == 0) {
            free(malloc(100000));
            _exit(7);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
            return 1;
    }
    puts("ok");
    return 0;
}
