/*
 * thread_exit THREADS: each thread's pthread keys have destructors that free, allocate and set themselves again, for
 * as many rounds as POSIX has (PTHREAD_DESTRUCTOR_ITERATIONS), so before and after the allocator's own farewell to
 * the thread. Keys are made before the first allocation and after it. All memory must be back in use for the next
 * thread: the process must not grow.
 */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "work.h"

enum { KEYS = 6 };

static pthread_key_t keys[KEYS];
static atomic_long calls;

struct cargo {
    int rounds;
    int key;
    char *blocks[40];
};

static void destroy(void *value)
{
    struct cargo *cargo = value;

    atomic_fetch_add(&calls, 1);
    for (int i = 0; i < 40; i++) {
        size_t size = (size_t)(i * 100 + 1);
        if (cargo->blocks[i][0] != (char)i || cargo->blocks[i][size - 1] != (char)i)
            fail("contents in a destructor");
        free(cargo->blocks[i]);
        cargo->blocks[i] = memset(malloc(size), i, size);
    }
    struct cargo *next = malloc(sizeof(*next));
    *next = *cargo;
    free(cargo);
    if (++next->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(keys[next->key], next);
        return;
    }
    for (int i = 0; i < 40; i++)
        free(next->blocks[i]);
    free(next);
}

__attribute__((constructor(101))) static void make_keys_first(void)
{
    for (int i = 0; i < KEYS / 2; i++)
        pthread_key_create(&keys[i], destroy);
}

static void *run(void *argument)
{
    for (int k = 0; k < KEYS; k++) {
        struct cargo *cargo = calloc(1, sizeof(*cargo));
        cargo->key = k;
        for (int i = 0; i < 40; i++)
            cargo->blocks[i] = memset(malloc((size_t)(i * 100 + 1)), i, (size_t)(i * 100 + 1));
        pthread_setspecific(keys[k], cargo);
    }
    return argument;
}

/* A thread whose first call of the allocator is in a destructor. */
static void first_call(void *value)
{
    free(malloc(100));
    (void)value;
}

static pthread_key_t late_key;

static void *run_without_malloc(void *argument)
{
    pthread_setspecific(late_key, argument);
    return argument;
}

int main(int argc, char **argv)
{
    size_t before = 0;

    if (argc != 2)
        return 2;
    int count = atoi(argv[1]);
    free(malloc(1));
    for (int i = KEYS / 2; i < KEYS; i++)
        pthread_key_create(&keys[i], destroy);
    pthread_key_create(&late_key, first_call);
    for (int n = 0; n < count; n++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, i == 3 ? run_without_malloc : run, &before);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        if (n == count / 4)
            before = work_resident();
    }
    if (atomic_load(&calls) != (long)count * 3 * KEYS * PTHREAD_DESTRUCTOR_ITERATIONS)
        fail("number of destructor calls");
    if (work_resident() > before + (8 << 20))
        fail("memory of dead threads is lost");
    puts("done");
    return 0;
}
