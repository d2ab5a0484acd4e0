/*
 * Measures the stack that malloc and free use. A thread fills its stack with a pattern, calls them in waves of all
 * sizes, with blocks of its own and of another thread, and looks how deep the stack was written. Prints "name bytes"
 * for each kind of wave. Run with LD_BIND_NOW, which leaves out the dynamic linker.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STACK = 512 * 1024, NEAR = 512, PATTERN = 0xa7, BLOCKS = 20000, ROUNDS = 12 };

static char *stack;
static char stream_buffer[4096];
static void *own[BLOCKS], *others[BLOCKS];

static size_t size_of(int number)
{
    return number % 500 == 0 ? (size_t)number * 150 : number % 50 == 0 ? (size_t)number * 3 : (size_t)number % 1500;
}

static void fill(void **blocks)
{
    for (int i = 0; i < BLOCKS; i++)
        if (!(blocks[i] = malloc(size_of(i))))
            _exit(4);
}

static void *fill_others(void *unused)
{
    fill(others);
    return unused;
}

__attribute__((noinline)) static void call_malloc(void) { fill(own); }

__attribute__((noinline)) static void call_free(void)
{
    for (int i = 0; i < BLOCKS; i++)
        free(own[i * 7919LL % BLOCKS]);
}

__attribute__((noinline)) static void call_free_others(void)
{
    for (int i = 0; i < BLOCKS; i++)
        free(others[i * 7919LL % BLOCKS]);
}

__attribute__((noinline)) static void call_rest(void)
{
    for (int i = 0; i < BLOCKS; i += 10) {
        void *block = calloc(1, size_of(i)), *aligned = memalign((size_t)16 << i % 14, size_of(i));
        if (!block || !aligned || !(block = realloc(block, size_of(BLOCKS - i) + 1)))
            _exit(4);
        free(block);
        free(aligned);
    }
}

__attribute__((noinline)) static size_t depth_of(void (*call)(void))
{
    char *here = __builtin_frame_address(0), *top = here - NEAR, *low;
    for (char *at = stack; at < top; at++)
        *(volatile char *)at = (char)PATTERN;
    call();
    for (low = stack; low < top && *low == (char)PATTERN; low++)
        continue;
    return (size_t)(here - low);
}

static void *measure(void *argument)
{
    static const char *const names[] = { "malloc", "free", "free_others", "rest" };
    static void (*const calls[])(void) = { call_malloc, call_free, call_free_others, call_rest };
    size_t most[4] = { 0 };

    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, fill_others, NULL) != 0 || pthread_join(thread, NULL) != 0)
            _exit(5);
        for (int i = 0; i < 4; i++) {
            size_t depth = depth_of(calls[i]);
            if (round > 0 && depth > most[i]) /* the first round may still bind weak names */
                most[i] = depth;
        }
    }
    for (int i = 0; i < 4; i++)
        printf("%s %zu\n", names[i], most[i]);
    return argument;
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_t thread;

    setvbuf(stdout, stream_buffer, _IOFBF, sizeof stream_buffer);
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_init(&attributes);
    if (stack == MAP_FAILED || pthread_attr_setstack(&attributes, stack, STACK) != 0 ||
        pthread_create(&thread, &attributes, measure, NULL) != 0)
        return 5;
    pthread_join(thread, NULL);
    return 0;
}
