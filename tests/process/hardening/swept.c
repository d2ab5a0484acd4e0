/* Frees one block while a pointer to it may be somewhere, and then allocates blocks of its size until its memory comes
 * back: prints "reused" or "kept". The program stores the address's complement, which a sweep does not recognize. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <hakmem/stats.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t size;
static uintptr_t hidden; /* complement of the victim's address */
static char *volatile global;
static _Atomic int told, leave;
static int pipe_ends[2];

static char *victim(void) { return (char *)~*(volatile uintptr_t *)&hidden; }

static __attribute__((noinline)) void make_victim(void) { hidden = ~(uintptr_t)malloc(size); }
static __attribute__((noinline)) void free_victim(void) { free(victim()); }
static __attribute__((noinline)) void point_into(char kind)
{
    global = kind == 'i'   ? victim() + size / 2
             : kind == 'e' ? victim() + size
                           : (char *)((uintptr_t)victim() | 0xfff8000000000000u);
}
static __attribute__((noinline)) void free_circle(void)
{
    char *volatile *first = malloc(size), *volatile *second = malloc(size);
    first[0] = (char *)second;
    second[0] = (char *)first;
    hidden = ~(uintptr_t)first;
    free((void *)second);
    free((void *)first);
}
/* Clears what earlier calls left on the stack below. */
static __attribute__((noinline)) void wipe_stack(void)
{
    char wiped[16384];
    memset(wiped, 0, sizeof wiped);
    __asm__ volatile("" ::"r"(wiped) : "memory"); /* keeps the compiler from dropping it */
}

/* Whether allocations of `bytes` in total get memory of the victim's. */
static __attribute__((noinline)) int is_reused(size_t bytes)
{
    for (size_t done = 0; done < bytes; done += size) {
        char *block = malloc(size);
        uintptr_t complement;
        if (block == NULL)
            abort();
        block[0] = 1;
        complement = ~(uintptr_t)block;
        free(block);
        /* Read anew: a compiler may keep the victim's address instead. */
        if (complement - *(volatile uintptr_t *)&hidden + size - 1 < 2 * size - 1)
            return 1;
    }
    return 0;
}

static int churn(void) { return is_reused(size >= 65536 ? 400 * size : (size_t)48 << 20); }

static void say(int reused) { puts(reused ? "reused" : "kept"); }

static void *hold_on_stack(void *unused)
{
    char *volatile held = victim();
    (void)unused;
    told = 1;
    while (!leave)
        usleep(1000);
    return (void *)(uintptr_t)(held == NULL);
}

/* The address is in a register only. With `call` the thread is in a system call meanwhile. */
static void *hold_in_register(void *call)
{
    _Atomic int *flag = &leave;
    char byte;
#if defined(__x86_64__)
    if (call)
        __asm__ volatile(
            "mov %0, %%r12\n\tnot %%r12\n\tmovl $1, (%1)\n\txor %%eax, %%eax\n\tsyscall\n\txor %%r12, %%r12"
            :
            : "r"(hidden), "r"(&told), "D"((long)pipe_ends[0]), "S"(&byte), "d"(1L)
            : "rax", "rcx", "r11", "r12", "memory");
    else
        __asm__ volatile(
            "mov %0, %%r12\n\tnot %%r12\n\tmovl $1, (%1)\n1:\tpause\n\tcmpl $0, (%2)\n\tje 1b\n\txor %%r12, %%r12"
            :
            : "r"(hidden), "r"(&told), "r"(flag)
            : "r12", "memory");
#else
    register char *held __asm__("x21") = victim();
    (void)call, (void)byte;
    __asm__ volatile("" : "+r"(held));
    told = 1;
    while (!*flag)
        __asm__ volatile("" : "+r"(held));
#endif
    return NULL;
}

/* The pointer is in a vector register only. */
static void *hold_in_vector(void *unused)
{
    (void)unused;
#if defined(__x86_64__)
    __asm__ volatile("mov %0, %%rax\n\tnot %%rax\n\tmovq %%rax, %%xmm13\n\txor %%eax, %%eax\n\tmovl $1, "
                     "(%1)\n1:\tpause\n\tcmpl $0, (%2)\n\t"
                     "je 1b\n\tpxor %%xmm13, %%xmm13"
                     :
                     : "r"(hidden), "r"(&told), "r"(&leave)
                     : "rax", "xmm13", "memory");
#else
    __asm__ volatile("mvn x9, %0\n\tfmov d13, x9\n\tmov x9, 0\n\tmov w10, 1\n\tstr w10, [%1]\n1:\tldr w10, [%2]\n\tcbz "
                     "w10, 1b\n\tfmov d13, xzr"
                     :
                     : "r"(hidden), "r"(&told), "r"(&leave)
                     : "x9", "x10", "v13", "memory");
#endif
    return NULL;
}

