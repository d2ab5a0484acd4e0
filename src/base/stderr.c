#define _GNU_SOURCE
#include "base/stderr.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Numbers that programs neither reach by opening files nor name in scripts. */
static const int from[] = { 1000, 200, 20 };

static struct {
    _Atomic int file; /* 0: none. Order: release as it is set last, acquire by threads that may run before */
    dev_t device;
    ino_t inode;
} kept;

/* By system call, where the kernel's struct stat is the C library's: glibc exports fstat only since 2.33. */
bool base_file_status(int file, struct stat *status)
{
#if defined(__x86_64__) || defined(__aarch64__) || defined(__riscv)
    return syscall(SYS_fstat, file, status) == 0;
#else
    return fstat(file, status) == 0;
#endif
}

/* A program that closes every descriptor may have opened another file under the kept number. */
static bool is_kept(int file)
{
    struct stat status;

    return base_file_status(file, &status) && status.st_dev == kept.device && status.st_ino == kept.inode;
}

void base_stderr_keep(void)
{
    int saved_errno = errno, file = -1;
    struct stat status;

    for (unsigned i = 0; i < sizeof from / sizeof from[0] && file < 0; i++)
        file = (int)syscall(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, from[i]);
    if (file >= 0 && base_file_status(file, &status)) {
        kept.device = status.st_dev;
        kept.inode = status.st_ino;
        atomic_store(&kept.file, file);
    }
    errno = saved_errno;
}

void base_stderr_drop(void)
{
    int saved_errno = errno, file = atomic_exchange(&kept.file, 0);

    if (file && is_kept(file))
        syscall(SYS_close, file);
    errno = saved_errno;
}

int base_stderr(void)
{
    int saved_errno = errno, file = atomic_load(&kept.file);

    if (!file || syscall(SYS_fcntl, STDERR_FILENO, F_GETFD) >= 0 || !is_kept(file))
        file = STDERR_FILENO;
    errno = saved_errno;
    return file;
}
