#define _GNU_SOURCE
#include "core.h"

#include "superslab/strict.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "front/process.h"
#include "front/thread.h"
#include "pool/registry.h"

/* ---- A process for each test ---- */

static void run_body(void **state)
{
    const struct core_test *test = *state;
    test->body();
}

static char said[64 * 1024];

void core_run(void **state)
{
    const struct CMUnitTest inner[] = { { "in its own process", run_body, NULL, NULL, *state } };
    int output = memfd_create("output", 0), status = 0;
    ssize_t length;
    pid_t child;

    assert_true(output >= 0);
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int failed = 1;
        if (dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0)
            failed = cmocka_run_group_tests(inner, NULL, NULL);
        fflush(NULL);
        _exit(failed != 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    length = pread(output, said, sizeof said - 1, 0);
    close(output);
    said[length > 0 ? length : 0] = '\0';
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fputs(said, stderr);
        fail_msg("the process ended with status %#x", (unsigned)status);
    }
}

size_t core_row;

void core_run_each(void (*body)(void), size_t count)
{
    struct core_test test = { body };
    void *state = &test;

    for (core_row = 0; core_row < count; core_row++)
        core_run(&state);
}

void core_begin(void)
{
    assert_true(shared_pool_init());
    assert_true(registry_init());
}

struct thread_cache *core_begin_thread(void)
{
    struct thread_cache *cache;

    hak_options.abort_on_misuse = 0;
    assert_true(process_init());
    cache = thread_cache_get();
    assert_non_null(cache);
    return cache;
}

/* ---- Chance ---- */

static uint64_t chance_state;

void chance_begin(void)
{
    const char *seed = getenv("UNIT_SEED");
    chance_state = seed ? strtoull(seed, NULL, 0) : 20251121;
    print_message("UNIT_SEED=%" PRIu64 "\n", chance_state);
}

/* The generator is splitmix64. */
uint64_t chance_next(void)
{
    uint64_t word = chance_state += UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

size_t chance_below(size_t limit)
{
    return chance_next() % limit;
}

/* ---- Slabs without heaps ---- */

void core_acquire(unsigned units, unsigned align_units, size_t count, struct slab **slabs)
{
    assert_int_equal(shared_pool_acquire(units, align_units, count, POOL_DENSE, slabs), count);
}

void core_touch(struct slab *slab)
{
    for (size_t at = 0; at < slab->units * UNIT_SIZE; at += 4096)
        slab->start[at] = 1;
    slab->zero = false;
}

void core_use(struct slab *slab, size_t resident)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    slab->class = (uint8_t)class_of_size(slab->units * UNIT_SIZE);
    atomic_store(&slab->state, SLAB_ACTIVE);
    for (size_t at = 0; at < resident; at += page)
        ((volatile char *)slab->start)[at] = 1;
    slab->zero = false;
}

void core_release(struct slab *slab)
{
    slab->used = 0;
    slab->next = NULL;
    shared_pool_release(slab);
}

size_t core_resident(const void *start, size_t size)
{
    unsigned char present[512];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = 0;

    for (size_t at = 0; at < size; at += sizeof present * page) {
        size_t part = base_min(size - at, sizeof present * page);
        if (mincore((char *)(uintptr_t)start + at, part, present) != 0) {
            assert_true(UNIT_EMULATED && errno == ENOMEM); /* qemu does not tell of memory that nobody can access */
            continue;
        }
        for (size_t i = 0; i < part / page; i++)
            pages += present[i] & 1;
    }
    return pages * page;
}

/* ---- Invariants ---- */

static size_t check_bucket(unsigned bucket)
{
    uint32_t number = shared_pool.heads[bucket], before = 0;
    size_t count = 0;

    for (; number; before = number, number = shared_pool.slots[number].next) {
        assert_int_equal(shared_pool.slots[number].bucket, bucket);
        assert_int_equal(shared_pool.slots[number].prev, before);
        assert_true(++count <= shared_pool.superslabs);
    }
    assert_int_equal(shared_pool.tails[bucket], before);
    assert_int_equal((shared_pool.bucket_mask >> bucket) & 1, count != 0);
    return count;
}

