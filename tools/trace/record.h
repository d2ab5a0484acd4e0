/*
 * Writes the raw file from within the recorded process: state of process and threads, chunks, tickets. Nothing here
 * calls malloc, and no file stays open between calls.
 */
#ifndef TRACE_RECORD_H
#define TRACE_RECORD_H

#include "raw.h"

#include <stdbool.h>
#include <stddef.h>

enum { MOST_SPARES = 1024 };

/* What all threads of the process share. It lies on pages that the child of a fork, by whatever call, gets as zeros.
 * Epoch 0 then tells the child that it records nothing yet. */
struct record_process {
    _Atomic uint64_t epoch; /* 0 not decided yet, RECORD_IDLE, or this process's own number */
    _Atomic uint64_t ticket;
    _Atomic uint32_t threads;
    _Atomic uint32_t locked;
    struct raw_header *header;
    uint32_t spares;
    struct record_room {
        struct raw_record *next, *end;
    } spare[MOST_SPARES]; /* rests of chunks of threads that have ended */
};

enum { RECORD_IDLE = 1 };

struct record_thread {
    uint64_t epoch; /* the process's epoch if this thread has a number in its file */
    struct record_room room;
    uint32_t number;
    uint32_t inside;   /* above 0: the recorder or the thread library makes this thread's calls */
    bool ended;        /* its end is noted; libc's cleaning up after it is not the program's */
    uint32_t reserved; /* number that the creator gave this thread, 0 for none */
};

extern struct record_process *record_process;
extern _Thread_local struct record_thread record_thread __attribute__((tls_model("initial-exec")));

/* The slow parts of record_note: enter the thread into the file, find room for its next record. False: do not note. */
bool record_attach(void);
bool record_more_room(void);

static inline bool record_is_on(void)
{
    if (record_thread.inside != 0)
        return false;
    uint64_t epoch = atomic_load_explicit(&record_process->epoch, memory_order_relaxed);
    return (record_thread.epoch == epoch && epoch != 0) || record_attach();
}

/* Notes one operation of the calling thread. */
static inline void record_note(enum trace_kind kind, uint64_t address, uint64_t size, unsigned log2_alignment)
{
    if (!record_is_on())
        return;
    struct record_thread *self = &record_thread;
    if (self->room.next == self->room.end && !record_more_room())
        return;
    struct raw_record *record = self->room.next++;
    uint64_t ticket = atomic_fetch_add(&record_process->ticket, 1) + 1;
    record->address_kind = address << 8 | (uint64_t)kind;
    record->size_alignment = (size < RAW_MAX_SIZE ? size : RAW_MAX_SIZE) << 8 | log2_alignment;
    atomic_store_explicit(&record->ticket_thread, ticket << RAW_THREAD_BITS | self->number, memory_order_release);
}

/* Returns a number for a thread that is about to be created. */
uint32_t record_reserve_thread(void);

#endif
