/*
 * Sampled guards: a few blocks lie alone in a page between two pages that nobody may touch. An access beyond the block
 * or after its free faults at once. The model is GWP-ASan (LLVM's manual; Serebryany et al., 2024, arXiv 2311.09394).
 *
 * All slots lie in one reserved range: a guard page, then for each slot its page and a guard page. A slot holds one
 * block, at its page's right or left end. The page of a freed block is closed and its memory given back. The slot then
 * waits in a queue behind all that were freed before, so that the page stays closed for as long as possible.
 *
 * Z6: a slot's page is open iff the slot is in use, or it was opened after a report so that the program goes on. The
 *     page and the slot's state change together under guard_lock.
 * Z7: a slot is in the queue iff it is not in use. Live blocks leave at least a quarter of all slots in the queue.
 * Z8: no code here reaches a foreign point. guard_begin installs the handler: at the process's start, in
 *     hak_guard_start, or at a slow call that serves a request (front/control.h). Reports allocate nothing.
 */
#ifndef HAK_PROFILE_GUARD_H
#define HAK_PROFILE_GUARD_H

#include "os/fault.h"
#include "os/lock.h"

struct heap;

#define GUARD_FRAMES 24u

/* A thread's stack. Frames are addresses inside the call instructions, innermost first. */
struct guard_stack {
    uint32_t thread; /* the kernel's id; 0: there is no stack */
    uint32_t count;
    uintptr_t frames[GUARD_FRAMES];
};

enum guard_state { GUARD_UNUSED = 0, GUARD_LIVE, GUARD_FREED };

/* What the slow paths of front/ need when the block is freed. */
struct guard_origin {
    struct heap *heap; /* its first-class heap, or NULL */
    uint8_t class;     /* whose countdown drew the sample, or CLASS_NONE */
};

struct guard_slot {
    uintptr_t block;
    size_t size; /* as requested, but 1 for 0 */
    struct guard_origin origin;
    uint8_t state;     /* enum guard_state */
    bool reported;     /* an access to this block was reported */
    struct guard_stack allocated, freed;
};

struct guard {
    _Atomic uintptr_t start; /* of the range. Order: release and acquire by `bytes` */
    _Atomic size_t bytes;    /* its length; 0: none yet. Order: release in guard_begin, acquire in guard_covers */
    _Atomic bool on;         /* samples become guarded blocks. Order: any; a hint */
    size_t page;
    uint32_t count;          /* slots */
    uint32_t keep;           /* slots that stay in the queue at least (Z7) */
    struct guard_slot *slots;
    bool *open;              /* by number of guard page: it was opened after a report */
    uint16_t *queue;         /* slots not in use: `waiting` from `head` on, in a circle of `count` places */
    uint32_t head, waiting;
    uint64_t random;
    _Atomic uint64_t live, allocated, reports; /* blocks now, blocks in all, reports. Order: any; statistics */
    _Atomic uint64_t live_bytes;               /* of the blocks in use. Order: any; a statistic */
};
HAK_DATA struct guard guard;
HAK_DATA struct lock guard_lock;        /* the slots and the queue */
HAK_DATA struct lock guard_report_lock; /* the report being made; taken before guard_lock */

HAK_INLINE bool guard_on(void) { return HAK_UNLIKELY(atomic_load_explicit(&guard.on, memory_order_relaxed)); }

/* Whether the address lies in the range. */
HAK_INLINE bool guard_covers(const void *address)
{
    size_t bytes = atomic_load_explicit(&guard.bytes, memory_order_acquire);

    return HAK_UNLIKELY((uintptr_t)address - atomic_load_explicit(&guard.start, memory_order_relaxed) < bytes);
}

/* Makes the range, if there is none yet, and installs the handler. Returns 0 or an errno. Under profile_control. */
HAK_HIDDEN int guard_begin(unsigned slots);

/* A block of `size` bytes at a multiple of `alignment`. NULL: it does not fit, or no slot is free. Holding no lock. */
HAK_HIDDEN void *guard_allocate(size_t size, size_t alignment, const struct guard_origin *origin);

/* Frees the block for the function, and reports damage around it. False: none is in use (reported). Holding no lock. */
HAK_HIDDEN bool guard_free(const void *block, const char *function, struct guard_origin *origin);

/* Frees all blocks of a first-class heap. */
HAK_HIDDEN void guard_free_heap(struct heap *heap);

/* The size of the block in use at the address, or 0. *heap (heap may be NULL): its first-class heap, or NULL. */
HAK_HIDDEN size_t guard_size(const void *block, struct heap **heap);

/* Reports that the function was called with an address in the range that is no block in use. Holding no lock. */
HAK_HIDDEN void guard_misused(const void *address, const char *function);

/* Bytes of the pages in use; *live: bytes of the blocks in them. */
HAK_HIDDEN size_t guard_bytes_in_use(size_t *live);

#endif
