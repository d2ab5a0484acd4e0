/*
 * What the programs of the misuse suite share, for C and C++.
 *
 *   PROGRAM KIND SIZE THREAD
 *
 * misuses a block of SIZE bytes once, in the thread that allocated it (same) or in another (other), and then looks for
 * harm. An observer judges the misuse by these words on stdout, one a line:
 *
 *   before    the misuse comes next; all was right until now
 *   after     the misuse was not stopped
 *   harm      it did what an attacker wants: other blocks share memory, changed or can be read
 *   end       the program reached its end
 *
 * It prints without allocating. It looks for harm at once: an attacker does not wait until the allocator notices.
 */
#ifndef TESTS_HARDENING_SUITE_SCENE_H
#define TESTS_HARDENING_SUITE_SCENE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif
void free_sized(void *block, size_t size) __attribute__((weak));
void free_aligned_sized(void *block, size_t alignment, size_t size) __attribute__((weak));
void sdallocx(void *block, size_t size, int flags) __attribute__((weak));
#ifdef __cplusplus
}
#endif

/* How the program's language allocates, in misuse.c or misuse.cpp. */
static char *take(size_t size);
static void give(void *block);

enum { NEIGHBOURS = 4, AGAIN = 64, AGAIN_BIG = 8, BIG = 1 << 20, EDGE = 4096, NO_SUCH_FUNCTION = 77 };
enum { MARK = 0x5a, SECRET = 0x2c, OTHERS = 0x71 };

static size_t size;
static char *victim;                     /* the misused block; NULL if it is not live when harm is looked for */
static char *neighbours[2 * NEIGHBOURS]; /* half of them are allocated before the victim */
static char *claimed;                    /* memory that no block may share, of `claimed_size` bytes */
static size_t claimed_size;
static char *again[AGAIN];

static void say(const char *word)
{
    char line[32];
    size_t length = strlen(word);

    memcpy(line, word, length);
    line[length] = '\n';
    if (write(1, line, length + 1) != (ssize_t)(length + 1))
        _exit(5);
}

static void harm(void)
{
    static int said;

    if (!said++)
        say("harm");
}

/* Hides the pointer's origin from the compiler. */
static char *hide(void *pointer)
{
    void *volatile hidden = pointer;
    return (char *)hidden;
}

/* Only the ends of large blocks are written and read. */
static size_t part(size_t bytes) { return bytes > 2 * (size_t)EDGE ? (size_t)EDGE : bytes; }

static void paint(char *block, int with)
{
    memset(block, with, part(size));
    memset(block + size - part(size), with, part(size));
}

static int is_painted(const char *block, int with)
{
    for (size_t i = 0; i < part(size); i++)
        if (block[i] != (char)with || block[size - 1 - i] != (char)with)
            return 0;
    return 1;
}

/* Whether the byte is anywhere in the block. Volatile, so that the compiler does not know the answer. */
static int shows(const volatile char *block, int byte)
{
    size_t count = 0;

    for (size_t i = 0; i < part(size); i++)
        count += (block[i] == (char)byte) + (block[size - 1 - i] == (char)byte);
    return count > part(size) / 2;
}

static void set_scene(void)
{
    for (int i = 0; i < NEIGHBOURS; i++)
        paint(neighbours[i] = take(size), OTHERS);
    paint(victim = take(size), MARK);
    for (int i = NEIGHBOURS; i < 2 * NEIGHBOURS; i++)
        paint(neighbours[i] = take(size), OTHERS);
}

static void look_at_neighbours(void)
{
    for (int i = 0; i < 2 * NEIGHBOURS; i++)
        if (neighbours[i] && !is_painted(neighbours[i], OTHERS))
            harm();
}

static int overlap(const char *a, size_t a_size, const char *b, size_t b_size)
{
    return a && b && a < b + b_size && b < a + a_size;
}

