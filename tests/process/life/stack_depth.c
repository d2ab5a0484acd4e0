/*
 * Measures the stack that the reporting functions use. A thread fills its stack with a pattern, calls a function, and
 * looks how deep the stack was written. Prints "name bytes" for each. malloc_info's figure includes the C library's
 * stream. Run with LD_BIND_NOW, which leaves out the dynamic linker.
 */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>
#include <hakmem/profile.h>
#include <hakmem/stats.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STACK = 512 * 1024, NEAR = 512, PATTERN = 0xa7 };

static char *stack;
static FILE *nowhere;
static char stream_buffer[65536];
static struct hak_stats_class classes[100];
static struct hak_stats_heap heaps[100];
static struct hak_stats_superslab superslabs[100];
static int nowhere_fd = -1;

static int swallow(void *argument, const char *text, size_t length)
{
    (void)argument;
    return text[0] == '\0' && length == 0;
}

/* Asks again from inside. The second report cannot use the static memory. */
static int swallow_and_ask(void *argument, const char *text, size_t length)
{
    struct hak_stats stats;
    (void)argument;
    (void)text;
    (void)length;
    return hak_stats_get(&stats, sizeof stats) == 0;
}

#define CALLS(CALL)                                                                                              \
    CALL(mallinfo2, (void)mallinfo2())                                                                           \
    CALL(mallinfo, (void)mallinfo())                                                                             \
    CALL(malloc_info, check(malloc_info(0, nowhere) == 0))                                                       \
    CALL(malloc_stats, malloc_stats())                                                                           \
    CALL(mallopt, (void)mallopt(M_MMAP_MAX, 1))                                                                  \
    CALL(hak_stats_get, { struct hak_stats stats; check(hak_stats_get(&stats, sizeof stats) != 0); })            \
    CALL(hak_stats_classes, check(hak_stats_classes(classes, sizeof classes[0], 100) != 0))                      \
    CALL(hak_stats_heaps, check(hak_stats_heaps(heaps, sizeof heaps[0], 100) != 0))                              \
    CALL(hak_stats_superslabs, check(hak_stats_superslabs(superslabs, sizeof superslabs[0], 100) != 0))          \
    CALL(print_text, check(hak_stats_print(HAK_STATS_TEXT, swallow, NULL) == 0))                                 \
    CALL(print_json, check(hak_stats_print(HAK_STATS_JSON, swallow, NULL) == 0))                                 \
    CALL(print_prometheus, check(hak_stats_print(HAK_STATS_PROMETHEUS, swallow, NULL) == 0))                     \
    CALL(print_and_ask, check(hak_stats_print(HAK_STATS_TEXT, swallow_and_ask, NULL) == 0))                      \
    CALL(profile_write, check(hak_profile_write_fd(nowhere_fd) == 0))

static void check(int good)
{
    if (!good) {
        fprintf(stderr, "a call failed\n");
        _exit(4);
    }
}

#define CALL_FUNCTION(name, expression)                          \
    __attribute__((noinline)) static void call_##name(void) { expression; }
CALLS(CALL_FUNCTION)

static const struct {
    const char *name;
    void (*call)(void);
} calls[] = {
#define CALL_ROW(name, expression) { #name, call_##name },
    CALLS(CALL_ROW)
};

static size_t depth_of(void (*call)(void))
{
    volatile char here;
    char *top = (char *)(uintptr_t)&here - NEAR, *low;
    for (char *at = stack; at < top; at++)
        *(volatile char *)at = (char)PATTERN;
    call();
    for (low = stack; low < top && *low == (char)PATTERN; low++)
        continue;
    return (size_t)((char *)(uintptr_t)&here - low);
}

static void *measure(void *argument)
{
    (void)argument;
    for (int warm = 0; warm < 2; warm++)
        for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
            size_t depth = depth_of(calls[i].call);
            if (warm)
                printf("%s %zu\n", calls[i].name, depth);
        }
    return NULL;
}

int main(void)
{
    static void *blocks[3000];
    pthread_attr_t attributes;
    pthread_t thread;

    setvbuf(stdout, stream_buffer, _IOFBF, sizeof stream_buffer / 2);
    check(freopen("/dev/null", "w", stderr) != NULL && (nowhere = fopen("/dev/null", "w")) != NULL);
    setvbuf(nowhere, stream_buffer + sizeof stream_buffer / 2, _IOFBF, sizeof stream_buffer / 2);
    nowhere_fd = fileno(nowhere);
    check(hak_profile_start(4096) == 0);
    for (size_t i = 0; i < 3000; i++)
        blocks[i] = malloc(i * i / 5 + 1);
    for (size_t i = 0; i < 3000; i += 2)
        free(blocks[i]);
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_init(&attributes);
    check(stack != MAP_FAILED && pthread_attr_setstack(&attributes, stack, STACK) == 0);
    check(pthread_create(&thread, &attributes, measure, NULL) == 0);
    pthread_join(thread, NULL);
    return 0;
}
