/*
 * foreign_init LIBRARY: a thread opens the library and stops in its initialisation, where it writes a message to a
 * standard error that nobody reads. Main forks there. The child calls the library and must get an answer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>

#include "foreign.h"

static const char *path;

static void *open_library(void *unused)
{
    if (!dlopen(path, RTLD_NOW))
        fail(dlerror());
    return unused;
}

static bool thread_sleeps(pid_t thread)
{
    char name[64], text[512] = "";
    snprintf(name, sizeof(name), "/proc/self/task/%d/stat", (int)thread);
    int file = open(name, O_RDONLY);
    if (file < 0 || read(file, text, sizeof(text) - 1) <= 0)
        fail(name);
    close(file);
    return strstr(text, ") S ") != NULL;
}

static atomic_int opener;

static void *run(void *unused)
{
    atomic_store(&opener, gettid());
    return open_library(unused);
}

int main(int argc, char **argv)
{
    char junk[4096] = "";
    int full[2], standing = 0, said = dup(1);
    void *(*hak_malloc)(size_t);
    void (*hak_free)(void *);

    if (argc != 2 || pipe(full))
        return 2;
    path = argv[1];
    setenv("HAKMEM_NO_SUCH_OPTION", "1", 1);
    fcntl(full[1], F_SETFL, O_NONBLOCK);
    while (write(full[1], junk, sizeof(junk)) > 0)
        continue;
    fcntl(full[1], F_SETFL, 0);
    dup2(full[1], 2);
    pthread_t thread = begin_thread(run, NULL);
    while (atomic_load(&opener) == 0)
        usleep(1000);
    while (standing < 20) {
        standing = thread_sleeps(atomic_load(&opener)) ? standing + 1 : 0;
        usleep(5000);
    }
    pid_t pid = fork();
    if (pid == 0) {
        fcntl(full[1], F_SETFL, O_NONBLOCK); /* the child's message is lost */
        void *library = dlopen(path, RTLD_NOW);
        *(void **)&hak_malloc = library ? dlsym(library, "hak_malloc") : NULL;
        *(void **)&hak_free = library ? dlsym(library, "hak_free") : NULL;
        if (!hak_malloc || !hak_free)
            _exit(4);
        void *block = hak_malloc(100);
        hak_free(memset(block, 1, 100));
        _exit(0);
    }
    dup2(said, 2);
    expect_child(pid, "the child");
    while (read(full[0], junk, sizeof(junk)) == sizeof(junk))
        continue;
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
