/*
 * The heap profile: where the memory in use was allocated, by sampling.
 *
 * Each block is a sample with the probability 1 - exp(-size / mean), so that samples are about `mean` bytes of allocation apart, and
 * stands for the inverse of that number of blocks. A profile is a file in pprof's format, gzipped, with what was
 * allocated since the start and what is in use. docs/profile.md says what its figures are.
 *
 * Every function may be called from any thread at any time, but not from a signal handler.
 */
#ifndef HAKMEM_PROFILE_H
#define HAKMEM_PROFILE_H

#include <hakmem/hakmem.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts sampling, with the mean distance of samples in bytes; 0: that of HAKMEM_HEAP_PROFILE_RATE. Blocks that exist are not
 * in the profile, unless they were sampled in an earlier one. If it runs already it goes on with the new mean. A thread takes part from
 * its next call on that its cache cannot serve. Returns 0, or ENOMEM. */
HAK_API int hak_profile_start(size_t mean) HAK_NOEXCEPT;

/* No more samples are taken. Those that were stay known until their blocks are freed. */
HAK_API void hak_profile_stop(void) HAK_NOEXCEPT;

/* Writes the profile to a file, under another name first, so that the file is whole whenever it is there. In the path %p is the
 * process's number, %n counts the files from 1, %% is a percent sign. Returns 0 or an errno. */
HAK_API int hak_profile_write(const char *path) HAK_NOEXCEPT;

/* Writes the profile to an open file, pipe or socket, from where it stands. Returns 0 or an errno. */
HAK_API int hak_profile_write_fd(int fd) HAK_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
