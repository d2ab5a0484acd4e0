/*
 * The differential test: several threads call the whole public interface at random, and compare it with the test's own
 * record (block.h). differential.c describes a run.
 */
#ifndef TESTS_STRESS_DIFFERENTIAL_H
#define TESTS_STRESS_DIFFERENTIAL_H

#include "block.h"

enum { DIFF_SLOTS = 4096, DIFF_EXCHANGE_CELLS = 256, DIFF_HEAPS = 6, DIFF_HEAP_SLOTS = 256, DIFF_BATCH = 150 };

/* How a block was requested, which decides what its sized free may pass. */
enum diff_origin { DIFF_PLAIN, DIFF_ALIGNED, DIFF_OTHER };

struct diff_slot {
    struct block block;
    enum diff_origin origin;
};

/* A thread's seat. Its blocks outlive the thread and pass to the seat's next thread. */
struct diff_seat {
    struct chance chance;
    struct diff_slot slots[DIFF_SLOTS];
    uint64_t calls; /* calls of the allocator */
    unsigned index;
};

/* The usable bytes that the run aims to hold at most. A single block may exceed it a little. */
extern size_t diff_budget;

/* A size for the next request: mostly small, log-uniform to 40 MiB, smaller when the budget is nearly used up. */
size_t diff_draw_size(struct chance *chance);
/* 1 to 4 MiB, mostly small. */
size_t diff_draw_alignment(struct chance *chance);

/* ---- diff_heaps.c: first-class heaps, shared by all threads ---- */

void diff_heaps_start(void);
void diff_heaps_step(struct diff_seat *seat, struct diff_slot *slot);
/* Verifies and destroys every heap. No other thread may run. */
void diff_heaps_end(void);

/* ---- diff_errors.c: calls that must fail and change nothing ---- */

void diff_errors_step(struct diff_seat *seat, struct diff_slot *slot);

#endif
