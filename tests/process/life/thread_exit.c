/*
 * thread_exit THREADS [tell]: each thread's pthread keys have destructors that free, allocate and set the key again,
 * for all rounds that POSIX allows (PTHREAD_DESTRUCTOR_ITERATIONS), so before and after the allocator's own destructor.
 * Some keys are made before the first allocation and some after. The next thread must use all of the memory again: the
 * process must not grow (work.h, tell).
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

/* The thread's first call of the allocator is in a destructor. */
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

    if (argc < 2)
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
    work_check_growth(before, argc > 2);
    puts("done");
    return 0;
}
