/* counts N: allocates N blocks, which are in use at the end. Then does what the second argument says. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) static void *keep(void) { return malloc(1000); }

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    size_t count = strtoul(argv[1], NULL, 10);
    void **kept = malloc(count * sizeof *kept);
    for (size_t i = 0; i < count; i++)
        if (!(kept[i] = keep()))
            return 3;
    if (argc > 3 && strcmp(argv[2], "signal") == 0)
        raise(atoi(argv[3]));
    if (argc > 3 && strcmp(argv[2], "exec") == 0)
        execvp(argv[3], argv + 3);
    printf("%p\n", (void *)kept);
    return argc > 3 && strcmp(argv[2], "status") == 0 ? atoi(argv[3]) : 0;
}
