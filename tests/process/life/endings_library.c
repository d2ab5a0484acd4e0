/* A library that gives out blocks and frees some in its destructor. It is closed while other blocks live on. */
#define _GNU_SOURCE
#include "foreign.h"

unsigned char **library_blocks(void);
void library_run_thread(void);

static unsigned char *blocks[ALL_SIZES], *own[ALL_SIZES];

__attribute__((constructor)) static void begin(void)
{
    for (unsigned i = 0; i < ALL_SIZES; i++)
        mark_block(own[i] = malloc(size_number(i)), size_number(i));
}

__attribute__((destructor)) static void end(void)
{
    for (unsigned i = 0; i < ALL_SIZES; i++) {
        check_block(own[i], size_number(i));
        free(own[i]);
    }
    use_all_sizes();
}

unsigned char **library_blocks(void)
{
    for (unsigned i = 0; i < ALL_SIZES; i++)
        mark_block(blocks[i] = malloc(size_number(i)), size_number(i));
    return blocks;
}

static _Thread_local struct work_block in_thread[20];

static void *run(void *unused)
{
    uint64_t state = 1;
    work_steps(in_thread, 20, 200, &state);
    work_drop_all(in_thread, 20);
    return unused;
}

void library_run_thread(void)
{
    pthread_join(begin_thread(run, NULL), NULL);
}
