/* When profiles are written, and where: to files with made-up names, at exit, on a signal, every so many bytes; and leaks as text. */
#ifndef HAK_PROFILE_DUMP_H
#define HAK_PROFILE_DUMP_H

#include "profile/profile.h"

/* Writes a profile to a file whose name is made of the path as include/hakmem/profile.h has it. Returns 0 or an errno. */
HAK_HIDDEN int dump_write(const char *path);
HAK_HIDDEN int dump_write_fd(int file);

/* The profile was turned on: its time begins. */
HAK_HIDDEN void dump_begin(void);

/* Makes a signal ask for a file; says what is wrong with it on stderr. */
HAK_HIDDEN void dump_take_signal(const char *text);

/* Writes the file that was asked for, if one was. On slow paths, holding no lock. */
HAK_HIDDEN void dump_write_wanted(void);
HAK_INLINE void dump_poll(void)
{
    if (HAK_UNLIKELY(atomic_load_explicit(&profile.wanted, memory_order_relaxed)))
        dump_write_wanted();
}

/* So many bytes were allocated by what a sample stands for: HAKMEM_HEAP_PROFILE_INTERVAL. */
HAK_HIDDEN void dump_note_bytes(uint64_t bytes);

/* At exit: the file and the report that the options ask for. */
HAK_HIDDEN void dump_at_exit(void);

#endif
