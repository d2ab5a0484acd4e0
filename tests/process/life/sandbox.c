/*
 * Allocates in a sandbox that ends the process at any system call outside its list. The list is what sandboxes of
 * browsers and services allow a computing thread. Threads created before the filter allocate for the first time behind
 * it.
 *
 * sandbox THREADS MOST-BYTES ROUNDS [mincore|SYSCALL-NUMBER]: allows one more call; a number serves to find out which
 * call is made
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SHARED = 64, THREADS_MOST = 64 };

static size_t most_bytes, rounds;
static _Atomic(char *) shared[SHARED]; /* blocks that another thread frees */
static _Atomic bool filtered;
static _Atomic unsigned ready, done;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static const int allowed[] = {
    SYS_read, SYS_write,    SYS_exit,    SYS_exit_group, SYS_rt_sigreturn, SYS_mmap,  SYS_munmap,
    SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk,        SYS_futex,        SYS_clock_gettime, SYS_sched_yield,
};

static void install_filter(int more)
{
    enum { COUNT = sizeof allowed / sizeof allowed[0] };
    struct sock_filter program[COUNT + 5];
    size_t length = 0;

    program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < COUNT; i++)
        program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i],
                                                         (unsigned char)(COUNT - i + 1), 0);
    program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)more, 1, 0);
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = { (unsigned short)length, program };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
        perror("seccomp");
        exit(3);
    }
}

static void *run(void *argument)
{
    unsigned long state = (unsigned long)argument * 2654435761u + 1;

    pthread_mutex_lock(&mutex);
    atomic_fetch_add(&ready, 1);
    pthread_cond_broadcast(&changed);
    while (!atomic_load(&filtered))
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    for (size_t round = 0; round < rounds; round++) {
        for (size_t size = 1; size <= most_bytes; size += size / 3 + 1) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            char *block = malloc(size), *grown, *zeroed = calloc(1, size), *other;
            void *aligned = NULL;
            if (block == NULL || zeroed == NULL || posix_memalign(&aligned, 4096, size) != 0)
                _exit(4);
            memset(block, 1, size);
            grown = realloc(block, size * 2);
            free(zeroed);
            free(aligned);
            other = atomic_exchange(&shared[(state >> 33) % SHARED], grown);
            free(other);
        }
        malloc_trim(0);
    }
    pthread_mutex_lock(&mutex);
    atomic_fetch_add(&done, 1);
    pthread_cond_broadcast(&changed);
    /* The threads do not end: glibc's thread exit makes calls that allocation does not. */
    for (;;)
        pthread_cond_wait(&changed, &mutex);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    unsigned threads = (unsigned)atoi(argv[1]);
    most_bytes = strtoul(argv[2], NULL, 10);
    rounds = strtoul(argv[3], NULL, 10);
    for (unsigned i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)(unsigned long)i) != 0)
            return 3;
    }
    pthread_mutex_lock(&mutex); /* the threads have made the calls of their start */
    while (atomic_load(&ready) < threads)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    install_filter(argc <= 4 ? SYS_read : !strcmp(argv[4], "mincore") ? SYS_mincore : atoi(argv[4]));
    pthread_mutex_lock(&mutex);
    atomic_store(&filtered, true);
    pthread_cond_broadcast(&changed);
    while (atomic_load(&done) < threads)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    static const char text[] = "done\n";
    if (write(1, text, sizeof text - 1) != (ssize_t)sizeof text - 1)
        _exit(5);
    _exit(0);
}
