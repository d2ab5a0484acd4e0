/*
 * misused KIND SIZE: misuses one block of SIZE bytes as KIND says. Prints "went on" if the program still runs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef GO_ON
extern const char hakmem_options[];
const char hakmem_options[] = "ABORT_ON_MISUSE=0";
#endif

/* The last byte of larger free blocks that is looked at, before their end; how many blocks `closed` frees. */
enum { TURNS = 20000, GUARD_UNIT = 65536, WATCHED = 31, CLOSINGS = 500 };

static const char *kind;
static size_t size;
/* `other` belongs to another thread. Volatile, so that the compiler does not see the misuse. */
static char *volatile block, *volatile other;

static void *free_it(void *unused)
{
    (void)unused;
    free(block);
    return NULL;
}

static void in_other_thread(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, free_it, NULL);
    pthread_join(thread, NULL);
}

static int compare(const void *a, const void *b)
{
    const char *one = *(char *const *)a, *other = *(char *const *)b;

    return (one > other) - (one < other);
}

/* Of two neighbours the lower one; `block` becomes the upper one. */
static char *neighbour(void)
{
    enum { MANY = 2000 };
    static char *many[MANY];
    char *lower = NULL;
    ptrdiff_t least = PTRDIFF_MAX;

    for (int i = 0; i < MANY; i++)
        many[i] = malloc(size);
    qsort(many, MANY, sizeof *many, compare);
    for (int i = 1; i < MANY; i++)
        if (many[i] - many[i - 1] < least) {
            least = many[i] - many[i - 1];
            lower = many[i - 1];
            block = many[i];
        }
    return lower;
}

static int is(const char *name) { return strcmp(kind, name) == 0; }

/* Uses blocks of the size until the freed one is reused. */
static void use_again(void)
{
    for (int i = 0; i < TURNS; i++) {
        char *volatile one = malloc(size);
        if (i % 2)
            free(one);
    }
}

/* Changes each byte, whatever it was: it may be a seal. */
static void write_at(ptrdiff_t offset, size_t count)
{
    for (char *at = block + offset; count; at++, count--)
        *at = *at == 0x41 ? 0x42 : 0x41;
}

static void look_for_secret(const volatile char *bytes)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i]) {
            puts("secret");
            break;
        }
    }
}

static void misuse(void)
{
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");

    if (is("overflow_1") || is("overflow_32") || is("overflow_second_byte")) {
        write_at((ptrdiff_t)size + is("overflow_second_byte"), is("overflow_32") ? 32 : 1);
        free(block);
    } else if (is("overflow_realloc")) {
        write_at((ptrdiff_t)size, 1);
        block = realloc(block, size + 1);
    } else if (is("underflow_1") || is("underflow_8")) {
        size_t count = is("underflow_1") ? 1 : 8;
        char *lower = neighbour();
        printf("%p\n", (void *)lower);
        write_at(-(ptrdiff_t)count, count);
        free(block);
        free(lower);
    } else if (is("double")) {
        free(block);
        free(block);
    } else if (is("double_between")) {
        free(block);
        free(other);
        free(block);
    } else if (is("double_other_thread")) {
        free(block);
        in_other_thread();
    } else if (is("double_after_other_thread")) {
        in_other_thread();
        free(block);
    } else if (is("double_after_trim")) {
        free(block);
        malloc_trim(0);
        free(block);
    } else if (is("interior")) {
        free(block + 16);
    } else if (is("unaligned")) {
        free(block + 1);
    } else if (is("realloc_freed")) {
        free(block);
        block = realloc(block, size + 1);
    } else if (is("usable_freed")) {
        free(block);
        printf("%zu\n", malloc_usable_size(block));
    } else if (is("wrong_size")) {
        free_sized(block, size + 1);
    } else if (is("write_after_free")) {
        free(block);
        write_at(size / 2 < WATCHED ? (ptrdiff_t)size / 2 : WATCHED, 1);
        use_again();
    } else if (is("write_at_end")) {
        free(block);
        write_at(size / 2 < WATCHED ? (ptrdiff_t)size / 2 : WATCHED, 1);
    } else if (is("closed")) {
        /* Counts freed blocks that nobody can access, by chance: the kernel refuses to write from them. */
        int ends[2], count = 0;
        if (pipe(ends) != 0)
            exit(3);
        for (int i = 0; i < CLOSINGS; i++) {
            char *volatile one = malloc(size), drop;
            memset(one, 1, size);
            free(one);
            if (write(ends[1], one, 1) == 1)
                count -= read(ends[0], &drop, 1) != 1;
            else
                count++;
        }
        printf("%d\n", count);
    } else if (is("read_after_free")) {
        free(block);
        look_for_secret(block);
    } else if (is("overflow_taken")) {
        /* Every other block is free, most of them in their slabs; the ends of those between are written. */
        static char *many[8000];
        for (int i = 0; i < 8000; i++)
            many[i] = malloc(size);
        for (int i = 1; i < 8000; i += 2)
            free(many[i]);
        for (int i = 0; i < 8000; i += 2) {
            block = many[i];
            write_at((ptrdiff_t)size + 4, 1);
        }
        for (int i = 1; i < 8000; i += 2)
            many[i] = malloc(size);
    } else if (is("calloc_after_free")) {
        char *again;
        free(block);
        again = calloc(1, size);
        look_for_secret(again);
        free(again);
    } else {
        puts("no such kind");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    kind = argv[1];
    size = strtoul(argv[2], NULL, 0);
    setvbuf(stdout, NULL, _IONBF, 0);
    /* Blocks before and behind whichever block is taken. */
    for (int i = 0; i < 8; i++)
        memset(malloc(size), 1, size);
    block = malloc(size);
    /* A slab's last block ends at a guard unit. A write that goes on there faults, and no free comes to find it. */
    while (is("overflow_32") && size < 50000 &&
           ((uintptr_t)block + size + 31) / GUARD_UNIT != (uintptr_t)block / GUARD_UNIT)
        block = malloc(size);
    other = malloc(size);
    memset(block, 0x53, size);
    memset(other, 0x53, size);
    printf("%p\n", (void *)block);
    misuse();
    puts("went on");
    return 0;
}
