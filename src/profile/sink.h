/*
 * Where a profile's bytes go: a file, as gzip (RFC 1952) of deflate's stored blocks (RFC 1951, 3.2.4), which is compression's format
 * without the compression, whose tables would be memory. One at a time: under profile_control.
 */
#ifndef HAK_PROFILE_SINK_H
#define HAK_PROFILE_SINK_H

#include "base/base.h"

struct sink;

/* The process's one sink, begun on an open file. */
HAK_HIDDEN struct sink *sink_begin(int file);

/* After an error nothing more is written. */
HAK_HIDDEN void sink_put(struct sink *sink, const void *data, size_t size);

/* Ends the stream. Returns 0, or the errno of the first error. */
HAK_HIDDEN int sink_end(struct sink *sink);

#endif