/* As programs do it: glibc leaves two signals out. */
static void *mask_and_hold(void *unused)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    return hold_in_register(unused);
}

static void *block_signals(void *unused)
{
    unsigned long long all = ~0ull;
    char *volatile held = victim();
    (void)unused;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof all);
    told = 1;
    while (!leave)
        usleep(1000);
    return (void *)(uintptr_t)(held == NULL);
}

static void with_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    pipe(pipe_ends);
    make_victim();
    pthread_create(&thread, NULL, run, argument);
    while (!told)
        usleep(100);
    free_victim();
    say(churn());
    leave = 1;
    write(pipe_ends[1], "x", 1);
    pthread_join(thread, NULL);
    say(churn()); /* its stack stays mapped, and may still hold the pointer */
}

static volatile sig_atomic_t signals;
static void on_signal(int number) { signals += number == 16; }

static void churn_in_handler(int number)
{
    (void)number;
    for (int i = 0; i < 300; i++)
        free(malloc(700));
    signals++;
}

static void *churn_thread(void *seed)
{
    uintptr_t random = (uintptr_t)seed;
    void *held[64] = { 0 };
    for (long i = 0; i < 60000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned at = random >> 40 & 63;
        free(held[at]);
        held[at] = malloc(16 + (random >> 33) % 2000);
        memset(held[at], (int)i, 16);
    }
    for (unsigned i = 0; i < 64; i++)
        free(held[i]);
    return NULL;
}

