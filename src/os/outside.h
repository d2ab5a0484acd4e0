/*
 * What other processes write into this one, with the rights of a debugger. The kernel counts up the semaphores of the
 * two probes while a tracer is attached. `hakmem heap --start` and similar commands write requests (front/control.h).
 *
 * Everything that asks for something lies in one word, so that a slow call needs one comparison. Writers write each
 * part separately. The number of a request is one byte, so nobody sees it half written, and the writer stores the
 * request's values before the number: it is read with acquire.
 */
#ifndef HAK_OS_OUTSIDE_H
#define HAK_OS_OUTSIDE_H

#include "base/base.h"

/* 15 bytes and a 0. A writer looks for it first; its last byte is the version of the form. */
#define OUTSIDE_MAGIC "HAKMEM\x01" "control\x01"

/* The values of `look`, which this process sets itself. */
enum { OUTSIDE_LOOK_FILE = 1, OUTSIDE_LOOK_END = 2 };

union outside_word {
    struct {
        _Atomic uint16_t alloc_readers, free_readers; /* tracers of otel_memory:alloc and :free. Order: any; a count */
        _Atomic uint8_t asked;                        /* the number of the last request. Order: acquire, of `whole` */
        _Atomic uint8_t look;                         /* OUTSIDE_LOOK_. Order: any; the request is in other memory */
        _Atomic uint16_t unused;                      /* Order: any; nobody sets it */
    };
    _Atomic uint64_t whole; /* Order: acquire in control_serve, for the request; a look for one is relaxed */
};

struct outside {
    union outside_word word;
    union outside_word settled; /* the word when its requests were last carried out */
    char magic[16];
    /* A request: bytes between samples, 0: off, UINT64_MAX: as it is; milliseconds after which a profile that is turned
     * on is turned off again, 0: never. */
    uint64_t profile_mean, profile_ms, guard_mean;
    _Atomic uint32_t error;   /* the errno of the last answer. Order: release by `answered`, for the writer */
    _Atomic uint8_t answered; /* number of the request. Order: release, for the writer, which reads it first */
};

enum { OUTSIDE_ASKED = offsetof(struct outside, word.asked) };
_Static_assert(sizeof(union outside_word) == 8 && offsetof(union outside_word, free_readers) == 2,
               "os/outside.c names the semaphores so");

HAK_IN_ASSEMBLY struct outside hak_outside;

/* Whether a request is not carried out yet. */
HAK_INLINE bool outside_asks(void)
{
    return atomic_load_explicit(&hak_outside.word.whole, memory_order_relaxed) !=
           atomic_load_explicit(&hak_outside.settled.whole, memory_order_relaxed);
}

/* Makes the next slow call of any thread look. Safe in a signal handler. */
HAK_INLINE void outside_want(uint8_t what) { atomic_fetch_or(&hak_outside.word.look, what); }

/*
 * The probes otel_memory:alloc(block, size, weighted_bytes) and otel_memory:free(block), as the OpenTelemetry eBPF
 * profiler expects them: a sampled block of `size` bytes stands for so many bytes, and it is freed. Each is one nop,
 * which a tracer replaces.
 */
HAK_HIDDEN void outside_allocated(const void *block, uint64_t size, uint64_t weighted_bytes);
HAK_HIDDEN void outside_freed(const void *block);

#endif
