/*
 * What the fuzz targets share. A target is one LLVMFuzzerTestOneInput, which judges one input and aborts on a fault.
 * With HAKMEM_FUZZ libFuzzer drives it. Otherwise replay.c does, with the files of corpus/.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Prints the message and aborts when the condition is false. */
#define FUZZ_CHECK(condition, ...) ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition, __VA_ARGS__))
_Noreturn void fuzz_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Runs the input in its own child, so that each input meets a fresh state. The child may also end by exit(1), which
 * refuses the input. Any other end aborts this process, as does a child that takes more than a minute. The child's
 * coverage counts here. */
void fuzz_in_child(void (*run)(const uint8_t *data, size_t size), const uint8_t *data, size_t size);

/* ---- An input taken apart; beyond its end all bytes are zero ---- */

struct fuzz_input {
    const uint8_t *at, *end;
};

unsigned fuzz_take(struct fuzz_input *input);
/* Takes what lies before the next byte `separator` or the end, and the separator. */
struct fuzz_input fuzz_take_until(struct fuzz_input *input, uint8_t separator);

/* ---- Files of the target's own ---- */

/* A file in memory, kept open. `path` (capacity 64) is a name that opens it. */
int fuzz_file(char *path);
/* Replaces the file's contents by the bytes. */
void fuzz_file_set(int file, const void *bytes, size_t size);

#endif
