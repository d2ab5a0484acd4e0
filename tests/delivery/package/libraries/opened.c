/*
 * Opens each library in turn, and prints for how many there was room.
 *
 * opened LIBRARY...
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    int opened = 0;

    while (opened < count - 1 && dlopen(arguments[opened + 1], RTLD_NOW | RTLD_LOCAL) != NULL)
        opened++;
    printf("%d %s\n", opened, opened < count - 1 ? dlerror() : "all");
    return 0;
}