/* V14 to V17 */
static void check_strict(uint32_t number)
{
    const struct slot *slot = &shared_pool.slots[number];
    const struct superslab *superslab = (const struct superslab *)window_slot_address(number);
    unsigned longest = 0, length = 0;

    assert_int_equal(slot->huge_pages, PAGES_SMALL);
    for (unsigned unit = 1; unit < SUPERSLAB_UNITS; unit++) {
        length = (slot->free >> unit) & 1 ? length + 1 : 0;
        longest = length > longest ? length : longest;
    }
    assert_int_equal(slot->bucket, longest == 31 ? POOL_BUCKET_EMPTY : longest > 2 ? longest - 2 : 0);
    if (slot->free == POOL_ALL_UNITS)
        return;
    assert_int_equal(superslab->guards & (slot->touched | ~slot->free | 1), 0);
    for (unsigned unit = 1; unit < SUPERSLAB_UNITS; unit++) {
        const struct slab *slab = &superslab->slabs[superslab->first_unit[unit]];
        unsigned first = superslab->first_unit[unit];
        if ((slot->free >> unit) & 1)
            continue;
        if (atomic_load(&((struct slab *)(uintptr_t)slab)->state) == SLAB_FREE) /* being purged */
            continue;
        assert_true((slot->free >> (first - 1)) & 1);
        assert_true(first + slab->units < SUPERSLAB_UNITS && (slot->free >> (first + slab->units)) & 1);
    }
}

void core_check_pool(void)
{
    size_t used = 0, dirty = 0, superslabs = 0, empties = 0, listed = 0, in_buckets = 0, split = 0, unmapped = 0,
           foreign = 0;
    size_t headers = 0;

    for (uint32_t number = window_slots_begin(); number < shared_pool.slots_unused; number++) {
        const struct slot *slot = &shared_pool.slots[number];
        unsigned free = base_count_bits(slot->free);
        assert_int_not_equal(slot->kind, SLOT_UNUSED);
        split += slot->huge_pages == PAGES_SPLIT;
        foreign += slot->kind == SLOT_FOREIGN;
        if (slot->kind != SLOT_SUPERSLAB)
            continue;
        superslabs++;
        if (slot->huge_pages == PAGES_HUGE) /* P7 */
            assert_true((slot->touched | 1) == 1 || (slot->touched | 1) == UINT32_MAX);
        assert_int_equal(slot->free & 1, 0);
        if (strict_is(number))
            check_strict(number);
        else
            assert_int_equal(slot->bucket, free + (free == POOL_BUCKET_EMPTY && slot->touched == 0 &&
                                                   slot->huge_pages != PAGES_SMALL));
        assert_int_equal(slot->aged & ~slot->free, 0);
        assert_false(slot->decommitted && (slot->touched != 0 || free != SUPERSLAB_UNITS - 1)); /* P5 */
        assert_int_equal(fake_is_mapped(window_slot_address(number), SUPERSLAB_SIZE), !slot->decommitted);
        unmapped += slot->decommitted;
        used += SUPERSLAB_UNITS - 1 - free;
        dirty += base_count_bits(slot->free & slot->touched);
        empties += slot->bucket == POOL_BUCKET_EMPTY && slot->touched != 0;
        in_buckets += slot->bucket != 0;
        headers += slot->touched & 1;
    }
    assert_int_equal(shared_pool.heads[0], 0);
    assert_int_equal(shared_pool.bucket_mask & 1, 0);
    for (unsigned bucket = 1; bucket < POOL_BUCKETS; bucket++)
        listed += check_bucket(bucket);
    assert_int_equal(listed, in_buckets);
    assert_int_equal(shared_pool.superslabs, superslabs);
    assert_int_equal(shared_pool.split, split);
    assert_int_equal(shared_pool.decommitted, unmapped);
    assert_int_equal(shared_pool.slots_foreign, foreign);
    assert_int_equal(shared_pool.units_used, used);
    assert_int_equal(shared_pool.units_dirty, dirty);
    assert_int_equal(shared_pool.dirty_empties, empties);
    assert_int_equal(shared_pool.headers, headers);
    assert_true(shared_pool.slots_unused <= shared_pool.slots_committed);
    assert_int_equal(shared_pool.slots_committed, window_slots_mapped());
}

void core_check_untouched(void)
{
    for (uint32_t number = window_slots_begin(); number < shared_pool.slots_unused; number++) {
        const struct slot *slot = &shared_pool.slots[number];
        uint32_t clean = slot->kind == SLOT_SUPERSLAB && !slot->decommitted ? ~slot->touched : 0;
        for (; clean; clean &= clean - 1)
            if (core_resident(window_slot_address(number) + base_low_bit(clean) * UNIT_SIZE, UNIT_SIZE) != 0)
                fail_msg("P2: unit %u of slot %u is untouched and has memory", base_low_bit(clean), number);
    }
}
