/* Text through a write function, in pieces that are never split, without allocating. */
#ifndef HAK_OBSERVE_OUTPUT_H
#define HAK_OBSERVE_OUTPUT_H

#include <hakmem/stats.h>

#include "base/base.h"

struct output {
    hak_stats_write write;
    void *argument;
    int file;           /* standard error, where `write` is not the caller's */
    const char *prefix; /* of each output_line */
    int error;          /* what `write` returned when it was not 0: nothing is written from then on */
    size_t length;      /* of what waits in buffer */
    char buffer[1024];
};

/* `write` NULL: standard error. */
HAK_HIDDEN void output_begin(struct output *output, hak_stats_write write, void *argument, const char *prefix);

/* A piece of at most 511 characters; more is cut. */
HAK_HIDDEN void output_print(struct output *output, const char *format, ...) HAK_PRINTF(2, 3);
/* The same as a line with the prefix. */
HAK_HIDDEN void output_line(struct output *output, const char *format, ...) HAK_PRINTF(2, 3);

/* Ends the printing with an error of HAKMEM's own. */
HAK_HIDDEN void output_fail(struct output *output, int error);

/* Writes what waits. Returns output->error. */
HAK_HIDDEN int output_end(struct output *output);

/* A write function for files; argument: an int, the descriptor. Returns 0 or the errno. */
HAK_HIDDEN int output_to_file(void *argument, const char *text, size_t length);

/* Makes the path of `pattern`, whose %p becomes the process's number and %% a %. False: it does not fit. */
HAK_HIDDEN bool output_path(char *path, size_t capacity, const char *pattern);

/* What an errno means, for messages. */
HAK_HIDDEN const char *output_reason(int error);

#endif
