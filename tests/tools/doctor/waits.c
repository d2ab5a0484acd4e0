/* Does what its arguments say, prints "ready", and waits until its standard input ends.
 * deepbind:FILE global:FILE load:FILE
 *                          dlopen with RTLD_DEEPBIND, with RTLD_GLOBAL, or plain; calls plugin_use if it exists
 * lock                     mlockall of the present mappings
 * nothp                    turns transparent huge pages off for the process
 * maps:N                   makes N more mappings
 * title                    writes over the environment, as programs do that show a title */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static int load(const char *path, int flags)
{
    void *handle = dlopen(path, RTLD_NOW | flags);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void (*use)(void) = (void (*)(void))dlsym(handle, "plugin_use");
    if (use != NULL)
        use();
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0;
    char *block = malloc(1000);
    if (block == NULL)
        return 1;
    memset(block, 1, 1000);
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], ':');
        value = value != NULL ? value + 1 : "";
        if (strncmp(argv[i], "deepbind:", 9) == 0)
            failed |= load(value, RTLD_DEEPBIND);
        else if (strncmp(argv[i], "global:", 7) == 0)
            failed |= load(value, RTLD_GLOBAL);
        else if (strncmp(argv[i], "load:", 5) == 0)
            failed |= load(value, 0);
        else if (strcmp(argv[i], "lock") == 0)
            failed |= mlock(block, 1000) != 0;
        else if (strcmp(argv[i], "nothp") == 0)
            failed |= prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0;
        else if (strcmp(argv[i], "title") == 0) {
            char *first = environ[0], *end = first;
            for (char **entry = environ; *entry != NULL; entry++)
                end = *entry + strlen(*entry);
            environ[0] = NULL;
            memset(first, 0, (size_t)(end - first));
        } else if (strncmp(argv[i], "maps:", 5) == 0) {
            char *pages = mmap(NULL, (size_t)atoi(value) * 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int j = 0; j < atoi(value); j++)
                failed |= mprotect(pages + (size_t)j * 8192, 4096, PROT_READ) != 0;
        }
    }
    if (failed)
        return 1;
    puts("ready");
    fflush(stdout);
    char rest[16];
    while (read(0, rest, sizeof rest) > 0)
        ;
    free(block);
    return 0;
}
