/* Preloaded: prints at the end the sizes that malloc and realloc were asked for, in order of their first call, with the
 * number of calls; the peak of live blocks; and how many pages of freed blocks the program had written at their
 * beginning. A block begins with 0 in each of its pages. */
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

enum { KINDS = 64, BLOCKS = 1 << 16, PAGE = 4096 };

extern void *__libc_malloc(size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void __libc_free(void *block);

static size_t sizes[KINDS];
static unsigned counts[KINDS], kinds;
static void *blocks[BLOCKS];
static size_t block_sizes[BLOCKS];
static unsigned live, most, last;
static unsigned long pages;

static void count(size_t size)
{
    unsigned kind = 0;
    while (kind < kinds && sizes[kind] != size)
        kind++;
    if (kind < KINDS) {
        sizes[kind] = size;
        counts[kind]++;
        kinds += kind == kinds;
    }
}

void *malloc(size_t size)
{
    char *block = __libc_malloc(size);
    count(size);
    for (size_t at = 0; at < size; at += PAGE)
        block[at] = 0;
    for (unsigned i = 0; i < BLOCKS; i++, last = (last + 1) % BLOCKS)
        if (blocks[last] == NULL) {
            blocks[last] = block;
            block_sizes[last] = size;
            break;
        }
    if (++live > most)
        most = live;
    return block;
}

/* The program's strings: no other block than theirs is ever moved here. */
void *realloc(void *block, size_t size)
{
    void *moved = __libc_realloc(block, size);
    count(size);
    for (unsigned i = 0; block != NULL && i < BLOCKS; i++)
        if (blocks[i] == block)
            blocks[i] = moved;
    return moved;
}

void free(void *block)
{
    for (unsigned i = 0; block != NULL && i < BLOCKS; i++)
        if (blocks[i] == block) {
            for (size_t at = 0; at < block_sizes[i]; at += PAGE)
                pages += ((char *)block)[at] != 0;
            blocks[i] = NULL;
            live--;
            break;
        }
    __libc_free(block);
}

__attribute__((destructor)) static void tell(void)
{
    dprintf(STDOUT_FILENO, "SIZES");
    for (unsigned i = 0; i < kinds; i++)
        dprintf(STDOUT_FILENO, " %zux%u", sizes[i], counts[i]);
    dprintf(STDOUT_FILENO, "\nHELD %u\nPAGES %lu\n", most, pages);
}
