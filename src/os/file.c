#define _GNU_SOURCE
#include "os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/errno.h"
#include "base/format.h"
#include "base/stderr.h"
#include "base/write.h"

static int open_file(const char *path, int flags)
{
    BASE_KEEP_ERRNO;
    int file;

    do
        file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC | flags, 0644);
    while (file < 0 && errno == EINTR);
    return file < 0 ? -errno : file;
}

int os_file_create(const char *path) { return open_file(path, O_CREAT | O_TRUNC); }

int os_file_append(const char *path) { return open_file(path, O_CREAT | O_APPEND | O_NOCTTY); }

int os_file_create_nameless(const char *folder) { return open_file(folder, O_TMPFILE); }

int os_file_name(int file, const char *path)
{
    BASE_KEEP_ERRNO;
    char self[32];

    /* linkat by descriptor needs a privilege before Linux 6.10. linkat through /proc costs the system more. */
    base_format(self, sizeof self, "/proc/self/fd/%d", file);
    if (syscall(SYS_linkat, file, "", AT_FDCWD, path, AT_EMPTY_PATH) != 0 &&
        (errno != ENOENT || syscall(SYS_linkat, AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) != 0))
        return errno;
    return 0;
}

int os_file_open_special(const char *path)
{
    BASE_KEEP_ERRNO;
    /* A pipe that nobody reads would wait for its reader. */
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat status;

    if (file < 0)
        return errno == ENXIO ? -ENXIO : OS_FILE_REGULAR;
    if (!base_file_status(file, &status) || S_ISREG(status.st_mode)) {
        (void)syscall(SYS_close, file);
        return OS_FILE_REGULAR;
    }
    (void)syscall(SYS_fcntl, file, F_SETFL, syscall(SYS_fcntl, file, F_GETFL) & ~O_NONBLOCK);
    return file;
}

int os_file_write(int file, const void *data, size_t size)
{
    BASE_KEEP_ERRNO;

    for (const char *at = data; size != 0;) {
        long written = base_write(file, at, size);
        if (written <= 0)
            return written < 0 ? errno : EIO;
        at += written;
        size -= (size_t)written;
    }
    return 0;
}

int os_file_close(int file)
{
    BASE_KEEP_ERRNO;

    return syscall(SYS_close, file) < 0 && errno != EINTR ? errno : 0;
}

bool os_file_path(char *path, size_t capacity, const char *pattern, uint32_t number, bool *with_process)
{
    size_t length = 0;

    for (; *pattern; pattern++) {
        bool id = pattern[0] == '%' && pattern[1] == 'p', counts = number && pattern[0] == '%' && pattern[1] == 'n';
        char piece[16] = { *pattern, '\0' };
        size_t size = 1;
        if (id || counts)
            size = base_format(piece, sizeof piece, "%u", id ? os_process_id() : number);
        if (id && with_process)
            *with_process = true;
        pattern += id || counts || (pattern[0] == '%' && pattern[1] == '%');
        if (size >= capacity - length)
            return false;
        __builtin_memcpy(path + length, piece, size);
        length += size;
    }
    path[length] = '\0';
    return true;
}

uint32_t os_process_id(void) { return (uint32_t)syscall(SYS_getpid); }

const char *os_error_text(int error)
{
    static const struct {
        int error;
        const char *text;
    } known[] = {
        { EPERM, "Operation not permitted" },
        { ENOENT, "No such file or directory" },
        { EIO, "Input/output error" },
        { ENXIO, "No such device or address" },
        { EBADF, "Bad file descriptor" },
        { EAGAIN, "Resource temporarily unavailable" },
        { ENOMEM, "Cannot allocate memory" },
        { EACCES, "Permission denied" },
        { EBUSY, "Device or resource busy" },
        { EEXIST, "File exists" },
        { ENODEV, "No such device" },
        { ENOTDIR, "Not a directory" },
        { EISDIR, "Is a directory" },
        { EINVAL, "Invalid argument" },
        { ENFILE, "Too many open files in system" },
        { EMFILE, "Too many open files" },
        { ETXTBSY, "Text file busy" },
        { EFBIG, "File too large" },
        { ENOSPC, "No space left on device" },
        { EROFS, "Read-only file system" },
        { EPIPE, "Broken pipe" },
        { ENAMETOOLONG, "File name too long" },
        { ENOSYS, "Function not implemented" },
        { ELOOP, "Too many levels of symbolic links" },
        { EDQUOT, "Disk quota exceeded" },
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].error == error)
            return known[i].text;
    return "an unknown error";
}