/* Takes blocks of the size again. None may overlap another or a live block. */
static void look_for_shared_memory(void)
{
    int count = size >= BIG ? AGAIN_BIG : AGAIN;

    for (int i = 0; i < count; i++) {
        again[i] = hide(take(size));
        if (overlap(again[i], size, victim, size) || overlap(again[i], size, claimed, claimed_size))
            harm();
        for (int k = 0; k < i; k++)
            if (overlap(again[i], size, again[k], size))
                harm();
        for (int k = 0; k < 2 * NEIGHBOURS; k++)
            if (overlap(again[i], size, neighbours[k], size))
                harm();
    }
}

/* The program goes on: it frees its blocks, uses other sizes, and makes the allocator take everything back. */
static void go_on(void)
{
    static char *others[3000];

    for (int i = 0; i < AGAIN; i++)
        if (again[i])
            give(again[i]);
    malloc_trim(0);
    for (int i = 0; i < 2 * NEIGHBOURS; i++)
        if (neighbours[i])
            give(neighbours[i]);
    for (int i = 0; i < 3000; i++)
        others[i] = take((size_t)i * 37 % 2000 + 1);
    for (int i = 0; i < 3000; i++)
        give(others[i]);
    for (int i = 0; i < (size >= BIG ? AGAIN_BIG : AGAIN); i++)
        give(take(size));
    malloc_trim(0);
}

/* ---- Kinds: a misuse, called between "before" and "after", and the check for its harm ---- */

struct kind {
    const char *name;
    void (*prepare)(void); /* no misuse yet; NULL: nothing to do */
    void (*misuse)(void);
    void (*look)(void); /* looks for harm; NULL: shared memory and changed neighbours */
};

static void write_at(ptrdiff_t from, size_t bytes) { memset(hide(victim) + from, SECRET, bytes); }
static void overflow_1(void) { write_at((ptrdiff_t)size, 1); }
static void overflow_32(void) { write_at((ptrdiff_t)size, 32); }
static void overflow_1m(void) { write_at((ptrdiff_t)size, 1 << 20); }
static void underflow_1(void) { write_at(-1, 1); }
static void underflow_32(void) { write_at(-32, 32); }
static void underflow_1m(void)
{
    for (char *at = hide(victim); at > victim - (1 << 20);)
        *--at = SECRET;
}
/* An overrun is harm by itself. Freeing the block then checks its canary. */
static void after_overrun(void)
{
    look_at_neighbours();
    give(victim);
    victim = NULL;
    look_for_shared_memory();
}

static char *freed;
static void free_it(void)
{
    paint(victim, SECRET);
    give(freed = victim);
    victim = NULL;
}
static void free_and_take_others(void)
{
    free_it();
    look_for_shared_memory();
    for (int i = 0; i < (size >= BIG ? AGAIN_BIG : AGAIN); i++)
        paint(again[i], OTHERS);
}
static void write_freed(void) { paint(hide(freed), MARK); }
static volatile int was_read;
static void read_freed(void) { was_read = shows(hide(freed), SECRET); }
static void read_freed_others(void) { was_read = shows(hide(freed), OTHERS); }
static void look_what_was_read(void)
{
    if (was_read)
        harm();
}
static void look_at_others(void)
{
    for (int i = 0; i < (size >= BIG ? AGAIN_BIG : AGAIN); i++)
        if (!is_painted(again[i], OTHERS))
            harm();
    look_at_neighbours();
}
/* The write does no harm if cleared memory stays clear and no other block changed. */
static void look_at_cleared(void)
{
    look_at_neighbours();
    for (int i = 0; i < (size >= BIG ? AGAIN_BIG : AGAIN); i++) {
        again[i] = (char *)calloc(1, size);
        if (!is_painted(again[i], 0))
            harm();
        free(again[i]);
        again[i] = NULL;
    }
    look_for_shared_memory();
}
static void write_after_realloc(void) { paint(hide(freed), MARK); }
static void move_it(void)
{
    freed = victim;
    victim = (char *)realloc(victim, size * 4 + 100000);
    if (victim == freed)
        freed = NULL; /* it grew in place: nothing to misuse */
    else
        paint(victim, MARK);
    if (!freed)
        _exit(NO_SUCH_FUNCTION);
}

