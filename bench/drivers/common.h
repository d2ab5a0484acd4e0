/*
 * What all benchmark programs share: arguments, a cheap random generator, blocks that check themselves, measuring and
 * the report. The programs only call malloc and free. LD_PRELOAD or linking decides which allocator serves them.
 *
 * Nothing here allocates: all memory that a program asks for is the benchmark's own. Tables live in static storage.
 *
 * Environment, read by every program:
 *   BENCH_IDLE_MS=N  after everything is freed, sleep N milliseconds, make one call, and report the memory still held:
 *                    RSS, and its private dirty part
 *   BENCH_VERIFY=1   programs with a bare hot loop also fill and check each whole block; slower, not for timing
 */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ---- Arguments ---- */

/* Returns positional argument `index` as a number in [lowest, highest], or `fallback` if it is not given. If it is no
 * such number, ends the program with a message that names the argument. */
uint64_t bench_argument(int argc, char **argv, int index, const char *name, uint64_t fallback, uint64_t lowest,
                        uint64_t highest);

/* Prints usage and ends the program with status 2 if there are more arguments than `most`, or with 0 on --help. */
void bench_usage(int argc, char **argv, int most, const char *text);

/* Returns the index in `words`, which ends with NULL, of positional argument `index`, or `fallback` if it is not given.
 * If it is none of the words, ends the program with a message that names the argument and all words. */
unsigned bench_choice(int argc, char **argv, int index, const char *name, unsigned fallback, const char *const *words);

bool bench_verify_wanted(void);

/* Ends the program with a message: a block lost its contents, or memory ran out. */
_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Random numbers: xorshift64*, one multiplication a number ---- */

static inline uint64_t bench_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(0x2545F4914F6CDD1D);
}

/* Uniform in [0, below), from the 32 bits of `bits`. */
static inline uint32_t bench_scale(uint32_t bits, uint32_t below)
{
    return (uint32_t)(((uint64_t)bits * below) >> 32);
}

/* Returns a start state, never 0, that differs widely for neighbouring seeds and streams. */
uint64_t bench_seed(uint64_t seed, uint64_t stream);

/* ---- Blocks that check themselves ---- */

/* Allocates at least 16 bytes; ends the program on failure. Writes a stamp into the first 16 bytes, the last 8, and 8
 * of every 4 KiB between, so that the memory is really used. */
void *bench_block_new(size_t size, uint64_t serial);
/* Writes the same stamp into a block that came from elsewhere. */
void bench_block_stamp(void *block, size_t size, uint64_t serial);
/* Ends the program if the stamp is damaged. Returns the block's size. */
size_t bench_block_check(const void *block);
/* Checks the stamp, spoils it, and frees the block. Returns 1, or 0 for NULL. */
unsigned bench_block_free(void *block);

/* ---- Measuring ---- */

enum { BENCH_EXTRA_BYTES = 256 };

struct bench_run {
    const char *name;
    uint64_t operations;
    uint64_t started_ns, ended_ns;
    struct rusage before, after;
    long rss_before_kib, rss_after_kib, rss_peak_kib;
    char extra[BENCH_EXTRA_BYTES];
};

uint64_t bench_now_ns(void);

/* Returns a figure in KiB from a file of /proc/self, by its field's name with the colon; -1 if it cannot be read. */
long bench_own_kib(const char *path, const char *field);
long bench_rss_kib(void);

void bench_begin(struct bench_run *run, const char *name);
/* Stops the clock. One operation is one malloc, free or realloc. */
void bench_end(struct bench_run *run, uint64_t operations);
/* Adds the program's own key=value to the RESULT line. Call after bench_begin and before bench_report. */
void bench_extra(struct bench_run *run, const char *key, uint64_t value);
/* Prints the run for people, and one RESULT line of key=value for programs. Call after freeing all blocks. */
void bench_report(const struct bench_run *run);

/* ---- Threads ---- */

enum { BENCH_THREADS_MOST = 256 };

/* Starts `count` threads. Thread i runs body(&workers[i]); `step` is the size of a worker. The run begins when all
 * threads are there. Only one such group at a time. */
void bench_begin_threads(struct bench_run *run, const char *name, unsigned count, void (*body)(void *worker),
                         void *workers, size_t step);
/* Waits for the end of all of them. */
void bench_join_threads(void);

#endif
