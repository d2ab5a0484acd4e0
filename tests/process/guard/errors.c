/* errors MODE: one error at a guarded block. A symbolized report must show these functions' names. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hakmem/guard.h>
#include <hakmem/stats.h>

enum { SIZE = 1000, TRIES = 4000 };
enum side { LEFT, RIGHT, ANY };

static void die(const char *what)
{
    fprintf(stderr, "errors: %s\n", what);
    _exit(3);
}

static void check(int holds, const char *what)
{
    if (!holds)
        die(what);
}

/* Only a guarded block has exactly the requested number of bytes: no size class has SIZE. */
static int is_guarded(void *block) { return malloc_usable_size(block) == SIZE; }

static enum side side_of(const void *block)
{
    return (uintptr_t)block % (uintptr_t)sysconf(_SC_PAGESIZE) == 0 ? LEFT : RIGHT;
}

__attribute__((noinline)) static char *allocate_here(enum side side)
{
    static void *others[TRIES];
    char *found = NULL;
    int count = 0;

    while (found == NULL && count < TRIES) {
        char *block = malloc(SIZE);
        if (is_guarded(block) && (side == ANY || side_of(block) == side))
            found = block;
        else
            others[count++] = block;
    }
    while (count)
        free(others[--count]);
    check(found != NULL, "no guarded block");
    printf("%p\n", (void *)found);
    fflush(stdout);
    return found;
}

__attribute__((noinline)) static void free_here(void *block) { free(block); }

__attribute__((noinline)) static void write_here(volatile char *place) { *place = 1; }

__attribute__((noinline)) static char read_here(volatile char *place) { return *place; }

static void *use_in_thread(void *block)
{
    pthread_setname_np(pthread_self(), "other \"thread\"");
    read_here(block);
    return NULL;
}

static void *free_in_thread(void *block)
{
    free_here(block);
    return NULL;
}

static void in_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;

    check(pthread_create(&thread, NULL, run, argument) == 0, "pthread_create");
    pthread_join(thread, NULL);
}

/* The block's last byte: at the right end, up to 15 bytes before the page's last byte. */
static char *page_end(char *block)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    return (char *)(((uintptr_t)block + SIZE + page - 1) & ~(page - 1));
}

/* ---- The program's own handlers ---- */

static sigjmp_buf jump;
static volatile sig_atomic_t handled;
static volatile uintptr_t handled_address;
static struct sigaction before_mine;

static void jump_out(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    handled++;
    handled_address = (uintptr_t)info->si_addr;
    siglongjmp(jump, 1);
}

static void say_and_exit(int number)
{
    (void)number;
    check(write(STDOUT_FILENO, "mine\n", 5) == 5, "write");
    _exit(42);
}

/* Does what crash handlers do: their work, and then the previous handler. */
static void hand_back(int number, siginfo_t *info, void *context)
{
    handled++;
    if (before_mine.sa_flags & SA_SIGINFO)
        before_mine.sa_sigaction(number, info, context);
    else
        die("no handler was there before");
}

static void install(void (*action)(int, siginfo_t *, void *), int flags)
{
    struct sigaction mine = { .sa_sigaction = action, .sa_flags = SA_SIGINFO | flags };

    check(sigaction(SIGSEGV, &mine, &before_mine) == 0, "sigaction");
}

static char *volatile nowhere = (char *)64;

static void storm_of_others(void)
{
    for (volatile int i = 0; i < 20000; i++)
        if (sigsetjmp(jump, 1) == 0)
            read_here(nowhere);
    check(handled == 20000 && handled_address == 64, "faults elsewhere did not all arrive");
}

static void *storm_thread(void *block)
{
    for (int i = 0; i < 200; i++)
        write_here((char *)block + i);
    return NULL;
}

/* ---- Stacks ---- */

static void use_alternate_stack(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = { .ss_sp = memory + page, .ss_size = size };

    check(memory != MAP_FAILED && mprotect(memory, page, PROT_NONE) == 0, "mmap"); /* more stack use faults */
    check(sigaltstack(&stack, NULL) == 0, "sigaltstack");
}

static volatile char sink;
__attribute__((noinline)) static void overflow_stack(int depth)
{
    volatile char room[4096];

    room[0] = (char)depth;
    overflow_stack(depth + 1);
    sink = room[0];
}

/* ---- Modes ---- */

static void churn(void *unused)
{
    void *blocks[64] = { 0 };
    unsigned seed = (unsigned)(uintptr_t)unused;

    for (int i = 0; i < 2000; i++) {
        unsigned place = rand_r(&seed) % 64, size = rand_r(&seed) % 5000;
        if (blocks[place] && malloc_usable_size(blocks[place]) > 0)
            check(*(unsigned char *)blocks[place] == place, "a block's contents changed");
        if (rand_r(&seed) % 3 == 0) {
            blocks[place] = realloc(blocks[place], size + 1);
        } else {
            free(blocks[place]);
            blocks[place] = rand_r(&seed) % 2 ? malloc(size + 1) : calloc(1, size + 1);
        }
        memset(blocks[place], (int)place, size + 1);
    }
    for (int i = 0; i < 64; i++)
        free(blocks[i]);
}