static void free_again(void) { give(hide(freed)); }
static void free_other(void)
{
    give(neighbours[0]);
    neighbours[0] = NULL;
}
static void free_a_b(void)
{
    free_it();
    free_other();
}
static void free_take_other(void)
{
    free_it();
    victim = take(size); /* if it is the same block, the second free takes it from its owner */
    paint(victim, MARK);
    free_other();
}
static void free_take_all(void)
{
    free_it();
    for (int i = 0; i < (size >= BIG ? AGAIN_BIG : AGAIN); i++)
        again[i] = take(size);
    for (int i = 0; i < (size >= BIG ? AGAIN_BIG : AGAIN); i++) {
        give(again[i]);
        again[i] = NULL;
    }
}
static void free_and_trim(void)
{
    free_it();
    malloc_trim(0);
}
static void *run_free(void *block)
{
    give(block);
    return NULL;
}
static void free_elsewhere(void)
{
    pthread_t thread;

    freed = victim;
    victim = NULL;
    if (pthread_create(&thread, NULL, run_free, freed))
        _exit(5);
    pthread_join(thread, NULL);
}

static void free_inside_16(void) { give(hide(victim + 16)); }
static void free_middle(void) { give(hide(victim + (size / 2 & ~(size_t)15))); }
static void free_unaligned_1(void) { give(hide(victim + 1)); }
static void free_unaligned_8(void) { give(hide(victim + 8)); }

