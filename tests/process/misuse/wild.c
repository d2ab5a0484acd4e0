/* wild FUNCTION WHERE...: passes a function addresses that no allocator has given out. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "use.h"

static long in_data[64] = { 1 };

static void *address(const char *where, long *on_stack)
{
    if (!strcmp(where, "stack"))
        return on_stack + 4;
    if (!strcmp(where, "static"))
        return &in_data[8];
    if (!strcmp(where, "code"))
        return (void *)(uintptr_t)&address;
    if (!strcmp(where, "literal"))
        return (void *)(uintptr_t)"a literal of some length";
    if (!strcmp(where, "mapped"))
        return mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(where, "program-break"))
        return (char *)sbrk(1 << 16) + 64;
    return (void *)(uintptr_t)strtoull(where, NULL, 0);
}

int main(int argc, char **argv)
{
    long on_stack[16] = { 0 };

    if (argc < 3)
        return 2;
    void *live = memset(malloc(100), 1, 100);
    for (int i = 2; i < argc; i++)
        use(argv[1], announce(address(argv[i], on_stack)));
    check_the_allocator_works();
    free(live);
    return 0;
}
