/* Protects the public interface under any calls, settings and failures of the system, by threads in lock-step.
 *
 * The target `calls` (calls.h): settings, threads, and the checks between steps and at the end. */
#define _GNU_SOURCE
#include "calls.h"

#include <hakmem/profile.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/fake.h"
#include "usage_check.h"

/* When everything is freed, headers, caches and the heaps' metadata stay. */
#define RESIDENT_MOST (4 * MIB)

struct calls calls;

/* ---- Settings: the input's first 16 bits ---- */

static char *const settings[16] = {
    "HAKMEM_FC_CAP=8", "HAKMEM_FC_REFILL=1", "HAKMEM_CACHE_BYTES=16K", "HAKMEM_WARM_POOL=0", "HAKMEM_PURGE_DELAY=0",
    "HAKMEM_HUGE_CACHE=0", "HAKMEM_MF2_ENABLE=0", "HAKMEM_SS_LRU_SIZE=0", "HAKMEM_MEMORY_LIMIT=48M",
    "HAKMEM_MEMORY_LIMIT_SOFT=4M", "HAKMEM_POPULATE=0", "HAKMEM_MF2_IDLE_THRESHOLD_US=0",
    "HAKMEM_MF2_ENQUEUE_THRESHOLD=1", "HAKMEM_THP=always", "HAKMEM_ARENA_SIZE=32M", "HAKMEM_HEAP_PROFILE_UNWIND=fp",
};
enum { LIMIT_BIT = 8, ARENA_BIT = 14, PROFILE_BIT = 15 };

static void start_library(void)
{
    static char *environment[sizeof settings / sizeof settings[0] + 2];
    unsigned bits = fuzz_take(&calls.input), count = 0;

    bits |= fuzz_take(&calls.input) << 8;
    /* A purge thread would have its own time in the lock-step. */
    environment[count++] = "HAKMEM_PURGE_THREAD=never";
    for (unsigned i = 0; i < sizeof settings / sizeof settings[0]; i++)
        if (bits >> i & 1)
            environment[count++] = settings[i];
    for (unsigned i = 0; i < count && calls.told; i++)
        fprintf(stderr, "%s\n", environment[i]);
    calls.overflows = bits >> ARENA_BIT & 1;
    calls.limited = calls.overflows || (bits >> LIMIT_BIT & 1);
    calls.profiled = bits >> PROFILE_BIT & 1;
    fake_reset();
    fake_set_environment(environment);
    hak_free(hak_malloc(1));
    if (calls.profiled)
        CHECK(hak_profile_start(32 * KIB) == 0, "the profile does not start");
}

/* ---- Threads ---- */

struct worker {
    pthread_t id;
    bool runs;
    sem_t go, done;
    unsigned operation;
};

static struct worker workers[CALLS_THREADS]; /* [0] is unused: it stands for the main thread */

static void *work(void *argument)
{
    struct worker *self = argument;

    for (;;) {
        while (sem_wait(&self->go) != 0) {
        }
        if (self->operation == CALLS_THREAD_EXIT)
            return NULL;
        calls_do(self->operation);
        sem_post(&self->done);
    }
}

static void end_worker(struct worker *worker)
{
    if (!worker->runs)
        return;
    worker->operation = CALLS_THREAD_EXIT;
    sem_post(&worker->go);
    support_join(worker->id);
    worker->runs = false;
}

static void run_step(unsigned who, unsigned operation)
{
    struct worker *worker = &workers[who];

    if (who == 0) {
        calls_do(operation);
        return;
    }
    if (operation == CALLS_THREAD_EXIT) {
        end_worker(worker);
        return;
    }
    if (!worker->runs) {
        CHECK(sem_init(&worker->go, 0, 0) == 0 && sem_init(&worker->done, 0, 0) == 0, "sem_init");
        worker->id = support_thread(work, worker);
        worker->runs = true;
    }
    worker->operation = operation;
    sem_post(&worker->go);
    while (sem_wait(&worker->done) != 0) {
    }
}

/* ---- What holds ---- */

void calls_check(const char *when)
{
    struct usage usage = usage_read(when); /* U1 */

    for (size_t i = 0; i < CALLS_SLOTS; i++)
        if (calls.slots[i].block.start != NULL)
            block_verify(&calls.slots[i].block);
    CHECK(usage.live == block_live_bytes(), "%s, step %u: live is %zu, the record has %zu in %zu blocks", when,
          calls.step, usage.live, block_live_bytes(), block_live_count());
    CHECK(usage.mapped == fake_bytes_mapped(), "%s, step %u: mapped is %zu, the system has committed %zu", when,
          calls.step, usage.mapped, fake_bytes_mapped());
}

static void finish(void)
{
    fake_fail_nothing();
    (void)hak_set_pressure_handler(NULL);
    calls_check("after the last step");
    for (unsigned i = 1; i < CALLS_THREADS; i++)
        end_worker(&workers[i]);
    for (unsigned i = 0; i < CALLS_HEAPS; i++)
        calls_destroy_heap(i);
    for (size_t i = 0; i < CALLS_SLOTS; i++)
        calls_free(&calls.slots[i]);
    CHECK(block_live_count() == 0, "the record is not empty");
    calls_check("when all is freed");
    if (calls.profiled)
        hak_profile_stop();
    (void)hak_collect(true);
    calls_check("at the end");
    struct usage usage = usage_read("at the end");
    size_t resident = fake_bytes_resident();
    CHECK(resident + usage.purged <= usage.mapped, "%zu of %zu mapped bytes are purged, %zu resident", usage.purged,
          usage.mapped, resident);
    CHECK(resident <= RESIDENT_MOST, "%zu bytes stay resident when all is freed and purged", resident);
}

static void run(const uint8_t *data, size_t size)
{
    calls.told = getenv("FUZZ_TOLD") != NULL;
    calls.input = (struct fuzz_input){ data, data + size };
    start_library();
    while (calls.input.at < calls.input.end) {
        unsigned step = fuzz_take(&calls.input);
        calls.step++;
        if (calls.told)
            fprintf(stderr, "step %u: thread %u, %s\n", calls.step, step >> 5 & (CALLS_THREADS - 1),
                    calls_name(step & 31));
        run_step(step >> 5 & (CALLS_THREADS - 1), step & 31);
    }
    finish();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in_child(run, data, size);
    return 0;
}
