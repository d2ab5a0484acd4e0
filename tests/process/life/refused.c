/*
 * Requests that no machine can serve, and a system that refuses calls. Each function fails with the errno of its manual
 * page, and no live block is lost. free keeps errno, also when the system refuses to take memory back.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "foreign.h"

size_t hak_collect(bool purge) __attribute__((weak));

static void expect_none(const void *block, const char *what)
{
    if (block != NULL || errno != ENOMEM)
        fail(what);
    errno = 0;
}

static void too_large(void)
{
    static const size_t sizes[] = { (size_t)PTRDIFF_MAX + 1, SIZE_MAX,         SIZE_MAX - 1,
                                    SIZE_MAX - 15,           SIZE_MAX - 16,    SIZE_MAX - 4095,
                                    SIZE_MAX - 4096,         SIZE_MAX - 65536, SIZE_MAX / 2 + 2 };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        volatile size_t size = sizes[i];
        unsigned char *volatile block = malloc(1000);
        void *none = &none;
        mark_block(block, 1000);
        errno = 0;
        expect_none(malloc(size), "malloc");
        expect_none(calloc(1, size), "calloc");
        expect_none(calloc(size, 1), "calloc");
        expect_none(calloc(size / 2, 3), "calloc that overflows");
        expect_none(calloc(size, size), "calloc that overflows");
        expect_none(realloc(block, size), "realloc");
        expect_none(reallocarray(block, size, 1), "reallocarray");
        expect_none(reallocarray(block, size / 2, 3), "reallocarray that overflows");
        for (size_t alignment = 8; alignment <= (size_t)1 << 40; alignment *= 2) {
            expect_none(memalign(alignment, size), "memalign");
            expect_none(aligned_alloc(alignment, size), "aligned_alloc");
            if (posix_memalign(&none, alignment, size) != ENOMEM || none != &none)
                fail("posix_memalign");
            errno = 0;
        }
        expect_none(valloc(size), "valloc");
        expect_none(pvalloc(size), "pvalloc");
        check_block(block, 1000);
        free(block);
    }
}

/* From now on the system call `number` fails with the error. */
static void refuse(int number, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof(code) / sizeof(*code), code };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        fail("seccomp");
}

static const size_t kept_sizes[] = { 1,     100,    1000,    5000,    20000,   60000,
                                     70000, 300000, 1000000, 1100000, 3000000, 50000000 };
enum { KEPT = sizeof(kept_sizes) / sizeof(*kept_sizes), EACH = 30 };
static unsigned char *kept[KEPT][EACH];

static void keep_some(void)
{
    for (int i = 0; i < KEPT; i++)
        for (int k = 0; k < EACH; k++)
            mark_block(kept[i][k] = malloc(kept_sizes[i]), kept_sizes[i]);
}

static void free_and_keep_errno(void)
{
    for (int k = 0; k < EACH; k++)
        for (int i = 0; i < KEPT; i++) {
            check_block(kept[i][k], kept_sizes[i]);
            errno = 1000 + i;
            free(kept[i][k]);
            if (errno != 1000 + i)
                fail("free changes errno");
        }
    errno = 77;
    free(NULL);
    if (errno != 77)
        fail("free of nothing changes errno");
    if (hak_collect) {
        hak_collect(true);
        errno = 77;
    }
    malloc_trim(0);
}

static void *free_in_a_thread(void *unused)
{
    free_and_keep_errno();
    return unused;
}

/* The system takes no memory back. */
static void no_giving_back(int number, int error)
{
    keep_some();
    refuse(number, error);
    pthread_join(begin_thread(free_in_a_thread, NULL), NULL);
    keep_some();
    free_and_keep_errno();
    _exit(0);
}

/* The system gives no more memory. malloc returns ENOMEM until something is freed. */
static void no_more(int number, int error)
{
    enum { MOST = 20000 };
    const size_t most = (size_t)12 << 20;
    static unsigned char *blocks[MOST];

    keep_some();
    free(malloc(100000)); /* a thread begins before the sandbox does */
    refuse(number, error);
    for (unsigned i = 1; i < ALL_SIZES; i += 4) {
        size_t size = size_number(i);
        unsigned got = 0;
        errno = 0;
        while (got < MOST && got * size < most && (blocks[got] = malloc(size)) != NULL)
            mark_block(blocks[got++], size);
        if (got < MOST && got * size < most && errno != ENOMEM)
            fail("errno of malloc where the system gives nothing");
        if (got && size < 1000000) {
            unsigned char *last = blocks[got - 1], *moved;
            errno = 0;
            moved = realloc(last, (size_t)1 << 30);
            if (moved ? false : errno != ENOMEM)
                fail("errno of realloc where the system gives nothing");
            blocks[got - 1] = moved ? moved : last;
            if (blocks[got - 1][0] != (unsigned char)(size * 7 + 1))
                fail("contents after realloc");
        }
        while (got > 0)
            free(blocks[--got]);
    }
    free_and_keep_errno();
    _exit(0);
}

static void in_a_child(void (*function)(int, int), int number, int error, const char *what)
{
    pid_t pid = fork();
    if (pid == 0)
        function(number, error);
    expect_child(pid, what);
}

int main(void)
{
    too_large();
    in_a_child(no_giving_back, SYS_munmap, ENOMEM, "a child without munmap");
    in_a_child(no_giving_back, SYS_madvise, EINVAL, "a child without madvise");
    in_a_child(no_giving_back, SYS_madvise, EPERM, "a child that may not call madvise");
    in_a_child(no_giving_back, SYS_mremap, ENOMEM, "a child without mremap");
    in_a_child(no_more, SYS_mmap, ENOMEM, "a child without mmap");
    in_a_child(no_more, SYS_mprotect, ENOMEM, "a child without mprotect");
    puts("done");
    return 0;
}
