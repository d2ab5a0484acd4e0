/*
 * The words of `hakmem run`: [OPTIONS] [--] PROGRAM [ARGUMENTS].
 */
#ifndef RUN_WORDS_H
#define RUN_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Exit statuses: those of a failure and of wrong words, and a shell's for a program that cannot be run. */
enum { FAILED = 1, WRONG = 2, NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

struct words {
    const char *stats; /* the value of HAKMEM_SHOW_STATS; NULL: no statistics */
    bool profile;
    bool secure;
    /* The values of options; NULL: not given. */
    const char *heap_profile;
    const char *budget;
    const char *markdown;
    const char **settings; /* the values NAME=VALUE of --set, NULL after the last */
    char **program;        /* PROGRAM and its ARGUMENTS, NULL after the last */
};

/* Reads the words from the second on. Ends the process with a message if they are wrong. */
struct words words_read(int count, char **list);

/* Ends the process with a message if the value of an option such as --set is not NAME=VALUE. */
void words_check_setting(const char *option, const char *value);

/* Prints "hakmem: " and a text to standard error, as one line. */
void words_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As words_say, and end the process: with WRONG, after a hint; or with FAILED. */
/* Names are alike if they are nearer than this. A name has fewer bytes than WORD_BYTES. */
enum { ALIKE_FAR = 3, WORD_BYTES = 48 };

/* Returns the Levenshtein distance of two names, `most` if it is larger. `other` has fewer bytes than WORD_BYTES. */
size_t words_distance(const char *one, size_t length, const char *other, size_t most);

_Noreturn void words_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void words_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