static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (fscanf(file, "%*d %ld", &pages) != 1)
        abort();
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";

    size = argc > 2 ? (size_t)atol(argv[2]) : 64;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (strcmp(kind, "nowhere") == 0) {
        make_victim();
        free_victim();
        wipe_stack();
        say(churn());
    } else if (strcmp(kind, "global") == 0) {
        make_victim();
        global = victim();
        free_victim();
        say(churn());
        global = NULL;
        wipe_stack();
        say(churn());
    } else if (strcmp(kind, "interior") == 0 || strcmp(kind, "end") == 0 || strcmp(kind, "tagged") == 0) {
        make_victim();
        point_into(kind[0]);
        free_victim();
        say(churn());
        global = NULL;
        wipe_stack();
        say(churn());
    } else if (strcmp(kind, "heap") == 0) {
        char *volatile *other = malloc(3000);
        make_victim();
        other[200] = victim();
        free_victim();
        say(churn());
        other[200] = NULL;
        wipe_stack();
        say(churn());
        free((void *)other);
    } else if (strcmp(kind, "small") == 0) { /* a small block that the program holds among free ones */
        static char *volatile *blocks[256];
        for (int i = 0; i < 256; i++)
            blocks[i] = malloc(200);
        for (int i = 0; i < 256; i++) {
            if (i == 100)
                continue;
            free((void *)blocks[i]);
            blocks[i] = NULL;
        }
        make_victim();
        blocks[100][1] = victim();
        free_victim();
        say(churn());
        blocks[100][1] = NULL;
        wipe_stack();
        say(churn());
    } else if (strcmp(kind, "mapping") == 0) {
        char *volatile *other = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        make_victim();
        other[70000] = victim();
        free_victim();
        say(churn());
        mprotect((void *)other, 1 << 20, PROT_READ);
        say(churn());
        munmap((void *)other, 1 << 20);
        wipe_stack();
        say(churn());
    } else if (strcmp(kind, "stack") == 0) {
        with_thread(hold_on_stack, NULL);
    } else if (strcmp(kind, "register") == 0) {
        with_thread(hold_in_register, NULL);
    } else if (strcmp(kind, "call") == 0) {
        with_thread(hold_in_register, "");
    } else if (strcmp(kind, "vector") == 0) {
        with_thread(hold_in_vector, NULL);
    } else if (strcmp(kind, "handled") == 0) { /* the program uses the sweep's signal itself */
        signal(16, on_signal);
        with_thread(hold_in_register, NULL);
        printf("%d signals\n", signals);
    } else if (strcmp(kind, "handler") == 0) { /* frees, and so sweeps, in signal handlers on their own stack */
        struct sigaction action = { .sa_handler = churn_in_handler, .sa_flags = SA_ONSTACK | SA_RESTART };
        stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
        struct itimerval timer = { { 0, 1000 }, { 0, 1000 } };
        pthread_t thread;
        sigaltstack(&stack, NULL);
        sigaction(SIGALRM, &action, NULL);
        make_victim();
        global = victim();
        free_victim();
        pthread_create(&thread, NULL, hold_on_stack, NULL);
        setitimer(ITIMER_REAL, &timer, NULL);
        while (signals < 200)
            ;
        timer = (struct itimerval){ { 0, 0 }, { 0, 0 } };
        setitimer(ITIMER_REAL, &timer, NULL);
        leave = 1;
        pthread_join(thread, NULL);
        say(churn());
    } else if (strcmp(kind, "deaf") == 0) {
        with_thread(block_signals, NULL);
    } else if (strcmp(kind, "masked") == 0) {
        with_thread(mask_and_hold, NULL);
    } else if (strcmp(kind, "hidden") == 0) {
        make_victim();
        global = (char *)((uintptr_t)victim() ^ 0x5555555555555555u);
        free_victim();
        wipe_stack();
        say(churn());
    } else if (strcmp(kind, "cycle") == 0) { /* two freed blocks that point to each other */
        free_circle();
        wipe_stack();
        say(churn());
    } else if (strcmp(kind, "moved") == 0) { /* moved by realloc */
        make_victim();
        global = victim();
        char *blocker = malloc(size); /* often behind it */
        global = realloc(victim(), 64 * size);
        if (global == victim()) {
            puts("grown in place");
            return 0;
        }
        char *fresh = global;
        global = victim();
        say(churn());
        free(fresh);
        free(blocker);
    } else if (strcmp(kind, "fork") == 0) {
        make_victim();
        global = victim();
        free_victim();
        for (int i = 0; i < 2; i++) {
            pid_t child = fork();
            int status;
            if (child == 0) {
                say(churn());
                global = NULL;
                wipe_stack();
                say(churn());
                _exit(0);
            }
            if (waitpid(child, &status, 0) != child || status)
                abort();
            say(churn());
        }
    } else if (strcmp(kind, "forks") == 0) { /* while other threads sweep */
        pthread_t threads[4];
        for (uintptr_t i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, churn_thread, (void *)(i + 1));
        for (int i = 0; i < 16; i++) {
            pid_t child = fork();
            int status;
            if (child == 0) {
                churn_thread((void *)(uintptr_t)(i + 99));
                _exit(0);
            }
            if (waitpid(child, &status, 0) != child || status)
                abort();
        }
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        puts("done");
    } else if (strcmp(kind, "threads") == 0) {
        pthread_t threads[16];
        for (int round = 0; round < 3; round++) {
            for (uintptr_t i = 0; i < 16; i++)
                pthread_create(&threads[i], NULL, churn_thread, (void *)(i + 1));
            for (int i = 0; i < 16; i++)
                pthread_join(threads[i], NULL);
        }
        printf("resident %ld KiB\n", resident_kib());
    } else if (strcmp(kind, "limit") == 0) { /* 40 MB of each size in turn, of a limit of 64 */
        for (size_t each = 1000; each <= 4000000; each *= 4) {
            size_t count = 40000000 / each;
            char **blocks = malloc(count * sizeof *blocks);
            for (size_t i = 0; i < count; i++) {
                blocks[i] = malloc(each);
                if (blocks[i] == NULL) {
                    printf("no memory for block %zu of %zu bytes\n", i, each);
                    return 1;
                }
                memset(blocks[i], 1, each);
            }
            for (size_t i = 0; i < count; i++)
                free(blocks[i]);
            free(blocks);
        }
        puts("done");
    } else if (strcmp(kind, "exhausted") == 0) { /* allocates until it gets the block, or NULL */
        make_victim();
        global = victim();
        free_victim();
        for (char *block; (block = malloc(size)) != NULL;)
            if (block == victim()) {
                say(1);
                return 0;
            }
        say(0);
    } else if (strcmp(kind, "counted") == 0) {
        int (*get)(struct hak_stats *, size_t) =
            (int (*)(struct hak_stats *, size_t))dlsym(RTLD_DEFAULT, "hak_stats_get");
        struct hak_stats before, stats;
        get(&before, sizeof before);
        for (int i = 0; i < 100000; i++)
            free(malloc(2000));
        get(&stats, sizeof stats);
        if (stats.sweeps <= before.sweeps || stats.sweep_scanned == 0 || stats.sweep_released < 50000 ||
            stats.sweep_yielded != 0 || stats.live > before.live + 100000)
            printf("%lu sweeps, %lu bytes, %lu released, %lu yielded, %lu live\n", (long)stats.sweeps,
                   (long)stats.sweep_scanned, (long)stats.sweep_released, (long)stats.sweep_yielded, (long)stats.live);
        else
            puts("counted");
    } else {
        return 2;
    }
    return 0;
}
