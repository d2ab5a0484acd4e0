/* A library to preload before or behind the allocator: its constructor registers fork handlers that allocate. */
#define _GNU_SOURCE
#include "fork_handlers.h"

__attribute__((constructor(101))) static void at_start(void)
{
    register_handlers();
}

__attribute__((constructor)) static void later(void)
{
    find_heaps();
}
