/*
 * The finished trace. Little-endian; header, thread table, operations, runs, text, one after the other.
 *
 * Each thread has a stream of operations. Blocks are in slots, which are reused after their block is freed. Every
 * operation on a slot increments the slot's version and carries the version it waits for. Threads need keep no other
 * order. The runs give one order of all operations that keeps it: the recorded one.
 */
#ifndef TRACE_TRACE_FILE_H
#define TRACE_TRACE_FILE_H

#include "kinds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_MAGIC "HAKTRACE"

enum { TRACE_VERSION = 1 };

#define TRACE_NO_SLOT UINT32_MAX /* free(NULL) */
#define TRACE_MAX_SIZE ((UINT64_C(1) << 48) - 1)
#define TRACE_MAX_ALIGNMENT 47 /* its logarithm */

struct trace_header {
    char magic[8];
    uint32_t version;
    uint32_t checksum; /* CRC-32 of all that follows this word */
    uint64_t file_bytes;
    uint64_t operations; /* of all streams */
    uint64_t calls;      /* operations that call the allocator: all but TRACE_THREAD */
    uint64_t slots;
    uint64_t threads;
    uint64_t runs;
    uint64_t text_bytes; /* JSON about the recording */
    /* What was seen and is not replayed. */
    uint64_t failed;        /* calls that returned NULL */
    uint64_t foreign_frees; /* frees of blocks that the recording does not know */
    uint64_t lost_frees;    /* blocks whose address was returned again without a free; one is inserted */
    uint64_t in_flight;     /* operations that the process's end interrupted */
    uint32_t stopped;       /* errno that stopped the recording before the process ended, or 0 */
    uint32_t pid;
};

struct trace_thread {
    uint64_t first; /* index of its first operation */
    uint64_t count;
    uint32_t ended; /* 1: exits after its last operation; 0: lives until the process ends */
    uint32_t creator;
};

/* `packed` holds the size in the low 48 bits, then 8 bits log2 of the alignment, 6 bits of the kind, and the two flags.
 * TRACE_THREAD has the number of the thread as its slot, and as its version how many threads have exited before. */
struct trace_op {
    uint32_t slot;
    uint32_t version;
    uint64_t packed;
};

struct trace_run {
    uint32_t thread;
    uint32_t count;
};

#define TRACE_WAITS (UINT64_C(1) << 62)   /* the slot's last operation was another thread's */
#define TRACE_SIGNALS (UINT64_C(1) << 63) /* the slot's next operation is another thread's */

_Static_assert(sizeof(struct trace_header) == 112, "the header has no padding");
_Static_assert(sizeof(struct trace_thread) == 24, "nor has a thread");
_Static_assert(sizeof(struct trace_op) == 16, "nor has an operation");

static inline uint64_t trace_pack(enum trace_kind kind, uint64_t size, unsigned log2_alignment)
{
    return size | (uint64_t)log2_alignment << 48 | (uint64_t)kind << 56;
}

static inline uint64_t trace_size(const struct trace_op *op)
{
    return op->packed & TRACE_MAX_SIZE;
}

static inline unsigned trace_alignment(const struct trace_op *op)
{
    return (unsigned)(op->packed >> 48) & 0xff;
}

static inline enum trace_kind trace_kind(const struct trace_op *op)
{
    return (enum trace_kind)(op->packed >> 56 & 0x3f);
}

uint32_t trace_checksum(uint32_t so_far, const void *bytes, size_t count);

/* Where the parts lie in the file. */
static inline uint64_t trace_threads_at(void)
{
    return sizeof(struct trace_header);
}

static inline uint64_t trace_ops_at(const struct trace_header *header)
{
    return trace_threads_at() + header->threads * sizeof(struct trace_thread);
}

static inline uint64_t trace_runs_at(const struct trace_header *header)
{
    return trace_ops_at(header) + header->operations * sizeof(struct trace_op);
}

static inline uint64_t trace_text_at(const struct trace_header *header)
{
    return trace_runs_at(header) + header->runs * sizeof(struct trace_run);
}

/* Checks the whole file in `bytes`: sums, bounds and order, so that a replay can neither reach outside its tables nor
 * wait for ever. Returns NULL, or what is wrong. */
const char *trace_check(const unsigned char *bytes, uint64_t length);

#endif
