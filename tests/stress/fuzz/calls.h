/*
 * The target `calls`: the input is a sequence of calls of the public interface by four threads in lock-step, on the
 * fake system. The test's own record (../load/block.h) judges each result.
 *
 * Two bytes choose settings (calls.c). Then each step is a byte, whose low 5 bits are the operation (calls_steps.c) and
 * whose next 2 bits are the thread, followed by the operation's arguments. One thread runs at a time, time stands still
 * until a step moves it, and each input has its own process: an input that fails once fails again. With FUZZ_TOLD set,
 * the settings and each step are printed with slots, sizes and counts.
 */
#ifndef TESTS_FUZZ_CALLS_H
#define TESTS_FUZZ_CALLS_H

#include "block.h"
#include "fuzz.h"

#include <hakmem/hakmem.h>

enum { CALLS_SLOTS = 1024, CALLS_HEAPS = 4, CALLS_THREADS = 4, CALLS_NO_HEAP = -1 };

/* How a block was requested, which decides what its sized free may pass. */
enum calls_origin { CALLS_PLAIN, CALLS_ALIGNED, CALLS_OTHER };

struct calls_slot {
    struct block block; /* start is NULL: empty */
    enum calls_origin origin;
    int heap;           /* the heap that holds the block, or CALLS_NO_HEAP */
};

struct calls {
    struct fuzz_input input;
    struct calls_slot slots[CALLS_SLOTS];
    hak_heap_t *heaps[CALLS_HEAPS]; /* NULL: does not exist */
    unsigned step, steps_failed;    /* steps so far, and steps whose request was refused */
    bool limited;                   /* by a setting: requests may be refused, and blocks may be own mappings */
    bool overflows;                 /* the window is small or cannot grow: blocks may be own mappings */
    bool failing;                   /* by a rule of the fake system: requests may be refused */
    bool profiled;
    bool told;                      /* FUZZ_TOLD is set */
};

extern struct calls calls;

/* Does one operation, in the thread that it is for. */
void calls_do(unsigned operation);
const char *calls_name(unsigned operation);

/* The step that ends the calling thread, and gives its seat to another, is up to the caller. */
enum { CALLS_THREAD_EXIT = 21 };

/* Checks all blocks, and the allocator's own figures, against the record and the system. No call may be under way. */
void calls_check(const char *when);

/* Frees the slot's block, if it has one. */
void calls_free(struct calls_slot *slot);
void calls_destroy_heap(unsigned index);

#endif
