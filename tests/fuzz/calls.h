/*
 * The target `calls`: the input is a sequence of calls of the public interface by four threads in lock-step, on the
 * fake system, and each result is judged by the test's own record (../stress/block.h).
 *
 * Two bytes choose settings (calls.c); then each step is a byte, whose low 5 bits are the operation (calls_steps.c) and
 * whose next 2 the thread, and what that operation takes. One thread runs at a time, time stands still until a step
 * moves it, and every input has a process of its own: an input that fails once fails again. With FUZZ_TOLD set in the
 * environment the settings and each step are printed, with the slots, sizes and counts that it takes.
 */
#ifndef TESTS_FUZZ_CALLS_H
#define TESTS_FUZZ_CALLS_H

#include "block.h"
#include "fuzz.h"

#include <hakmem/hakmem.h>

enum { CALLS_SLOTS = 1024, CALLS_HEAPS = 4, CALLS_THREADS = 4, CALLS_NO_HEAP = -1 };

/* How a block was asked for, which decides what its sized free may say. */
enum calls_origin { CALLS_PLAIN, CALLS_ALIGNED, CALLS_OTHER };

struct calls_slot {
    struct block block; /* start NULL: empty */
    enum calls_origin origin;
    int heap;           /* that the block lives in, or CALLS_NO_HEAP */
};

struct calls {
    struct fuzz_input input;
    struct calls_slot slots[CALLS_SLOTS];
    hak_heap_t *heaps[CALLS_HEAPS]; /* NULL: not there */
    unsigned step, steps_failed;    /* steps so far; refused requests among them */
    bool limited;                   /* by a setting: requests may be refused, and blocks be mappings of their own */
    bool overflows;                 /* the window is small or cannot grow: blocks may be mappings of their own */
    bool failing;                   /* by a rule of the fake system: so may they */
    bool profiled;
    bool told;                      /* FUZZ_TOLD is set */
};

extern struct calls calls;

/* Does one operation, in the thread that it is for. */
void calls_do(unsigned operation);
const char *calls_name(unsigned operation);

/* The step that ends the calling thread, after which another takes its seat, is the caller's own. */
enum { CALLS_THREAD_EXIT = 21 };

/* Checks all blocks and the allocator's own figures against the record and the system. No call is under way. */
void calls_check(const char *when);

/* Empties the slot, if it is full. */
void calls_free(struct calls_slot *slot);
void calls_destroy_heap(unsigned index);

#endif
