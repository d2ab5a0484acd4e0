/*
 * Counts what many cores would do to each other's caches. The library under test and the patterns run as threads of one
 * process on one CPU, and each thread belongs to a virtual core. Of the threads only one runs at a time. The compiler
 * calls the runtime before each access to memory (-fsanitize=thread, without libtsan), so the runtime can keep the MESI
 * state of every cache line, advance the virtual core's clock by what the access would take, and let the core whose
 * clock is behind run next. Whatever could differ between two runs comes from the runtime: clocks, random numbers, the
 * number of CPUs, which thread runs. So the figures repeat exactly for a seed.
 *
 * model.c      the state of lines and pages, the costs, the counts
 * schedule.c   threads, cores and their clocks
 * callbacks.c  what the compiler calls
 * system.c     calls of the C library that the runtime answers in its place
 * patterns.c   the program
 */
#ifndef COHERENCE_H
#define COHERENCE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CORES_MOST = 256,
    CORES_ALL = CORES_MOST + 64, /* threads that the library starts for itself have cores of their own */
    NODES = 2,
    LINE_SHIFT = 6,
    PAGE_SHIFT = 12
};

/* What an access or an event takes, in cycles: rounded figures of servers with two sockets. They order the threads and
 * predict speed-ups; the counts follow from them only by the order of accesses. */
enum {
    COST_ACCESS = 2,
    COST_ATOMIC = 20,           /* read-modify-write of a line that the core owns */
    COST_TRANSFER = 100,        /* a line from another core of the node */
    COST_REMOTE = 250,          /* a line from a core of another node */
    COST_MEMORY = 90,
    COST_MEMORY_REMOTE = 150,
    COST_FAULT = 1500,          /* the first touch of a page */
    COST_MAPPING = 1500,        /* a system call that changes mappings; these wait for one another */
    COST_SHOOTDOWN = 50,        /* for each core, where the call takes pages away */
    COST_FUTEX = 1500,
    COST_YIELD = 500,
    CYCLES_PER_NANOSECOND = 3
};

enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_UPDATE };

/* What is counted while coherence_count(true) holds. */
struct counts {
    uint64_t accesses, atomics, failed; /* failed: compare-and-swaps */
    uint64_t transfers;  /* accesses that wait for another core's copy of the line */
    uint64_t remote;     /* of those: the copy is on another node */
    uint64_t own;        /* of the transfers: by the pattern itself, to its blocks */
    uint64_t cold;       /* accesses to lines that no core has */
    uint64_t locks, hold; /* lock takings, and the accesses while they were held */
    uint64_t waits;      /* threads that slept for a lock */
    uint64_t calls, faults;
};

/* ---- schedule.c ---- */

struct thread;
extern __thread struct thread *current; /* NULL: not the runtime's thread */

/* The calling thread becomes the first of core 0. */
void coherence_begin(unsigned cores, uint64_t seed);
/* Starts a thread on a core. `detached`: nobody joins it. */
struct thread *coherence_start(unsigned core, void *(*run)(void *), void *argument, bool detached);
void coherence_join(struct thread *thread);
unsigned coherence_core(void);
uint64_t coherence_now(void);     /* cycles of the calling core */
uint64_t coherence_random(void);

/* Moves the calling core's clock, and lets another core run when it has overtaken it. */
void schedule_spend(uint64_t cycles);
void schedule_point(void);
/* Blocks the calling thread until schedule_wake(place, ...) or the time; false: the time has come. */
bool schedule_block(const void *place, uint64_t until);
unsigned schedule_wake(const void *place, unsigned most);
bool schedule_own_stack(uintptr_t address);
int schedule_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);

/* ---- model.c ---- */

void model_begin(unsigned cores);
void model_access(uintptr_t address, size_t size, enum access access, const void *code);
/* An access of the pattern to a block. */
void coherence_touch(void *block, size_t size, bool write);
/* Pages that lost their contents: nobody has their lines. */
void model_forget(uintptr_t address, size_t size);
void model_populate(uintptr_t address, size_t size);
/* A system call that changes mappings. */
void model_mapping(bool takes_pages);
/* The thread took what looks like a lock, or gave it back. */
void model_lock_taken(uintptr_t address);
void model_lock_left(uintptr_t address);
void model_wait(void);
void model_failed(void);
void coherence_count(bool on);
struct counts coherence_counts(void);
/* Prints the code, the lines and the locks that count most, for the Python part to name. */
void coherence_report(unsigned most, uint64_t operations);

#endif
