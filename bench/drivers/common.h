/*
 * What every benchmark program shares: arguments, a cheap random generator, blocks that check themselves, measuring and
 * the report. The programs call malloc and free and know no allocator: which one runs is decided by LD_PRELOAD or by
 * linking.
 *
 * Nothing here allocates, so that all memory a program asks for is the benchmark's own; tables live in static storage.
 *
 * Environment, read by every program:
 *   BENCH_IDLE_MS=N  after everything is freed, sleep N milliseconds, make one call, and report the memory still held
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

/* The positional argument number `index` as a number in [lowest, highest], or `fallback` when it is not given. Ends the
 * program with a message that names the argument when it is no such number. */
uint64_t bench_argument(int argc, char **argv, int index, const char *name, uint64_t fallback, uint64_t lowest,
                        uint64_t highest);

/* Prints usage and ends the program with status 2 when there are more arguments than `most`, or with 0 on --help. */
void bench_usage(int argc, char **argv, int most, const char *text);

/* The positional argument number `index` as a place in `words`, which a NULL ends, or `fallback` when it is not given.
 * Ends the program with a message that names the argument and all words when it is none of them. */
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

/* A state that is never 0 and differs widely for neighbouring seeds and streams. */
uint64_t bench_seed(uint64_t seed, uint64_t stream);

/* ---- Blocks that check themselves ---- */

/* malloc of at least 16 bytes that ends the program on failure; writes a stamp into the first 16 bytes, the last 8, and
 * 8 of every 4 KiB between, so that the memory is really used. */
void *bench_block_new(size_t size, uint64_t serial);
/* Writes the same stamp into a block that came from elsewhere. */
void bench_block_stamp(void *block, size_t size, uint64_t serial);
/* Ends the program if the stamp does not hold. Returns the block's size. */
size_t bench_block_check(const void *block);
/* Checks the stamp, spoils it, and frees the block. NULL is ignored; returns 1 for a block freed. */
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

void bench_begin(struct bench_run *run, const char *name);
/* Stops the clock. One operation is one malloc, free or realloc. */
void bench_end(struct bench_run *run, uint64_t operations);
/* Adds to the RESULT line a key=value of the program's own. After bench_begin, before bench_report. */
void bench_extra(struct bench_run *run, const char *key, uint64_t value);
/* Prints the run for people and one RESULT line of key=value for programs. To be called when all blocks are freed. */
void bench_report(const struct bench_run *run);

/* ---- Threads ---- */

enum { BENCH_THREADS_MOST = 256 };

/* Starts `count` threads; thread i runs body(&workers[i]), `step` being the size of one. They wait for each other, and
 * the run begins when all are there. One such group at a time. */
void bench_begin_threads(struct bench_run *run, const char *name, unsigned count, void (*body)(void *worker),
                         void *workers, size_t step);
/* Waits for the end of all of them. */
void bench_join_threads(void);

#endif
