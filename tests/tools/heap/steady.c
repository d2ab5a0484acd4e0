/*
 * A program without any knowledge of profiles. It obeys lines on stdin, and answers each with a line when it is done.
 *
 *   keep SIZE COUNT   allocate COUNT blocks in keep_hay, and keep them
 *   drop              free all of them
 *   spin              start a thread that takes and frees one block, from its cache
 *   pulse             start a thread that does so every 10 ms
 *   overrun COUNT     write 8 bytes behind the end of so many blocks
 */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 400000 };
static void *held[MOST];
static size_t count_held;

static __attribute__((noinline)) void *keep_hay(size_t size)
{
    void *volatile block = malloc(size);
    if (block)
        memset(block, 1, size);
    return block;
}

static __attribute__((noinline)) void keep_many(size_t size, size_t count)
{
    while (count-- && count_held < MOST)
        held[count_held++] = keep_hay(size);
    __asm__ volatile("" ::: "memory"); /* prevents a tail call */
}

static void *spin(void *pause)
{
    for (;;) {
        free(keep_hay(64));
        if (pause)
            usleep(10000);
    }
    return NULL;
}

int main(void)
{
    char line[200], word[32];
    size_t first, second;
    pthread_t thread;

    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IONBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        int words = sscanf(line, "%31s %zu %zu", word, &first, &second);
        if (words == 3 && strcmp(word, "keep") == 0)
            keep_many(first, second);
        else if (words == 1 && strcmp(word, "drop") == 0)
            while (count_held)
                free(held[--count_held]);
        else if (words == 1 && strcmp(word, "spin") == 0)
            pthread_create(&thread, NULL, spin, NULL);
        else if (words == 1 && strcmp(word, "pulse") == 0)
            pthread_create(&thread, NULL, spin, held);
        else if (words == 2 && strcmp(word, "overrun") == 0)
            for (; first; first--) {
                char *volatile block = malloc(1008);
                block[1016] = 1;
                free(block);
            }
        else
            return 2;
        puts("done");
    }
    return 0;
}
