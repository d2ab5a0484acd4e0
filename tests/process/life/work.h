/* Allocation work that checks contents, for the programs here. */
#ifndef TESTS_LIFE_WORK_H
#define TESTS_LIFE_WORK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ends the process, from any thread, with a message and status 3. */
static inline void fail(const char *what)
{
    dprintf(2, "failed: %s\n", what);
    _exit(3);
}

static inline uint64_t work_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Mostly small sizes, some up to 32 KiB, a few up to 1 MiB. */
static inline size_t work_size(uint64_t *state)
{
    uint64_t kind = work_next(state) % 256;
    return 1 + work_next(state) % (kind < 200 ? 512 : kind < 254 ? 32768 : 1 << 20);
}

struct work_block {
    unsigned char *start;
    size_t size;
};

static inline void work_fill(struct work_block *block, uint64_t *state)
{
    block->size = work_size(state);
    block->start = malloc(block->size);
    if (!block->start)
        fail("malloc");
    block->start[0] = block->start[block->size - 1] = block->start[block->size / 2] = (unsigned char)block->size;
}

static inline void work_drop(struct work_block *block)
{
    unsigned char mark = (unsigned char)block->size;
    if (block->start[0] != mark || block->start[block->size - 1] != mark || block->start[block->size / 2] != mark)
        fail("contents of a block");
    free(block->start);
    block->start = NULL;
}

/* Makes `steps` random allocations and frees, with at most `count` blocks live. Leaves them in blocks[]. */
static inline void work_steps(struct work_block *blocks, unsigned count, unsigned steps, uint64_t *state)
{
    while (steps-- > 0) {
        struct work_block *block = &blocks[work_next(state) % count];
        if (block->start)
            work_drop(block);
        else
            work_fill(block, state);
    }
}

static inline void work_drop_all(struct work_block *blocks, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (blocks[i].start)
            work_drop(&blocks[i]);
}

/* Puts a new block of `size` bytes, marked at its end, in front of a chain. Returns NULL, with errno ENOMEM, on
 * failure. */
static inline char *work_chain(char **chain, size_t size)
{
    char *block;

    errno = 0;
    block = malloc(size);
    if (!block) {
        if (errno != ENOMEM)
            fail("errno is not ENOMEM");
        return NULL;
    }
    memcpy(block, chain, sizeof(*chain));
    block[size - 1] = 0x5a;
    *chain = block;
    return block;
}

/* Frees the first block of a chain. */
static inline void work_unchain(char **chain, size_t size)
{
    char *block = *chain;

    memcpy(chain, block, sizeof(*chain));
    if (block[size - 1] != 0x5a)
        fail("contents");
    free(block);
}

/* Resident bytes of this process. */
static inline size_t work_resident(void)
{
    char text[64] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || !fgets(text, sizeof(text), file))
        fail("/proc/self/statm");
    fclose(file);
    return strtoul(strchr(text, ' '), NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Fails if the process has grown since `before`. With `tell` prints the growth in KiB, for emulators. */
static inline void work_check_growth(size_t before, int tell)
{
    size_t now = work_resident();

    if (tell)
        printf("%zu KiB\n", now > before ? (now - before) >> 10 : 0);
    else if (now > before + (8 << 20))
        fail("memory of dead threads is lost");
}

#endif
