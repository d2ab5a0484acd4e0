/* Writes profiles to files: at exit, on a signal, and every so many bytes. Reports leaks as text. */
#ifndef HAK_PROFILE_DUMP_H
#define HAK_PROFILE_DUMP_H

#include "profile/profile.h"

/* Writes a profile to the file that the path, a pattern (include/hakmem/profile.h), names. Returns 0 or an errno. */
HAK_HIDDEN int dump_write(const char *path);
HAK_HIDDEN int dump_write_fd(int file);

/* The profile was turned on: its time begins. */
HAK_HIDDEN void dump_begin(void);

/* Takes the signal named `text`, which then requests a file. Says on stderr why it cannot. */
HAK_HIDDEN void dump_take_signal(const char *text);

/* Writes the requested file, if there is a request. On slow paths, holding no lock. */
HAK_HIDDEN void dump_write_wanted(void);

/* Counts the bytes that a sample stands for, and requests a file every HAKMEM_HEAP_PROFILE_INTERVAL bytes. */
HAK_HIDDEN void dump_note_bytes(uint64_t bytes);

/* At exit: writes the file and the report that the options ask for. */
HAK_HIDDEN void dump_at_exit(void);

#endif