static char in_data[1 << 17] __attribute__((aligned(4096)));
static void free_claimed(void) { give(hide(claimed)); }
static void free_static(void)
{
    claimed = in_data + 8192;
    claimed_size = 8192;
    free_claimed();
}
static void free_mapped(void)
{
    char *mapped = (char *)mmap(NULL, 1 << 22, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    claimed = mapped + (1 << 21);
    claimed_size = 1 << 20;
    free_claimed();
}
static void free_on_stack(void)
{
    char on_stack[1 << 14] __attribute__((aligned(64)));
    memset(on_stack, 0, sizeof on_stack);
    claimed = hide(on_stack + 64);
    claimed_size = sizeof on_stack - 64;
    free_claimed();
}

static void need(void (*function)(void))
{
    if (!function)
        _exit(NO_SUCH_FUNCTION);
}
static void have_sized(void) { need((void (*)(void))free_sized); }
static void have_aligned_sized(void) { need((void (*)(void))free_aligned_sized); }
static void free_gone(void (*release)(void *, size_t), size_t told)
{
    char *block = victim;

    victim = NULL;
    release(hide(block), told);
}
static void by_size(void *block, size_t told) { free_sized(block, told); }
static void by_alignment(void *block, size_t told) { free_aligned_sized(block, told, size); }
static void sized_larger(void) { free_gone(by_size, size * 4); }
static void sized_smaller(void) { free_gone(by_size, size / 4); }
static void sized_aligned(void) { free_gone(by_alignment, 1 << 21); }

static void realloc_freed(void) { again[0] = (char *)realloc(hide(freed), size * 2); }
static void realloc_inside(void) { again[0] = (char *)realloc(hide(victim + 16), size * 2); }
static size_t usable;
static void usable_freed(void) { usable = malloc_usable_size(hide(freed)); }
static void usable_inside(void) { usable = malloc_usable_size(hide(victim + 16)); }
static void look_at_usable(void)
{
    if (usable)
        harm();
}

/* A block of no bytes has no byte to write or read. The scene's other blocks have its size. */
static char *none[3];
static void take_none(void)
{
    for (int i = 0; i < 3; i++)
        if (!(none[i] = take(0)))
            _exit(NO_SUCH_FUNCTION);
}
static void zero_write_1(void) { hide(none[1])[0] = SECRET; }
static void zero_write_32(void)
{
    memset(hide(none[1]), SECRET, 32);
}
static void zero_read(void) { was_read = *(volatile char *)hide(none[1]); }
/* A byte that belongs to no block may be written. Two blocks of no bytes must not be the same. */
static void zero_look(void)
{
    if (none[0] == none[1] || none[1] == none[2] || none[0][0] == SECRET || none[2][0] == SECRET)
        harm();
    for (int i = 0; i < 3; i++)
        give(none[i]);
}

/* No call is wrong here. Readable contents of freed memory are the harm. */
static void nothing(void) {}
static void leave_secrets(void)
{
    for (int i = 0; i < 2 * NEIGHBOURS; i++) {
        paint(neighbours[i], SECRET);
        give(neighbours[i]);
        neighbours[i] = NULL;
    }
    free_it();
}
static void look_for_secrets(void)
{
    for (int i = 0; i < (size >= BIG ? AGAIN_BIG : AGAIN); i++)
        if (shows(again[i] = take(size), SECRET))
            harm();
}
static void look_for_reuse(void)
{
    again[0] = take(size);
    if (again[0] == freed)
        harm();
}

static const struct kind *own_kinds(const char *name);

static const struct kind KINDS[] = {
    { "none", NULL, nothing, NULL },
    { "overflow-1", NULL, overflow_1, after_overrun },
    { "overflow-32", NULL, overflow_32, after_overrun },
    { "overflow-1M", NULL, overflow_1m, after_overrun },
    { "underflow-1", NULL, underflow_1, after_overrun },
    { "underflow-32", NULL, underflow_32, after_overrun },
    { "underflow-1M", NULL, underflow_1m, after_overrun },
    { "write-freed", free_it, write_freed, look_at_cleared },
    { "write-reused", free_and_take_others, write_freed, look_at_others },
    { "write-moved", move_it, write_after_realloc, look_at_cleared },
    { "read-freed", free_it, read_freed, look_what_was_read },
    { "read-reused", free_and_take_others, read_freed_others, look_what_was_read },
    { "double-direct", free_it, free_again, NULL },
    { "double-aba", free_a_b, free_again, NULL },
    { "double-taken", free_take_other, free_again, NULL },
    { "double-many", free_take_all, free_again, NULL },
    { "double-trimmed", free_and_trim, free_again, NULL },
    { "double-thread", free_elsewhere, free_again, NULL },
    { "free-inside", NULL, free_inside_16, NULL },
    { "free-middle", NULL, free_middle, NULL },
    { "free-unaligned-1", NULL, free_unaligned_1, NULL },
    { "free-unaligned-8", NULL, free_unaligned_8, NULL },
    { "free-static", NULL, free_static, NULL },
    { "free-mapped", NULL, free_mapped, NULL },
    { "free-stack", NULL, free_on_stack, NULL },
    { "sized-larger", have_sized, sized_larger, NULL },
    { "sized-smaller", have_sized, sized_smaller, NULL },
    { "sized-aligned", have_aligned_sized, sized_aligned, NULL },
    { "realloc-freed", free_it, realloc_freed, NULL },
    { "realloc-inside", NULL, realloc_inside, NULL },
    { "usable-freed", free_it, usable_freed, look_at_usable },
    { "usable-inside", NULL, usable_inside, look_at_usable },
    { "zero-write-1", take_none, zero_write_1, zero_look },
    { "zero-write-32", take_none, zero_write_32, zero_look },
    { "zero-read", take_none, zero_read, zero_look },
    { "secrets", leave_secrets, nothing, look_for_secrets },
    { "reuse", free_it, nothing, look_for_reuse },
};

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++)
        if (!strcmp(KINDS[i].name, name))
            return &KINDS[i];
    return own_kinds(name);
}

static void *act(void *argument)
{
    const struct kind *kind = (const struct kind *)argument;

    if (kind->prepare)
        kind->prepare();
    say("before");
    kind->misuse();
    say("after");
    if (kind->look) {
        kind->look();
    } else {
        look_for_shared_memory();
        look_at_neighbours();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const struct kind *kind = argc == 4 ? find_kind(argv[1]) : NULL;
    pthread_t thread;

    if (!kind)
        return 2;
    alarm(50); /* ends a hang */
    size = (size_t)strtoull(argv[2], NULL, 10);
    set_scene();
    if (!strcmp(argv[3], "same")) {
        act((void *)(uintptr_t)kind);
    } else {
        if (pthread_create(&thread, NULL, act, (void *)(uintptr_t)kind))
            return 5;
        pthread_join(thread, NULL);
    }
    go_on();
    say("end");
    return 0;
}

#endif
