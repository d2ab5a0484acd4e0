/*
 * The sweep (HAKMEM_SWEEP, docs/sweep.md): a freed block that leaves the quarantine waits until a sweep over the
 * process's memory, stacks and registers finds no pointer to it or into it. Then its slab gets it back.
 *
 * V11: a waiting block reads as zero, has no seal, counts as used in its slab, and has its bit in `waiting`
 *     (harden/sweep_map.h). A huge one has no memory or access, and is in sweep_large.c's table. Nobody else holds it.
 * V12: a waiting block leaves in three ways only: a later sweep saw no pointer to it, with every other thread stopped;
 *     two in a row saw none while threads ran on; or the bound of HAKMEM_SWEEP_KEEP or of memory is reached.
 * V13: between os_stop_begin and os_stop_end the sweeping thread takes no lock: a stopped thread may hold it.
 */
#ifndef HAK_HARDEN_SWEEP_H
#define HAK_HARDEN_SWEEP_H

#include "harden/harden.h"

struct heap;

struct sweep {
    /* Order: any; hints and sums. */
    _Atomic bool due;       /* a thread should sweep */
    _Atomic bool running;   /* a thread sweeps. Order: acquire and release, as a lock */
    _Atomic uintptr_t sweeper; /* its os_thread_token() */
    _Atomic uint32_t turns; /* turns that ended: other threads sleep until the next end */
    _Atomic size_t waiting; /* bytes that wait; blocks without memory count a sixteenth of theirs */
    _Atomic size_t trigger; /* `waiting` from which on a sweep is due; 0 at first */
    _Atomic size_t kept;    /* bytes that the last sweep did not let go */
    _Atomic size_t blocks[CLASS_COUNT]; /* that wait, by class */
    /* For the sweeping thread alone. */
    size_t live;     /* bytes in use of the process's memory, as the last sweep saw it */
    /* Bytes without huge blocks: those that the last sweep looked for, found no pointer to, and let leave. */
    size_t chosen, unseen, left;
    uint64_t ended;  /* when the last sweep ended */
    uint32_t rarer;  /* factor of the threshold */
    uint32_t threads; /* other threads at the last sweep */
    /* Since the start. */
    _Atomic uint64_t sweeps, sweeps_deaf; /* deaf: threads ran on meanwhile */
    _Atomic uint64_t scanned;             /* bytes that were read */
    _Atomic uint64_t released, yielded;   /* blocks that a sweep let go, and that left by a bound */
};
HAK_DATA struct sweep sweep;

/* Makes blocks that leave the quarantine wait; they are of one slab class. False: there is no memory for that, and none
 * waits. Reports a block that waits already, or whose slab is gone: a write after its free had restored its seal.
 * Clears `blocks`, which a sweep would take for pointers. Any thread that may take metadata_lock. */
HAK_HIDDEN bool sweep_wait(unsigned class, void **blocks, size_t count);

/* sweep_wait for a span. Those above HARDEN_ERASE_MOST are purged. closed: it is inaccessible. */
HAK_HIDDEN bool sweep_wait_span(void *block, bool closed);

/* sweep_wait for any block of a slab that a thread without a quarantine has freed. */
HAK_HIDDEN HAK_COLD bool sweep_wait_alone(unsigned class, void *block);

/* Frees a huge block: as huge_free. Any thread that holds no lock. */
HAK_HIDDEN bool sweep_free_huge(void *block);

/* Call after a huge block of so many bytes moved away from the address: takes the place back and makes it wait. */
HAK_HIDDEN void sweep_hold_addresses(void *address, size_t bytes);

/* Sweeps if a sweep is still due. Blocks leave by `heap`, the thread's or the house heap. Any thread without a lock. */
HAK_HIDDEN HAK_COLD void sweep_run(struct heap *heap);

/* Call when an allocation failed, with the number of calls before. The first sweeps, whatever waits; the second lets
 * all leave. False: there is no more to do, or the sweep is off. */
HAK_HIDDEN HAK_COLD bool sweep_make_room(struct heap *heap, unsigned tries);

HAK_INLINE bool sweep_is_due(void) { return HAK_UNLIKELY(atomic_load_explicit(&sweep.due, memory_order_relaxed)); }

/* In the child of a fork: the thread that swept is gone. */
HAK_HIDDEN void sweep_reset_in_child(void);

#endif
