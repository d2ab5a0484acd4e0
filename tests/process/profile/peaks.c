/* Patterns whose peak in use is known exactly: peaks PATTERN SEED prints the most bytes that were in use at once. All
 * blocks are freed at the end. peaks fork lets three children allocate the same blocks. */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define SITE_BITS 10u
#define BLOCKS_MOST 200000u

static uint64_t state;
static void *blocks[BLOCKS_MOST];
static size_t sizes[BLOCKS_MOST];
static size_t live, peak;

static uint32_t draw(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) % below);
}

/* The path to the call is the site: a bit chooses each caller. */
static void *take(unsigned path, unsigned left, size_t size);
NOINLINE static void *take_left(unsigned path, unsigned left, size_t size)
{
    void *block = take(path >> 1, left - 1, size);
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}
NOINLINE static void *take_right(unsigned path, unsigned left, size_t size)
{
    void *block = take(path >> 1, left - 1, size);
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}
NOINLINE static void *take(unsigned path, unsigned left, size_t size)
{
    void *volatile block;

    if (left == 0)
        block = malloc(size);
    else
        block = path & 1 ? take_left(path, left, size) : take_right(path, left, size);
    return block;
}

static void drop(unsigned i)
{
    if (blocks[i] == NULL)
        return;
    live -= sizes[i];
    free(blocks[i]);
    blocks[i] = NULL;
}

static void put(unsigned i, unsigned path, unsigned path_bits, size_t size)
{
    drop(i);
    blocks[i] = take(path, path_bits, size);
    if (blocks[i] == NULL)
        exit(1);
    sizes[i] = malloc_usable_size(blocks[i]);
    live += sizes[i];
    peak = live > peak ? live : peak;
}

struct pattern {
    const char *name;
    unsigned blocks, path_bits;
    size_t least, most; /* bytes of a block */
    uint64_t churn;     /* bytes replaced after the first */
};
static const struct pattern patterns[] = {
    { "small", 1200, 2, 16, 464, UINT64_C(2) << 30 },            /* 0.28 MiB in use */
    { "medium", 430, 2, 8192, 65536, UINT64_C(4) << 30 },        /* 15 MiB in use */
    { "types", 90000, 8, 16, 496, UINT64_C(1) << 30 },           /* 22 MiB in use, 256 sites */
    { "sites", 180000, SITE_BITS, 16, 1008, UINT64_C(1) << 30 }, /* 88 MiB in use, 1,024 sites */
    { "rise", 90000, 8, 16, 496, 0 },                            /* no block comes back before the peak */
};

static void run(const struct pattern *pattern)
{
    uint64_t churned = 0;

    for (unsigned i = 0; i < pattern->blocks; i++)
        put(i, draw(1u << pattern->path_bits), pattern->path_bits,
            pattern->least + draw((uint32_t)(pattern->most - pattern->least)));
    while (churned < pattern->churn) {
        unsigned i = draw(pattern->blocks);
        put(i, draw(1u << pattern->path_bits), pattern->path_bits,
            pattern->least + draw((uint32_t)(pattern->most - pattern->least)));
        churned += sizes[i];
    }
    for (unsigned i = 0; i < pattern->blocks; i++)
        drop(i);
}

/* One thread allocates, and another frees. The bytes in the queue are the same all the time, but for one block. */
#define QUEUE 1000u
static void *_Atomic queue[QUEUE];

static void *consume(void *rounds)
{
    for (uint64_t i = 0, most = *(uint64_t *)rounds; i < most; i++) {
        void *block;
        while ((block = __atomic_exchange_n((void **)&queue[i % QUEUE], NULL, __ATOMIC_ACQUIRE)) == NULL)
            ;
        free(block);
    }
    return NULL;
}

static void pass(void)
{
    uint64_t rounds = (UINT64_C(1) << 30) / 288;
    pthread_t consumer;

    peak = QUEUE * (size_t)288;
    if (pthread_create(&consumer, NULL, consume, &rounds) != 0)
        exit(1);
    for (uint64_t i = 0; i < rounds; i++) {
        void *block = malloc(280);
        while (__atomic_load_n((void **)&queue[i % QUEUE], __ATOMIC_RELAXED) != NULL)
            ;
        __atomic_store_n((void **)&queue[i % QUEUE], block, __ATOMIC_RELEASE);
    }
    pthread_join(consumer, NULL);
}

/* All children do the same, beginning with blocks that their parent's countdowns have reached. */
static void fork_children(const struct pattern *pattern)
{
    put(0, 0, 1, 64);
    for (unsigned child = 0; child < 3; child++) {
        pid_t process = fork();
        int status;
        if (process == 0) {
            run(pattern);
            exit(0);
        }
        if (process < 0 || waitpid(process, &status, 0) != process || status != 0)
            exit(1);
    }
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "small";

    state = count > 2 ? strtoull(arguments[2], NULL, 0) : 1;
    if (strcmp(name, "pass") == 0)
        pass();
    if (strcmp(name, "fork") == 0)
        fork_children(&patterns[4]);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (strcmp(name, patterns[i].name) == 0)
            run(&patterns[i]);
    printf("%zu\n", peak);
    return 0;
}
