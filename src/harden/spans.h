/*
 * Freed spans that nobody can access for a while. One freed span in CLOSE_SHARE is closed, by chance; a thread has
 * SPANS_MOST of them at most. The others wait open, in the thread's bins. So a read or write after free of a span
 * faults with a chance of 1 in CLOSE_SHARE.
 *
 * V9: a span is written before `count` covers it, so a fork at any moment loses at most one to the child.
 */
#ifndef HAK_HARDEN_SPANS_H
#define HAK_HARDEN_SPANS_H

#include "harden/harden.h"
#include "pool/heap.h"

#define SPANS_MOST 16u
#define CLOSE_SHARE 16u

struct spans {
    uint8_t count; /* Order: release, for a fork and for figures, which read it with acquire (V9) */
    void *span[SPANS_MOST];
};

/* Closes the freed span and keeps it, if chance wants that. False: nothing changed. For the heap's thread, holding no
 * lock, as the next. */
HAK_HIDDEN bool spans_take_in(struct spans *spans, struct heap *heap, void *block, uint64_t *chance);

/* Opens all spans and returns them to their slabs. */
HAK_HIDDEN void spans_flush(struct spans *spans, struct heap *heap);

/* For another thread's spans: as of some moment, under its heap's lock. */
HAK_HIDDEN unsigned spans_count(const struct spans *spans, unsigned class);

/* Looks at the first bytes of free spans: reports that they were written, and clears them. `function` is the public
 * name, `found` says when it was seen. For the thread that has the spans, holding no lock. */
HAK_HIDDEN void spans_look(void *const *blocks, unsigned count, const char *function, const char *found);

#endif
