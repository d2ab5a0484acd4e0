/* Files that HAKMEM writes. No call allocates, uses stdio, changes errno or is a cancellation point. */
#ifndef HAK_OS_FILE_H
#define HAK_OS_FILE_H

#include "base/base.h"

/* Makes the file, or empties it, for writing (mode 0644 less the umask). Returns its descriptor, or the negated
 * errno. */
HAK_HIDDEN int os_file_create(const char *path);

/* Makes a file without a name in the folder, for writing, with the same mode. This costs a file system less than to
 * rename a file later, and a process that is killed leaves no file behind. Returns the descriptor or the negated errno:
 * some file systems have no such files. */
HAK_HIDDEN int os_file_create_nameless(const char *folder);

/* Gives a file of os_file_create_nameless a name. Returns 0 or the errno; EEXIST: something has that name. */
HAK_HIDDEN int os_file_name(int file, const char *path);

/* Opens a device, a terminal or a pipe of that name for writing. Returns its descriptor; -ENXIO: a pipe that nobody
 * reads; OS_FILE_REGULAR: a file can be made there, or replaced. */
enum { OS_FILE_REGULAR = -4096 };
HAK_HIDDEN int os_file_open_special(const char *path);

/* Opens the file to append to it, and makes it if there is none. Returns its descriptor, or the negated errno. */
HAK_HIDDEN int os_file_append(const char *path);

/* Writes all of the data. Returns 0, or the errno. */
HAK_HIDDEN int os_file_write(int file, const void *data, size_t size);

/* Returns 0, or the errno of an earlier write that the system reports only now. */
HAK_HIDDEN int os_file_close(int file);

/* The meaning of an errno, in the C library's words. "an unknown error" for one that files and signals do not return.
 * The C library's own functions allocate or translate. */
HAK_HIDDEN const char *os_error_text(int error);

/* Makes a path of `pattern`: %p becomes the process's id (*with_process, unless with_process is NULL), %n `number`
 * unless that is 0, and %% a percent sign. False: the path does not fit. */
HAK_HIDDEN bool os_file_path(char *path, size_t capacity, const char *pattern, uint32_t number, bool *with_process);

/* The process's id, also in a child of a fork that libc does not know of. */
HAK_HIDDEN uint32_t os_process_id(void);

#endif
