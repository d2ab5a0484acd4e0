/*
 * The spans of all classes that a thread freed and that wait. Nobody can access them, unless the kernel refuses that:
 * such a span is checked when it is used again, like smaller blocks. A span that leaves stays closed until its units
 * are used again (superslab/closed_units.h).
 */
#ifndef HAK_HARDEN_SPANS_H
#define HAK_HARDEN_SPANS_H

#include "harden/harden.h"
#include "pool/heap.h"

#define SPANS_MOST 16u

struct spans {
    uint8_t count; /* Order: release, for a fork and for figures, which read it with acquire (V9) */
    uint8_t frees;     /* counts to LOOK_FREES (spans.c) */
    uint16_t closed;   /* a bit for each waiting span: it is inaccessible */
    uint16_t guarded;  /* a bit for each: os_guard closed it */
    uint8_t sparse[CLASS_COUNT - CLASS_SPAN_1]; /* by class: looks in a row that found little written */
    void *unpurged;       /* the span that was just freed: its memory is purged as it is closed */
    size_t bytes;         /* of the waiting spans */
    void *span[SPANS_MOST]; /* the oldest first */
};
_Static_assert(SPANS_MOST <= 16, "each has a bit");

/* For another thread's spans: as of some moment, under its heap's lock. */
HAK_HIDDEN unsigned spans_count(const struct spans *spans, unsigned class);
/* Returns all spans to their slabs. For the heap's thread. */
HAK_HIDDEN void spans_flush(struct spans *spans, struct heap *heap);

#endif
