/*
 * fastpath_trace LIBRARY SIZE...
 *
 * Prints the addresses of the instructions that malloc, free, hak_free_sized and the other entry points execute in
 * LIBRARY on a hit, from a real run: the program starts itself with LIBRARY preloaded, and steps by single instructions
 * through the calls that its copy marks with breakpoints. One line a call:
 *
 *   FUNCTION SIZE CALL OFFSET,OFFSET,...
 *
 * An OFFSET is relative to LIBRARY's load address, in hexadecimal, in order of execution. Instructions outside of
 * LIBRARY (the jump through the caller's linkage table) are left out.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "entries.h"

#if !defined(__x86_64__)
#error "this program reads x86-64 registers"
#endif

enum { WARM_BLOCKS = 40, WARM_ROUNDS = 200, CALLS = 10, STEPS_MOST = 1000000,
       CALLOC_MOST = 10000 /* memset of more takes too many steps */ };

/* ---- The program that is watched ---- */

/* The functions that are watched: these three, and the entry points that bench/drivers/entries.h lists. */
#define NUMBER(name, there, before, call, after) ENTRY_##name,
#define NAME(name, there, before, call, after) #name,
enum { AFTER, MALLOC, FREE, HAK_FREE_SIZED, ENTRIES_THAT_HIT(NUMBER) NAMES };
static const char *const names[] = {"", "malloc", "free", "hak_free_sized", ENTRIES_THAT_HIT(NAME)};

/* A stop for the watcher: `what` is the number of the function that is called next, or AFTER a call. */
static inline __attribute__((always_inline)) void mark(uint64_t what, uint64_t size, uint64_t call)
{
    __asm__ volatile("int3" : : "a"(what), "b"(size), "c"(call) : "memory");
}

/* One call of each entry point between two marks. What it took is freed, so that the next call hits. */
#define WATCH(name, there, before, call, after)                                                                        \
    if ((there) && (ENTRY_##name != ENTRY_calloc || size <= CALLOC_MOST)) {                                            \
        before;                                                                                                        \
        mark(ENTRY_##name, size, number);                                                                              \
        call;                                                                                                          \
        mark(AFTER, size, number);                                                                                     \
        after;                                                                                                         \
    }

static void watch_entries(size_t size, uint64_t number)
{
    struct entry_place place = {.block = malloc(size)}, *at = &place;
    ENTRIES_THAT_HIT(WATCH)
    free(place.block);
}

static int be_watched(int count, char **sizes)
{
    static void *blocks[WARM_BLOCKS];
    entries_find();
    /* Only HAKMEM has it. The program also runs on other allocators. */
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "hak_free_sized");

    for (int i = 0; i < count; i++) {
        size_t size = strtoul(sizes[i], NULL, 10);
        /* Brings the thread's cache into the state of a busy program: some blocks in it, and room for more. */
        for (int round = 0; round < WARM_ROUNDS; round++) {
            for (int b = 0; b < WARM_BLOCKS; b++)
                blocks[b] = malloc(size);
            for (int b = 0; b < WARM_BLOCKS; b++)
                free(blocks[b]);
        }
        for (int b = 0; b < WARM_BLOCKS / 2; b++)
            blocks[b] = malloc(size);
        for (uint64_t call = 0; call < CALLS; call++) {
            mark(MALLOC, size, call);
            blocks[call] = malloc(size);
            mark(AFTER, size, call);
        }
        for (uint64_t call = 0; call < CALLS; call++) {
            mark(FREE, size, call);
            free(blocks[call]);
            mark(AFTER, size, call);
        }
        for (uint64_t call = CALLS; free_sized && call < 2 * CALLS; call++) {
            mark(HAK_FREE_SIZED, size, call);
            free_sized(blocks[call], size);
            mark(AFTER, size, call);
        }
        for (uint64_t call = 0; call < CALLS; call++)
            watch_entries(size, call);
    }
    return 0;
}

/* ---- The watcher ---- */

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "fastpath_trace: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Finds where the process has mapped the library. Returns false while it has not. */
static int find_library(pid_t pid, const char *library, unsigned long *first, unsigned long *last)
{
    char path[64], line[PATH_MAX + 256];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "r");
    if (maps == NULL)
        fail(path);
    int found = 0;
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;
        line[strcspn(line, "\n")] = '\0';
        const char *name = strchr(line, '/');
        if (name == NULL || strcmp(name, library) != 0 || sscanf(line, "%lx-%lx", &from, &to) != 2)
            continue;
        if (!found)
            *first = from;
        *last = to;
        found = 1;
    }
    fclose(maps);
    return found;
}

static struct user_regs_struct registers(pid_t pid)
{
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GETREGS, pid, NULL, &regs) != 0)
        fail("PTRACE_GETREGS");
    return regs;
}

/* Lets the process run (or make one step) to its next stop. Returns 0 when it has ended normally. */
static int advance(pid_t pid, int how)
{
    int status;
    if (ptrace(how, pid, NULL, NULL) != 0)
        fail("ptrace");
    if (waitpid(pid, &status, 0) != pid)
        fail("waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
        fprintf(stderr, "fastpath_trace: the watched program ended or stopped with status %#x\n", (unsigned)status);
        exit(1);
    }
    return 1;
}

static int is_breakpoint(pid_t pid, unsigned long address)
{
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, pid, (void *)address, NULL);
    return errno == 0 && (word & 0xff) == 0xcc;
}

static void watch(pid_t pid, const char *library)
{
    unsigned long first = 0, last = 0;

    while (advance(pid, PTRACE_CONT)) {
        struct user_regs_struct regs = registers(pid);
        if (regs.rax == AFTER || regs.rax >= NAMES)
            continue;
        if (!find_library(pid, library, &first, &last)) {
            fprintf(stderr, "fastpath_trace: %s is not mapped in the watched program\n", library);
            exit(1);
        }
        printf("%s %llu %llu ", names[regs.rax], regs.rbx, regs.rcx);
        const char *separator = "";
        int steps = 0;
        for (;; steps++) {
            if (steps == STEPS_MOST) {
                fprintf(stderr, "fastpath_trace: no end after %d steps\n", steps);
                exit(1);
            }
            if (!advance(pid, PTRACE_SINGLESTEP)) {
                fprintf(stderr, "fastpath_trace: the watched program ended inside a call\n");
                exit(1);
            }
            unsigned long at = registers(pid).rip;
            if (at >= first && at < last) {
                printf("%s%lx", separator, at - first);
                separator = ",";
            } else if (is_breakpoint(pid, at)) {
                break;
            }
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--watched") == 0)
        return be_watched(argc - 2, argv + 2);
    if (argc < 3) {
        fprintf(stderr, "usage: fastpath_trace LIBRARY SIZE...\n");
        return 2;
    }
    static char library[PATH_MAX];
    if (realpath(argv[1], library) == NULL)
        fail(argv[1]);
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0) {
        setenv("LD_PRELOAD", library, 1);
        setenv("LD_BIND_NOW", "1", 1);
        personality(ADDR_NO_RANDOMIZE);
        argv[1] = "--watched";
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            fail("PTRACE_TRACEME");
        execv("/proc/self/exe", argv);
        fail("execv");
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
        fprintf(stderr, "fastpath_trace: the watched program did not start\n");
        return 1;
    }
    watch(pid, library);
    return 0;
}
