/* Writes text through a write function, without allocating. No piece is split between two writes. */
#ifndef HAK_OBSERVE_OUTPUT_H
#define HAK_OBSERVE_OUTPUT_H

#include <hakmem/stats.h>

#include "base/base.h"

struct output {
    hak_stats_write write;
    void *argument;
    int file;           /* standard error, if the caller passed no `write` */
    const char *prefix; /* of each output_line */
    int error;          /* the first result of `write` that is not 0: output stops there */
    size_t length;      /* bytes that wait in buffer */
    char buffer[1024];
};

/* `write` NULL: standard error. */
HAK_HIDDEN void output_begin(struct output *output, hak_stats_write write, void *argument, const char *prefix);

/* Writes a piece, cut at 511 characters. */
HAK_HIDDEN void output_print(struct output *output, const char *format, ...) HAK_PRINTF(2, 3);
/* As output_print, as a line with the prefix. */
HAK_HIDDEN void output_line(struct output *output, const char *format, ...) HAK_PRINTF(2, 3);

/* Ends the output with an error of HAKMEM itself. */
HAK_HIDDEN void output_fail(struct output *output, int error);

/* Writes the text that waits. Returns output->error. */
HAK_HIDDEN int output_end(struct output *output);

/* A write function for files; argument: an int, the descriptor. Returns 0 or the errno. */
HAK_HIDDEN int output_to_file(void *argument, const char *text, size_t length);

#endif
