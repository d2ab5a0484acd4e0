/* Writes a trace: makes streams, runs and checksum from operations in the recorded order. */
#ifndef TRACE_WRITE_H
#define TRACE_WRITE_H

#include "trace_file.h"

struct write_source {
    struct trace_header *header;  /* all but magic, version, runs, text, file_bytes and checksum, which are filled in */
    struct trace_thread *threads; /* `first` is set */
    const struct trace_op *ops;   /* in the recorded order */
    const uint32_t *op_threads;
};

/* Ends the program with a message if the file cannot be written. */
void write_trace(const struct write_source *source, const char *path, const char *text);

#endif
