/*
 * What the fuzz targets share. A target is one LLVMFuzzerTestOneInput: it judges one input and aborts when something is
 * wrong. With HAKMEM_FUZZ libFuzzer drives it; otherwise replay.c does, over the files of corpus/.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Prints the message and aborts, when the condition does not hold. */
#define FUZZ_CHECK(condition, ...) ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition, __VA_ARGS__))
_Noreturn void fuzz_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Runs the input in a child of its own, so that every input meets the same state: none. The child may also end by
 * exit(1), with which a program refuses its input. Any other end aborts this process, and so does a child that is not
 * done after a minute. What the child covered counts as covered here. */
void fuzz_in_child(void (*run)(const uint8_t *data, size_t size), const uint8_t *data, size_t size);

/* ---- An input taken apart; beyond its end it is all zeros ---- */

struct fuzz_input {
    const uint8_t *at, *end;
};

unsigned fuzz_take(struct fuzz_input *input);
/* What lies before the next byte `separator`, or before the end; the separator is taken too. */
struct fuzz_input fuzz_take_until(struct fuzz_input *input, uint8_t separator);

/* ---- Files of the target's own ---- */

/* A file in memory, kept open; `path` (capacity 64) is a name by which it can be opened. */
int fuzz_file(char *path);
/* Makes the bytes its whole contents. */
void fuzz_file_set(int file, const void *bytes, size_t size);

#endif
