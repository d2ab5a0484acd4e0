/*
 * What the tests of the core's layers share. The library's state is the process's, so each test runs in a process of
 * its own, on the fake OS as it is at its start; and what the headers promise of the shared pool is checked from
 * outside.
 */
#ifndef HAK_TESTS_UNIT_CORE_H
#define HAK_TESTS_UNIT_CORE_H

#include "support.h"

#include "options/options.h"
#include "os/fake.h"
#include "superslab/shared_pool.h"

#define MILLISECOND UINT64_C(1000000)

struct core_test {
    void (*body)(void);
};

/* Runs the body in a child; what the child prints is shown if it fails. */
void core_run(void **state);

/* A row of the table for cmocka_run_group_tests. */
#define core_unit_test(body) { #body, core_run, NULL, NULL, &(struct core_test){ body } }

/* The window, and the registry on top of it. Settings (hak_options, fake_set_*) go before it. */
void core_begin(void);

/* A sequence of numbers from UNIT_SEED, or from a fixed seed; the seed is printed. */
void chance_begin(void);
uint64_t chance_next(void);
size_t chance_below(size_t limit);

/* Acquires exactly so many runs. */
void core_acquire(unsigned units, unsigned align_units, size_t count, struct slab **slabs);

/* Writes to every page of the slab, so that it is not as the system gave it; and releases it as a heap does. */
void core_touch(struct slab *slab);
void core_release(struct slab *slab);

/* Resident bytes of the range. */
size_t core_resident(const void *start, size_t size);

/* Checks P1 (as far as slots tell), P3, P7 and the sums in struct shared_pool, when no purge is running. */
void core_check_pool(void);

/* Checks P2: units whose touched bit is clear have no memory. */
void core_check_untouched(void);

#endif
