/* Loses memory in known ways, keeps some in other ways, and ends as its second argument says. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

struct node {
    node *next, *other;
    char room[32];
};

static thread_local void *volatile kept_by_thread;
static void *volatile hidden;
static std::atomic<int> ready;

/* Clears the stack and registers, so that remains of calls do not keep lost blocks. */
static __attribute__((noinline)) void wipe()
{
    char room[16384];
    memset(room, 0, sizeof room);
    asm volatile("" : : "r"(room) : "memory");
}

static __attribute__((noinline)) void *take(size_t size)
{
    void *volatile block = malloc(size);
    memset(block, 0, size);
    return block;
}

static __attribute__((noinline)) void lose_blocks(int count)
{
    for (int i = 0; i < count; i++)
        take(1000);
}

static __attribute__((noinline)) node *make_list(int count)
{
    node *first = nullptr;
    for (int i = 0; i < count; i++) {
        node *made = static_cast<node *>(take(sizeof(node)));
        made->next = first;
        first = made;
    }
    return first;
}

static __attribute__((noinline)) void lose_list(int count) { make_list(count); }

static __attribute__((noinline)) void lose_ring()
{
    node *one = make_list(1), *two = make_list(1);
    one->next = two;
    two->next = one;
}

static __attribute__((noinline)) void lose_large() { take(5 << 20); }

/* Reachable through a list, from inside a block, through a large block, a mapping, and thread-local storage. */
static __attribute__((noinline)) void keep()
{
    static node *list, *inner;
    list = make_list(2000);
    inner = static_cast<node *>(take(400)) + 3;
    char *large = static_cast<char *>(take(3 << 20));
    static char *end_of_large;
    end_of_large = large + (2 << 20);
    *reinterpret_cast<void **>(large + 8000) = take(2500);
    void **mapping =
        static_cast<void **>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mapping[600] = take(3500);
    /* Like a sanitizer's shadow: much larger than memory, with one touched page. */
    void **sparse = static_cast<void **>(mmap(nullptr, size_t{64} << 30, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (sparse != MAP_FAILED)
        sparse[size_t{5} << 30] = take(5500);
    kept_by_thread = take(4500);
    /* Memory that processes may share is searched like the rest. */
    void **shared =
        static_cast<void **>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    shared[100] = take(9500);
    asm volatile("" : : "r"(list), "r"(inner), "r"(end_of_large) : "memory");
}

/* Holds a block only in its frame while the process ends. */
static __attribute__((noinline)) void *hold(void *)
{
    void *volatile mine = take(6500);
    kept_by_thread = take(7500);
    ready++;
    for (;;)
        pause();
    return mine;
}

/* Leaves a pointer to a block in the stack of a thread that ends. */
static __attribute__((noinline)) void *leave(void *)
{
    void *volatile mine[64];
    for (void *volatile &one : mine)
        one = nullptr;
    mine[32] = take(11000);
    return nullptr;
}

/* A frame of variable size, as from alloca, and a stack deeper than what is recorded. */
static __attribute__((noinline)) void dynamic(unsigned size, int depth)
{
    char *room = static_cast<char *>(__builtin_alloca(size));
    memset(room, 0, size);
    if (depth)
        dynamic(size + 48, depth - 1);
    else
        free(take(200));
    asm volatile("" : : "r"(room) : "memory");
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "", *how = count > 2 ? words[2] : "return";

    if (strcmp(what, "clean") != 0) {
        if (strcmp(what, "one") == 0)
            lose_blocks(1);
        else {
            lose_blocks(100);
            lose_list(50);
            lose_ring();
            lose_large();
        }
    }
    keep();
    for (int i = 0; i < 200; i++)
        dynamic(16 + i % 7 * 80, i % 90);
    pthread_t threads[3];
    if (strcmp(what, "threads") == 0) {
        for (pthread_t &thread : threads)
            pthread_create(&thread, nullptr, hold, nullptr);
        while (ready < 3)
            usleep(1000);
    }
    if (strcmp(what, "ended") == 0) {
        pthread_create(&threads[0], nullptr, leave, nullptr);
        pthread_join(threads[0], nullptr);
    }
    wipe();
    printf("done\n");
    fflush(stdout);
    if (strcmp(how, "_exit") == 0)
        _exit(3);
    if (strcmp(how, "exit5") == 0)
        exit(5);
    if (strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(how, "fault") == 0)
        *reinterpret_cast<volatile int *>(hidden) = 1;
    if (strcmp(how, "fork") == 0 && fork() == 0) {
        lose_large();
        wipe();
        _exit(0);
    }
    if (strcmp(how, "exec") == 0)
        execl(words[0], words[0], "one", "return", nullptr);
    if (strcmp(how, "main_thread_ends") == 0) {
        pthread_create(&threads[0], nullptr, [](void *) -> void * { usleep(20000); exit(0); }, nullptr);
        pthread_exit(nullptr);
    }
    return 0;
}
