/* The replay of single operations: slots, waiting, and the words that show whether blocks keep their contents. */
#ifndef TRACE_REPLAY_OPS_H
#define TRACE_REPLAY_OPS_H

#include "trace_file.h"

#include <stdatomic.h>

/* The place of a block. A slot is half a cache line, so it never lies in two lines. */
struct replay_slot {
    void *block;
    uint64_t size;
    _Atomic uint32_t version; /* what the slot's next operation waits for */
    _Atomic uint32_t sleepers;
    uint32_t stamp; /* version of the operation that wrote the words into the block */
};

_Static_assert(sizeof(struct replay_slot) == 32, "a slot is half a cache line");

extern struct replay_slot *replay_slots;
extern bool replay_touches;
extern _Atomic uint64_t replay_waits; /* operations that found their slot not ready */

/* Sleeps while the word is `value`, for at most a millisecond: the thread that changes it need not know of sleepers. */
void replay_sleep(_Atomic uint32_t *word, uint32_t value);
void replay_wake(_Atomic uint32_t *word);

/* Does an operation of any kind but TRACE_THREAD. Ends the program if memory runs out or a block lost its contents. */
void replay_do(const struct trace_op *op);

#endif
