/*
 * Writes a profile's bytes to a file as gzip (RFC 1952) of deflate's stored blocks (RFC 1951, 3.2.4): the format
 * without the compression, whose tables would take memory. There is one sink, used under profile_control.
 */
#ifndef HAK_PROFILE_SINK_H
#define HAK_PROFILE_SINK_H

#include "base/base.h"

struct sink;

/* Begins the process's one sink on an open file. */
HAK_HIDDEN struct sink *sink_begin(int file);

/* Writes the bytes; after an error it writes nothing more. */
HAK_HIDDEN void sink_put(struct sink *sink, const void *data, size_t size);

/* Ends the stream. Returns 0, or the errno of the first error. */
HAK_HIDDEN int sink_end(struct sink *sink);

#endif