static void *churn_thread(void *seed)
{
    churn(seed);
    return NULL;
}

static void run_kinds(void)
{
    char *block = allocate_here(ANY), *moved;
    hak_heap_t *heap;
    void *aligned = NULL;
    struct hak_stats stats;

    memset(block, 7, SIZE);
    check(realloc(block, SIZE) == block, "realloc to the same size moved");
    moved = realloc(block, SIZE / 2);
    check(moved != block && moved[0] == 7 && moved[SIZE / 2 - 1] == 7, "realloc lost contents");
    free(moved);
    for (int i = 0; i < TRIES; i++) {
        unsigned char *zeroed = calloc(1, SIZE);
        for (int at = 0; at < SIZE; at++)
            check(zeroed[at] == 0, "calloc's block is not zero");
        free(zeroed);
    }
    for (size_t alignment = 32; alignment <= 4096; alignment *= 2) {
        int guarded = 0;
        for (int i = 0; i < TRIES && !guarded; i++) {
            check(posix_memalign(&aligned, alignment, SIZE) == 0, "posix_memalign");
            check((uintptr_t)aligned % alignment == 0, "not aligned");
            guarded = is_guarded(aligned);
            memset(aligned, 1, SIZE);
            free(aligned);
        }
        check(guarded, "no aligned block was guarded");
    }
    heap = hak_heap_new();
    for (int i = 0; i < 200; i++) {
        char *in_heap = hak_heap_malloc(heap, SIZE);
        check(hak_heap_of(in_heap) == heap, "a guarded block is not in its heap");
        memset(in_heap, 1, SIZE);
        if (i == 150) {
            check(hak_stats_get(&stats, sizeof stats) >= sizeof stats, "hak_stats_get");
            check(stats.guard_live > 100, "no guarded blocks in the heap");
            check(stats.mapped == stats.live + stats.cached + stats.free_in_slab + stats.retained + stats.metadata,
                  "the sum is wrong");
        }
    }
    hak_heap_destroy(heap);
    check(hak_stats_get(&stats, sizeof stats) >= sizeof stats, "hak_stats_get");
    check(stats.guard_live < 20 && stats.guard_allocated > 200 && stats.guard_reports == 0,
          "figures after the heap's end");
}

static void run_fork(void)
{
    char *block = allocate_here(ANY);
    pid_t child = fork();
    int status;

    if (child == 0) {
        churn((void *)5);
        free_here(block);
        char *own = allocate_here(ANY);
        free_here(own);
        read_here(own + 3);
        _exit(0);
    }
    check(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV,
          "the child did not fault");
    block[0] = 1;
    free(block);
    for (int i = 0; i < 6; i++) {
        pthread_t threads[2];
        for (int t = 0; t < 2; t++)
            pthread_create(&threads[t], NULL, churn_thread, (void *)(uintptr_t)(i + t + 1));
        child = fork();
        if (child == 0) {
            churn((void *)9);
            _exit(0);
        }
        check(waitpid(child, &status, 0) == child && status == 0, "a child that churns failed");
        for (int t = 0; t < 2; t++)
            pthread_join(threads[t], NULL);
    }
}

static void run_go_on(void)
{
    char *block = allocate_here(RIGHT), *behind = page_end(block);

    write_here(behind);
    write_here(behind + 1);
    check(*(volatile char *)behind == 1, "the page was not opened");
    block[SIZE - 1] = 5;
    free_here(block);
    check(read_here(block + SIZE - 1) == 5, "the contents did not stay");
    write_here(block);
    free_here(block);
    printf("went on\n");
}

