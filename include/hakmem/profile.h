/*
 * The heap profile: where the memory in use was allocated, by sampling.
 *
 * HAKMEM samples each block with the probability 1 - exp(-size / mean), so that samples are about `mean` bytes of
 * allocation apart. A sample stands for the inverse of its probability in blocks. A profile is a gzipped file in
 * pprof's format: what was allocated since the start, and what is in use. docs/profile.md explains its figures.
 *
 * Any thread may call every function at any time, but not from a signal handler. Labels have a rule of their own.
 */
#ifndef HAKMEM_PROFILE_H
#define HAKMEM_PROFILE_H

#include <hakmem/hakmem.h>

/* A program that defines HAK_PROFILE_WEAK before this file runs without HAKMEM, too. Calls for labels then do nothing
 * and return 0, and the other functions' addresses are NULL. A program that is not position-independent (-fno-pie)
 * finds HAKMEM only if it is linked with it: a preloaded library comes too late for its weak names. */
#ifdef HAK_PROFILE_WEAK
#define HAK_PROFILE_LINK __attribute__((weak))
#else
#define HAK_PROFILE_LINK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Starts sampling. `mean` is the mean distance between samples in bytes; 0: HAKMEM_HEAP_PROFILE_RATE. Existing blocks
 * are not in the profile, unless an earlier profile sampled them. A profile that runs already goes on with the new
 * mean. A thread takes part from its next call that its cache cannot serve. Returns 0, or ENOMEM. */
HAK_API HAK_PROFILE_LINK int hak_profile_start(size_t mean) HAK_NOEXCEPT;

/* Stops sampling. The samples so far stay in the profile until their blocks are freed. */
HAK_API HAK_PROFILE_LINK void hak_profile_stop(void) HAK_NOEXCEPT;

/* Writes the profile to a file. The file has another name until it is complete, so nobody sees half of it. In the path
 * %p is the process's id, %n counts the files from 1, %% is a percent sign. Returns 0 or an errno. */
HAK_API HAK_PROFILE_LINK int hak_profile_write(const char *path) HAK_NOEXCEPT;

/* Writes the profile to an open file, pipe or socket, at its current position. Returns 0 or an errno. */
HAK_API HAK_PROFILE_LINK int hak_profile_write_fd(int fd) HAK_NOEXCEPT;

/*
 * Labels. A sample carries the labels that are in force in its thread. pprof shows them as tags, `hakmem heap` by
 * --by-label and --label. Labels belong to one thread: a thread that it starts has none. They end with the thread, with
 * hak_thread_idle(), and with their scope. In the child of a fork the thread keeps them.
 *
 * Setting a label takes no lock and costs the same with and without a profile. Allocation costs nothing more. Keys,
 * texts and units are copied. They are UTF-8 without control characters: a key of 1 to HAK_PROFILE_KEY_MOST bytes, a
 * text or unit of up to HAK_PROFILE_VALUE_MOST. A thread has at most HAK_PROFILE_LABELS_MOST labels and scopes.
 *
 * A signal handler may call these in a thread that has called one before. If it interrupted one, they do nothing.
 */
#define HAK_PROFILE_KEY_MOST 47
#define HAK_PROFILE_VALUE_MOST 127
#define HAK_PROFILE_LABELS_MOST 24

/* Sets the label key=text in place of the key's old one; text NULL or empty: removes the key's label. Returns 0 or
 *   EINVAL        the key is NULL, "", "lifetime_from" or "hakmem.labels"; nothing changes, as for keys of the next two
 *   EILSEQ        a text is no UTF-8, or has a control character
 *   ENAMETOOLONG  a text is too long
 *   E2BIG         the thread has HAK_PROFILE_LABELS_MOST already
 *   ENOMEM        the thread has no memory for labels
 *   EAGAIN        this is a signal handler that interrupted such a call; nothing changes
 *   ENOSPC        the label is in force, but the profile has no room for another combination of labels (4,096; 16,384
 *                 sites that have labels): samples carry hakmem.labels=lost
 * After EILSEQ or ENAMETOOLONG of a text, E2BIG and ENOMEM the key has no label: no sample carries an old text. */
HAK_API HAK_PROFILE_LINK int hak_profile_label(const char *key, const char *text) HAK_NOEXCEPT;

/* As hak_profile_label, for a number. unit: such as "bytes", or NULL. */
HAK_API HAK_PROFILE_LINK int hak_profile_label_number(const char *key, int64_t number, const char *unit) HAK_NOEXCEPT;

/* Removes all labels until the scope ends. Returns 0, E2BIG or EAGAIN. */
HAK_API HAK_PROFILE_LINK int hak_profile_label_clear(void) HAK_NOEXCEPT;

/* Begin a scope, and end it: the thread's labels are then again those of its beginning. The end takes the result of the
 * beginning, and ignores a 0, which stands for ENOMEM or EAGAIN. It also ends the scopes that began in this one. In a
 * scope that finds no room (E2BIG), labels cannot be set. C++ has hakmem::profile_scope (profile.hpp). */
HAK_API HAK_PROFILE_LINK unsigned hak_profile_scope_begin(void) HAK_NOEXCEPT;
HAK_API HAK_PROFILE_LINK void hak_profile_scope_end(unsigned scope) HAK_NOEXCEPT;

#ifdef HAK_PROFILE_WEAK
#define hak_profile_label(key, text) (hak_profile_label ? hak_profile_label(key, text) : 0)
#define hak_profile_label_number(key, number, unit) (hak_profile_label_number ? hak_profile_label_number(key, number, \
    unit) : 0)
#define hak_profile_label_clear() (hak_profile_label_clear ? hak_profile_label_clear() : 0)
#define hak_profile_scope_begin() (hak_profile_scope_begin ? hak_profile_scope_begin() : 0u)
#define hak_profile_scope_end(scope) (hak_profile_scope_end ? hak_profile_scope_end(scope) : (void)(scope))
#endif

#ifdef __cplusplus
}
#endif

#endif
