/* What the programs here share: they print the pointer, misuse it, and show that the allocator still works if not
 * aborted. */
#ifndef TESTS_MISUSE_USE_H
#define TESTS_MISUSE_USE_H

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void free_sized(void *block, size_t size) __attribute__((weak));
void free_aligned_sized(void *block, size_t alignment, size_t size) __attribute__((weak));
void sdallocx(void *block, size_t size, int flags) __attribute__((weak));

/* Prints without allocating, unlike dprintf, so that the misuse meets unchanged memory. */
static inline __attribute__((format(printf, 2, 3))) void say(int file, const char *format, ...)
{
    char line[128];
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (write(file, line, (size_t)length) != length)
        _exit(5);
}

/* Prints the pointer before its misuse. The test finds it again in the message. */
static inline void *announce(void *pointer)
{
    say(1, "%p\n", pointer);
    return pointer;
}

/* Passes the pointer to the function of that name. */
static inline void use(const char *function, void *pointer)
{
    if (!strcmp(function, "free"))
        free(pointer);
    else if (!strcmp(function, "realloc"))
        pointer = realloc(pointer, 5000);
    else if (!strcmp(function, "malloc_usable_size"))
        say(2, "usable %zu\n", malloc_usable_size(pointer));
    else if (!strcmp(function, "free_sized"))
        free_sized(pointer, 100);
    else
        exit(2);
}

/* Allocates blocks of many sizes, checks that they keep their contents and do not overlap, and frees them. */
static inline void check_the_allocator_works(void)
{
    enum { COUNT = 3000 };
    static unsigned char *blocks[COUNT];

    for (int i = 0; i < COUNT; i++) {
        size_t size = (size_t)i * 37 % 9000 + 1;
        blocks[i] = memset(malloc(size), i & 0xff, size);
    }
    for (int i = 0; i < COUNT; i++) {
        size_t size = (size_t)i * 37 % 9000 + 1;
        for (size_t k = 0; k < size; k++)
            if (blocks[i][k] != (i & 0xff))
                exit(3);
        free(blocks[i]);
    }
    say(1, "went on\n");
}

#endif