static void run_storm(int go_on)
{
    pthread_t threads[8];
    char *block = allocate_here(LEFT);

    free_here(block);
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, storm_thread, block);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    check(go_on, "nobody ended the process");
    printf("went on\n");
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    char *block;

    if (strncmp(mode, "api", 3) == 0)
        check(hak_guard_start(1) == 0, "hak_guard_start");
    if (strcmp(mode, "behind") == 0) {
        block = allocate_here(RIGHT);
        write_here(page_end(block) + 2);
    } else if (strcmp(mode, "behind-read") == 0) {
        block = allocate_here(RIGHT);
        read_here(page_end(block));
    } else if (strcmp(mode, "before") == 0) {
        block = allocate_here(LEFT);
        read_here(block - 3);
    } else if (strcmp(mode, "after-free-read") == 0 || strcmp(mode, "api-start") == 0) {
        block = allocate_here(ANY);
        free_here(block);
        read_here(block + 4);
    } else if (strcmp(mode, "after-free-write") == 0) {
        block = allocate_here(ANY);
        free_here(block);
        write_here(block + SIZE - 1);
    } else if (strcmp(mode, "double-free") == 0) {
        block = allocate_here(ANY);
        free_here(block);
        free_here(block);
    } else if (strcmp(mode, "inside-free") == 0) {
        block = allocate_here(ANY);
        free_here(block + 16);
    } else if (strcmp(mode, "realloc-freed") == 0) {
        block = allocate_here(ANY);
        free_here(block);
        block = realloc(block, 10);
    } else if (strcmp(mode, "damage-behind") == 0) {
        block = allocate_here(ANY);
        write_here(block + SIZE + 1);
        free_here(block);
    } else if (strcmp(mode, "damage-before") == 0) {
        block = allocate_here(RIGHT);
        write_here(block - 7);
        free_here(block);
    } else if (strcmp(mode, "execute") == 0) {
        block = allocate_here(ANY);
        free_here(block);
        ((void (*)(void))(uintptr_t)block)();
    } else if (strcmp(mode, "threads") == 0) {
        block = allocate_here(ANY);
        in_thread(free_in_thread, block);
        in_thread(use_in_thread, block);
    } else if (strcmp(mode, "kinds") == 0) {
        run_kinds();
    } else if (strcmp(mode, "churn") == 0) {
        pthread_t threads[3];
        for (uintptr_t i = 0; i < 3; i++)
            pthread_create(&threads[i], NULL, churn_thread, (void *)(i + 1));
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
    } else if (strcmp(mode, "fork") == 0) {
        run_fork();
    } else if (strcmp(mode, "go-on") == 0) {
        run_go_on();
    } else if (strcmp(mode, "storm") == 0 || strcmp(mode, "storm-go-on") == 0) {
        run_storm(strcmp(mode, "storm-go-on") == 0);
    } else if (strcmp(mode, "api-stop") == 0) {
        block = allocate_here(ANY);
        hak_guard_stop();
        hak_collect(false);
        for (int i = 0; i < TRIES; i++) {
            void *other = malloc(SIZE);
            check(!is_guarded(other), "guarded after the stop");
            free(other);
        }
        check(is_guarded(block), "the guarded block is no more");
        free_here(block);
        read_here(block);
    } else if (strcmp(mode, "api-own-before") == 0) {
        /* The program's handler was first. HAKMEM's, installed by hak_guard_start, runs in front of it. */
        install(jump_out, 0);
        check(hak_guard_start(1) == 0, "hak_guard_start");
        storm_of_others();
        block = allocate_here(ANY);
        free_here(block);
        handled = 0;
        if (sigsetjmp(jump, 1) == 0)
            read_here(block);
        check(handled == 1 && handled_address == (uintptr_t)block, "the program's handler did not get the fault");
        printf("went on\n");
    } else if (strcmp(mode, "own-later") == 0) {
        install(jump_out, 0);
        block = allocate_here(ANY);
        free_here(block);
        if (sigsetjmp(jump, 1) == 0)
            read_here(block);
        check(handled == 1, "the program's handler did not get the fault");
        check(hak_guard_start(1) == 0, "hak_guard_start");
        handled = 0;
        storm_of_others();
        if (sigsetjmp(jump, 1) == 0)
            read_here(block + 1);
        check(handled == 20001, "the program's handler did not get the reported fault");
        printf("went on\n");
    } else if (strcmp(mode, "own-hands-back") == 0) {
        install(hand_back, SA_ONSTACK);
        check(hak_guard_start(1) == 0, "hak_guard_start"); /* in front of hand_back, whose previous handler it is */
        read_here(nowhere);
    } else if (strcmp(mode, "own-hands-back-guarded") == 0) {
        install(hand_back, SA_ONSTACK);
        block = allocate_here(ANY);
        free_here(block);
        read_here(block);
    } else if (strcmp(mode, "own-plain") == 0) {
        signal(SIGSEGV, say_and_exit);
        check(hak_guard_start(1) == 0, "hak_guard_start");
        block = allocate_here(ANY);
        free_here(block);
        read_here(block);
    } else if (strcmp(mode, "elsewhere") == 0) {
        read_here(nowhere);
    } else if (strcmp(mode, "sent") == 0) {
        kill(getpid(), SIGSEGV);
        die("the signal was lost");
    } else if (strcmp(mode, "alternate") == 0) {
        use_alternate_stack(8192);
        block = allocate_here(ANY);
        free_here(block);
        read_here(block);
    } else if (strcmp(mode, "stack-overflow") == 0) {
        /* The program's handler still runs on its alternate stack. */
        use_alternate_stack(65536);
        signal(SIGSEGV, SIG_DFL);
        struct sigaction mine = { .sa_handler = say_and_exit, .sa_flags = SA_ONSTACK };
        check(sigaction(SIGSEGV, &mine, NULL) == 0 && hak_guard_start(1) == 0, "sigaction");
        overflow_stack(0);
    } else if (strcmp(mode, "system-call") == 0) {
        int pipes[2];
        block = allocate_here(ANY);
        free_here(block);
        check(pipe(pipes) == 0 && write(pipes[1], block, 10) == -1 && errno == EFAULT, "the kernel read a closed page");
        printf("went on\n");
    } else {
        die("no such mode");
    }
    return 0;
}
