/*
 * What the stress and bounds programs share: checks, chance, memory from the kernel, and readings of this process.
 * Nothing here allocates from HAKMEM or from libc.
 */
#ifndef TESTS_STRESS_SUPPORT_H
#define TESTS_STRESS_SUPPORT_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* The run's seed, which every failed check prints. */
extern uint64_t support_seed;

/* Prints the place, the condition and the message, and aborts. */
_Noreturn void support_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* CHECK(condition, "format", ...) ends the test if the condition is false. */
#define CHECK(condition, ...) ((condition) ? (void)0 : support_fail(__FILE__, __LINE__, #condition, __VA_ARGS__))

/* ---- Chance: one generator a thread ---- */

struct chance {
    uint64_t state;
};

uint64_t chance_mix(uint64_t value);
/* Starts a generator from the run's seed and `stream`. */
void chance_start(struct chance *chance, uint64_t stream);
uint64_t chance_next(struct chance *chance);
/* 0 <= result < bound; bound > 0. */
size_t chance_below(struct chance *chance, size_t bound);
/* True in `per_mille` of 1,000 calls. */
bool chance_is(struct chance *chance, unsigned per_mille);
/* low <= result <= high, each doubling equally likely; 0 counts as 1. */
size_t chance_log(struct chance *chance, size_t low, size_t high);

/* ---- Memory and threads of the test's own ---- */

/* Zeroed memory from the kernel. Never fails. */
void *support_map(size_t size);
/* The same, shared with this process's children. */
void *support_map_shared(size_t size);
void support_unmap(void *memory, size_t size);

pthread_t support_thread(void *(*run)(void *), void *argument);
void support_join(pthread_t thread);
void support_sleep_ms(unsigned ms);

/* Whether a thread of that name runs in the process. */
bool support_has_thread(const char *name);
double support_seconds(void);

/* ---- Readings of this process (bytes) ---- */

/* Exact resident memory: the sum over all mappings in /proc/self/smaps_rollup. */
size_t support_rss(void);
/* Resident memory from /proc/self/statm: cheap, and some hundred KiB off. */
size_t support_rss_fast(void);

/* ---- Arguments: --name value ---- */

/* The value of --name, with an optional suffix K, M or G, or `otherwise`. */
uint64_t support_option(int argc, char **argv, const char *name, uint64_t otherwise);
/* Fails when argv has a --name that `names` (NULL-terminated) lacks. */
void support_options_known(int argc, char **argv, const char *const *names);

#endif
