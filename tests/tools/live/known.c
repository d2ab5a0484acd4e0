/*
 * Obeys lines on stdin, and answers each with a line when it is done. Keeps its own count of the blocks that it holds.
 *
 *   take SIZE COUNT     allocate, write and keep COUNT blocks          -> first block, usable size
 *   drop SIZE STEP      free every STEP-th of the kept blocks of SIZE  -> number freed
 *   thread SIZE COUNT   the same as take, in a thread that then waits  -> its thread id
 *   leave SIZE COUNT    the same in a thread that then ends            -> its thread id
 *   count               -> "SIZE:BLOCKS ..." by usable size
 *   info                -> of mallinfo2: arena hblks hblkhd uordblks fordblks fsmblks keepcost ordblks
 *   map BYTES           map and write anonymous memory
 *   code FILE           map FILE as code                               -> 1
 *   collect             malloc_trim
 *   end
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 2000000
static void *held[MOST];
static size_t asked[MOST];
static size_t count_held;
static char in_buffer[256], out_buffer[65536];

struct order {
    size_t size, count;
    int waits;
    pthread_barrier_t done;
    pid_t tid;
};

static void take(size_t size, size_t count)
{
    for (size_t i = 0; i < count && count_held < MOST; i++) {
        held[count_held] = malloc(size);
        memset(held[count_held], 1, size);
        asked[count_held++] = size;
    }
}

static void *work(void *argument)
{
    struct order *order = argument;
    int waits = order->waits;

    order->tid = gettid();
    take(order->size, order->count);
    pthread_barrier_wait(&order->done);
    while (waits)
        pause();
    return NULL;
}

static pid_t in_thread(size_t size, size_t count, int waits)
{
    struct order order = { .size = size, .count = count, .waits = waits };
    pthread_t thread;

    pthread_barrier_init(&order.done, NULL, 2);
    pthread_create(&thread, NULL, work, &order);
    pthread_barrier_wait(&order.done);
    if (!waits)
        pthread_join(thread, NULL);
    return order.tid;
}

static size_t drop(size_t size, size_t step)
{
    size_t seen = 0, freed = 0;

    for (size_t i = 0; i < count_held; i++)
        if (held[i] && asked[i] == size && seen++ % step == 0) {
            free(held[i]);
            held[i] = NULL;
            freed++;
        }
    return freed;
}

static void print_count(void)
{
    static size_t sizes[256], counts[256];
    size_t kinds = 0;

    memset(counts, 0, sizeof counts);
    for (size_t i = 0; i < count_held; i++) {
        size_t usable = held[i] ? malloc_usable_size(held[i]) : 0, kind = 0;
        if (usable == 0)
            continue;
        while (kind < kinds && sizes[kind] != usable)
            kind++;
        if (kind == kinds)
            sizes[kinds++] = usable;
        counts[kind]++;
    }
    for (size_t kind = 0; kind < kinds; kind++)
        printf("%zu:%zu ", sizes[kind], counts[kind]);
    puts("");
}

int main(void)
{
    char word[16], line[256];
    size_t first, second;

    setvbuf(stdin, in_buffer, _IOLBF, sizeof in_buffer);
    setvbuf(stdout, out_buffer, _IOLBF, sizeof out_buffer);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        int words = sscanf(line, "%15s %zu %zu", word, &first, &second);
        if (words < 1 || strcmp(word, "end") == 0)
            break;
        if (strcmp(word, "take") == 0) {
            size_t from = count_held;
            take(first, second);
            printf("%zu %zu\n", (size_t)held[from], malloc_usable_size(held[from]));
        } else if (strcmp(word, "drop") == 0) {
            printf("%zu\n", drop(first, second));
        } else if (strcmp(word, "thread") == 0 || strcmp(word, "leave") == 0) {
            printf("%d\n", in_thread(first, second, word[0] == 't'));
        } else if (strcmp(word, "count") == 0) {
            print_count();
        } else if (strcmp(word, "info") == 0) {
            struct mallinfo2 info = mallinfo2();
            printf("%zu %zu %zu %zu %zu %zu %zu %zu\n", info.arena, info.hblks, info.hblkhd, info.uordblks,
                   info.fordblks, info.fsmblks, info.keepcost, info.ordblks);
        } else if (strcmp(word, "map") == 0) {
            char *own = mmap(NULL, first, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(own, 1, first);
            printf("%zu\n", (size_t)own);
        } else if (strcmp(word, "code") == 0) {
            char path[256] = "";
            sscanf(line, "%*s %255s", path);
            int file = open(path, O_RDONLY);
            printf("%d\n", mmap(NULL, 1 << 22, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) != MAP_FAILED);
            close(file);
        } else if (strcmp(word, "collect") == 0) {
            printf("%d\n", malloc_trim(0));
        } else {
            puts("?");
        }
    }
    return 0;
}
