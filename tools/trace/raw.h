/*
 * The raw file. A recorded process writes it through a mapping, so its notes are in the file however the process ends.
 *
 * One page of header, then chunks of RAW_CHUNK_BYTES. A chunk belongs to one thread at a time and is an array of
 * records. A record with ticket 0 was never written. Tickets count from 1 over all threads: a block's free has a higher
 * ticket than its malloc, and the next malloc that returns the address has a higher ticket than the free.
 */
#ifndef TRACE_RAW_H
#define TRACE_RAW_H

#include "kinds.h"

#include <stdatomic.h>
#include <stdint.h>

#define RAW_MAGIC "HAKMRAW1"

enum { RAW_HEADER_BYTES = 4096, RAW_CHUNK_BYTES = 256 * 1024 };

struct raw_header {
    char magic[8];
    uint32_t chunk_bytes;
    uint32_t pid;
    _Atomic uint64_t chunks;          /* begun so far */
    _Atomic uint32_t stopped;         /* errno that stopped the recording before the process ended, or 0 */
    _Atomic uint32_t threads;         /* seen so far */
};

struct raw_record {
    _Atomic uint64_t ticket_thread;   /* ticket << RAW_THREAD_BITS | number of the thread; written last */
    uint64_t address_kind;            /* address << 8 | kind; for a thread's kinds its number */
    uint64_t size_alignment;          /* size << 8 | log2 of the alignment asked for */
};

enum { RAW_THREAD_BITS = 24, RAW_CHUNK_RECORDS = RAW_CHUNK_BYTES / (int)sizeof(struct raw_record) };

/* Only a call that fails has a size that does not fit. */
#define RAW_MAX_SIZE ((UINT64_C(1) << 56) - 1)

_Static_assert(sizeof(struct raw_record) == 24, "a record has 24 bytes");
_Static_assert(sizeof(struct raw_header) <= RAW_HEADER_BYTES, "the header fits its page");

#endif
