/*
 * Shared by the tests of the core's layers. The library's state is global, so each test runs in a process of its own,
 * on a fresh fake OS. core_check_pool and core_check_untouched check the shared pool's invariants from outside.
 */
#ifndef HAK_TESTS_UNIT_CORE_H
#define HAK_TESTS_UNIT_CORE_H

#include "support.h"

#include "options/options.h"
#include "os/fake.h"
#include "superslab/shared_pool.h"

#define MILLISECOND UINT64_C(1000000)

/* Tests of chances repeat so many times less under ThreadSanitizer and in an emulator, where each repetition takes 30
 * times as long. There they look for races and for other code of the processor's. The other builds judge the chances
 * with all repetitions. */
enum { UNIT_FEWER = HAK_THREAD_SANITIZER || UNIT_EMULATED ? 10 : 1 };

struct core_test {
    void (*body)(void);
};

/* Runs the body in a child, and shows what the child printed if it fails. */
void core_run(void **state);

/* The same for each number below `count`, which core_row tells the body. */
void core_run_each(void (*body)(void), size_t count);
extern size_t core_row;

/* A row of the table for cmocka_run_group_tests. */
#define core_unit_test(body) { #body, core_run, NULL, NULL, &(struct core_test){ body } }

/* Starts the window and the registry. Call it after the settings (hak_options, fake_set_*). */
void core_begin(void);

/* Starts the process, and returns the thread's cache. Misuse is reported and the call returns. */
struct thread_cache *core_begin_thread(void);

/* A sequence of random numbers from UNIT_SEED, or from a fixed seed. chance_begin prints the seed. */
void chance_begin(void);
uint64_t chance_next(void);
size_t chance_below(size_t limit);

/* Acquires exactly `count` runs. */
void core_acquire(unsigned units, unsigned align_units, size_t count, struct slab **slabs);

/* core_touch writes to every page of the slab, so it is no longer zero. core_release releases it as a heap does. */
void core_touch(struct slab *slab);
void core_release(struct slab *slab);

/* Makes the slab a span in use, with memory behind its first `resident` bytes. */
void core_use(struct slab *slab, size_t resident);

/* Resident bytes of the range. */
size_t core_resident(const void *start, size_t size);

/* Checks P1 (as far as slots tell), P3, P7 and the sums in struct shared_pool. No purge may be running. */
void core_check_pool(void);

/* Checks P2: a unit whose touched bit is clear has no memory behind it. */
void core_check_untouched(void);

#endif
