/*
 * Allocators with a deliberate mistake, one for each -D. A benchmark program must notice it:
 *  WRONG_OVERLAP    every 97th block overlaps the one before it
 *  WRONG_SCRIBBLE   every millisecond a signal flips a byte of the newest block, in the thread that has it: a flip by
 *                   another processor could be lost, because the loop's reads may get its own pending writes
 *  WRONG_CALLOC     every 97th block of calloc has a byte that is not zero
 *  WRONG_ALIGNMENT  every 97th aligned block is 16 bytes off
 * No memory is reused, so the programs can notice no other mistake.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EVERY = 97, HEADER = 16 };

static char memory[1 << 30] __attribute__((aligned(4096)));
static size_t used;
static _Atomic(char *) newest;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#ifdef WRONG_SCRIBBLE
static _Atomic(pid_t) newest_thread;
static _Thread_local char *volatile own_newest __attribute__((tls_model("initial-exec")));
#endif

static void *allocate(size_t alignment, size_t size)
{
    pthread_mutex_lock(&lock);
    size_t at = (used + HEADER + alignment - 1) / alignment * alignment;
#ifdef WRONG_OVERLAP
    static unsigned calls;
    char *last = atomic_load(&newest);
    if (++calls % EVERY == 0 && (uintptr_t)last % alignment == 0)
        at = (size_t)(last - memory);
#endif
    char *block = NULL;
    if (at <= sizeof memory && size <= sizeof memory - at) {
        block = memory + at;
        memcpy(block - HEADER, &size, sizeof size);
        if (used < at + size)
            used = at + size;
        atomic_store(&newest, block);
#ifdef WRONG_SCRIBBLE
        own_newest = block;
        atomic_store(&newest_thread, gettid());
#endif
    }
    pthread_mutex_unlock(&lock);
    return block;
}

void *malloc(size_t size) { return allocate(HEADER, size); }

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t size)
{
    char *block = allocate(HEADER, count * size);
    if (block != NULL)
        memset(block, 0, count * size);
#ifdef WRONG_CALLOC
    static atomic_uint callocs;
    if (block != NULL && ++callocs % EVERY == 0)
        block[count * size / 2] = 1;
#endif
    return block;
}

void *realloc(void *block, size_t size)
{
    void *copy = malloc(size);
    if (block != NULL && copy != NULL) {
        size_t old;
        memcpy(&old, (char *)block - HEADER, sizeof old);
        memcpy(copy, block, old < size ? old : size);
    }
    return copy;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    char *block = allocate(alignment, size + HEADER);
#ifdef WRONG_ALIGNMENT
    static atomic_uint aligned_calls;
    if (block != NULL && ++aligned_calls % EVERY == 0)
        return block + HEADER;
#endif
    return block;
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = aligned_alloc(alignment, size);
    return *block == NULL ? ENOMEM : 0;
}

#ifdef WRONG_SCRIBBLE
static void scribble(int signal_number)
{
    (void)signal_number;
    char *block = own_newest;
    if (block != NULL)
        *block ^= 0x55;
}

static void *scribbler_main(void *argument)
{
    for (;;) {
        pid_t thread = atomic_load(&newest_thread);
        if (thread != 0)
            syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
        usleep(1000);
    }
    return argument;
}

__attribute__((constructor)) static void start_scribbler(void)
{
    struct sigaction action = {.sa_handler = scribble, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, scribbler_main, NULL);
}
#endif
