/* stderr HOW FILE: changes standard error before the program ends. First prints the numbers of open files. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void print_open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;

    if (!folder)
        abort();
    while ((entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder))
            printf("%s ", entry->d_name);
    closedir(folder);
    puts("");
    fflush(stdout);
}

/* As GNU's tools do. */
static void close_at_exit(void)
{
    if (fclose(stderr) != 0)
        _exit(7);
}

static int open_file(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0)
        abort();
    return file;
}

static void close_all_and_use_the_numbers(const char *path)
{
    for (int number = 2; number < 1100; number++)
        close(number);
    int file = open_file(path);
    for (int number = 3; number < 1010; number++)
        if (dup2(file, number) != number)
            abort();
    close(file);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    print_open_files();
    if (strcmp(argv[1], "close") == 0) {
        atexit(close_at_exit);
    } else if (strcmp(argv[1], "all") == 0) {
        close_all_and_use_the_numbers(argv[2]);
    } else if (strcmp(argv[1], "redirect") == 0) {
        dup2(open_file(argv[2]), STDERR_FILENO);
    } else if (strcmp(argv[1], "fork") == 0) {
        pid_t child = fork();
        if (child == 0) {
            print_open_files();
            errno = 42;
            _exit(0);
        }
        waitpid(child, NULL, 0);
    } else if (strcmp(argv[1], "exec") == 0) {
        execlp("ls", "ls", "/proc/self/fd", (char *)NULL);
    }
    free(malloc(100));
    return 0;
}
