/*
 * Calls the allocator before any constructor of the program or a library has run: from .preinit_array, and from the
 * resolver of an indirect function, which runs while the dynamic linker still binds symbols. The first call of all is
 * free(NULL).
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *from_resolver;

#ifdef WITHOUT_RESOLVER
/* In a static program resolvers run before thread-local storage exists. There glibc's own malloc fails too. */
static int answer(void)
{
    from_resolver = malloc(100);
    return 42;
}
#else
static int chosen(void)
{
    return 42;
}

static int (*resolve(void))(void)
{
    free(NULL);
    from_resolver = malloc(100);
    free(malloc(50000));
    return chosen;
}

int answer(void) __attribute__((ifunc("resolve")));
#endif

static void *from_preinit;

static void before_all(void)
{
    free(NULL);
    from_preinit = memset(malloc(70000), 1, 70000);
    free(calloc(3, 3));
}

__attribute__((section(".preinit_array"), used)) static void (*const entry)(void) = before_all;

int main(void)
{
    int answered = answer();
    printf("%d %d %d\n", answered, from_resolver != NULL, from_preinit != NULL);
    if (malloc_usable_size(from_preinit) < 70000 || malloc_usable_size(from_resolver) < 100)
        return 3;
    free(from_resolver);
    free(from_preinit);
    return 0;
}
