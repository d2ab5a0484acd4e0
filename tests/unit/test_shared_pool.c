/* Protects superslab/shared_pool.h: the choice of SuperSlab and run, P1 to P3 (a model), limits, prewarm, metadata. */
#include "core.h"

#include "superslab/metadata.h"
#include "superslab/purge.h"

#define RUN_UNITS (SUPERSLAB_UNITS - 1) /* without the header's unit */

static uint32_t slot_of(const struct slab *slab)
{
    return window_slot_of(slab->start);
}

/* ---- Tiers ---- */

/* Takes every unit of `count` fresh SuperSlabs: slabs[i] is the run of unit i % 31 + 1 of SuperSlab i / 31. */
static void fill_superslabs(size_t count, struct slab **slabs)
{
    core_acquire(1, 1, count * RUN_UNITS, slabs);
    for (size_t i = 0; i < count * RUN_UNITS; i++) {
        assert_int_equal(slot_of(slabs[i]), slot_of(slabs[0]) + i / RUN_UNITS);
        core_touch(slabs[i]);
    }
}

static void release_all_but(struct slab **superslab, size_t used)
{
    for (size_t i = used; i < RUN_UNITS; i++)
        core_release(superslab[i]);
}

static void test_tiers(void)
{
    enum { DRAINING, FULLEST, EMPTY_OLD, FULL, HOT, EMPTY_NEW, COUNT };
    static const unsigned in_use[COUNT] = { 2, 25, 0, 31, 10, 0 };
    static const unsigned order[] = { FULLEST, HOT, DRAINING, EMPTY_NEW, EMPTY_OLD };
    struct slab *slabs[COUNT * RUN_UNITS], *slab;
    uint32_t first;

    core_begin();
    fill_superslabs(COUNT, slabs);
    first = slot_of(slabs[0]);
    for (size_t i = 0; i < COUNT; i++)
        release_all_but(&slabs[i * RUN_UNITS], in_use[i]);
    core_check_pool();
    assert_int_equal(shared_pool.dirty_empties, 2);
    assert_true(in_use[DRAINING] <= POOL_DRAINING_USED && in_use[HOT] > POOL_DRAINING_USED);
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        for (size_t free = RUN_UNITS - in_use[order[i]]; free; free--) {
            core_acquire(1, 1, 1, &slab);
            assert_int_equal(slot_of(slab) - first, order[i]);
        }
    assert_int_equal(shared_pool.superslabs, COUNT);
    core_acquire(1, 1, 1, &slab);
    assert_int_equal(shared_pool.superslabs, COUNT + 1);
    assert_int_equal(slot_of(slab) - first, COUNT);
    core_check_pool();
}

/* If the fullest SuperSlab has no run long enough, the next one that has serves. */
static void test_tier_with_room(void)
{
    struct slab *slabs[3 * RUN_UNITS], *slab;

    core_begin();
    fill_superslabs(3, slabs);
    /* The first two have 12 free units each. In the first no two of them are neighbours. */
    for (size_t i = 0; i < 24; i += 2)
        core_release(slabs[i]);
    for (size_t i = 0; i < 12; i++)
        core_release(slabs[RUN_UNITS + i]);
    release_all_but(&slabs[2 * RUN_UNITS], 0);
    core_acquire(1, 1, 1, &slab);
    core_acquire(2, 1, 1, &slab);
    assert_int_equal(slot_of(slab), slot_of(slabs[RUN_UNITS]));
    core_acquire(12, 1, 1, &slab);
    assert_int_equal(slot_of(slab), slot_of(slabs[2 * RUN_UNITS]));
    core_check_pool();
}

/* ---- Runs inside a SuperSlab ---- */

static void test_best_fit(void)
{
    struct slab *slabs[RUN_UNITS], *slab;

    core_begin();
    fill_superslabs(1, slabs);
    /* Units 2-9, 12-14 and 20-24 become free. */
    for (size_t unit = 1; unit < SUPERSLAB_UNITS; unit++)
        if (unit >= 2 && unit <= 24 && !(unit >= 10 && unit <= 11) && !(unit >= 15 && unit <= 19))
            core_release(slabs[unit - 1]);
    core_acquire(3, 1, 1, &slab);
    assert_int_equal(slab_first_unit(slab), 12);
    core_acquire(4, 1, 1, &slab);
    assert_int_equal(slab_first_unit(slab), 20);
    core_acquire(1, 1, 1, &slab);
    assert_int_equal(slab_first_unit(slab), 24);
    core_acquire(2, 4, 1, &slab);
    assert_int_equal(slab_first_unit(slab), 4);
    core_acquire(2, 1, 1, &slab);
    assert_int_equal(slab_first_unit(slab), 2);
    core_acquire(4, 1, 1, &slab);
    assert_int_equal(slab_first_unit(slab), 6);
    core_check_pool();
}

/* Dirty units are used before untouched ones, even if the untouched run fits better. */
static void test_touched_first(void)
{
    struct slab *slabs[28], *slab;

    core_begin();
    core_acquire(1, 1, 28, slabs); /* leaves units 29 to 31 untouched */
    for (size_t i = 4; i < 12; i++) {
        core_touch(slabs[i]);
        core_release(slabs[i]);
    }
    core_acquire(3, 1, 1, &slab);
    assert_int_equal(slab_first_unit(slab), 5);
    assert_false(slab->zero);
    core_acquire(3, 1, 1, &slab);
    assert_int_equal(slab_first_unit(slab), 8);
    core_acquire(3, 1, 1, &slab);
    assert_int_equal(slab_first_unit(slab), 29);
    assert_true(slab->zero);
}

static void test_alignment(void)
{
    struct slab *slab;

    core_begin();
    for (unsigned align_units = 1; align_units <= SPAN_MAX_UNITS; align_units *= 2)
        for (unsigned units = 1; units <= SPAN_MAX_UNITS; units++)
            for (unsigned i = 0; i < 3; i++) {
                core_acquire(units, align_units, 1, &slab);
                assert_int_equal((uintptr_t)slab->start % (align_units * UNIT_SIZE), 0);
                assert_in_range(slab_first_unit(slab), 1, SUPERSLAB_UNITS - units);
                assert_int_equal(slab->units, units);
            }
    core_check_pool();
}

static void test_batch_contiguous(void)
{
    struct slab *slabs[16];

    core_begin();
    for (unsigned units = 1; units <= 7; units++) {
        size_t count = base_min(16, RUN_UNITS / units);
        core_acquire(units, 1, count, slabs);
        for (size_t i = 1; i < count; i++)
            assert_ptr_equal(slabs[i]->start, slabs[i - 1]->start + units * UNIT_SIZE);
        for (size_t i = 0; i < count; i++)
            core_release(slabs[i]);
    }
    assert_int_equal(shared_pool.superslabs, 1);
}

static void test_header(void)
{
    struct slab *slabs[2];

    core_begin();
    core_acquire(5, 1, 2, slabs);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(atomic_load(&slabs[i]->state), SLAB_WARM);
        assert_true(slabs[i]->zero);
        assert_int_equal(slabs[i]->class, CLASS_NONE);
        for (size_t at = 0; at < 5 * UNIT_SIZE; at += UNIT_SIZE / 2)
            assert_ptr_equal(slab_of(slabs[i]->start + at), slabs[i]);
        assert_ptr_equal(superslab_of(slabs[i]->start), superslab_of(slabs[i]));
    }
    core_release(slabs[0]);
    assert_int_equal(atomic_load(&slabs[0]->state), SLAB_FREE);
}

/* ---- The model ---- */

enum { MODEL_STEPS = 30000, MODEL_MOST = 400 };

static struct slab *live[MODEL_MOST];
static size_t live_count;
static uint32_t model_used[4096], model_written[4096]; /* bits of units, by slot */

/* Only free units may have been purged. */
static void model_note_purged(void)
{
    for (uint32_t number = window_slots_begin(); number < shared_pool.slots_unused; number++)
        if (shared_pool.slots[number].kind == SLOT_SUPERSLAB)
            model_written[number] &= shared_pool.slots[number].touched | ~shared_pool.slots[number].free;
}

static void model_acquire(void)
{
    unsigned units = 1 + (unsigned)chance_below(chance_below(3) ? 4 : SPAN_MAX_UNITS);
    unsigned align_units = chance_below(4) ? 1 : 1u << chance_below(5);
    size_t count = base_min(1 + chance_below(8), MODEL_MOST - live_count);
    uint64_t purged = shared_pool.purged_bytes;

    count = shared_pool_acquire(units, align_units, count, POOL_DENSE, &live[live_count]);
    model_note_purged(); /* to make room (N2), or because a guard unit took the place */
    for (; count; count--) {
        struct slab *slab = live[live_count++];
        uint32_t mask = (uint32_t)base_low_mask(units) << slab_first_unit(slab);
        assert_int_equal(model_used[slot_of(slab)] & mask, 0); /* P1 */
        assert_int_equal(slab_first_unit(slab) % align_units, 0);
        model_used[slot_of(slab)] |= mask;
        /* P2: a slab marked as zero was not written since the system gave it. */
        if (slab->zero) {
            if (shared_pool.purged_bytes != purged) /* to make room for it (N2) */
                model_written[slot_of(slab)] &= ~mask;
            assert_int_equal(model_written[slot_of(slab)] & mask, 0);
            assert_int_equal(core_resident(slab->start, units * UNIT_SIZE), 0);
        }
        if (chance_below(4)) {
            for (unsigned unit = 0; unit < units; unit++)
                slab->start[unit * UNIT_SIZE + chance_below(UNIT_SIZE)] = 1;
            slab->zero = false;
            model_written[slot_of(slab)] |= mask;
        }
    }
}

static void model_release(size_t index)
{
    struct slab *slab = live[index];
    uint32_t mask = (uint32_t)base_low_mask(slab->units) << slab_first_unit(slab);

    live[index] = live[--live_count];
    model_used[slot_of(slab)] &= ~mask;
    core_release(slab);
}

static void model_purge(void)
{
    size_t purged, before = shared_pool.units_dirty;
    bool all = chance_below(2);

    fake_advance(chance_below(2 * hak_options.purge_delay) * MILLISECOND);
    if (chance_below(4) == 0)
        fake_fail_nth(FAKE_PURGE, 1);
    if (chance_below(4) == 0) {
        purge_address_space(); /* P5 */
        fake_fail_nothing();
        model_note_purged();
        return;
    }
    purged = purge_run(all);
    assert_true(shared_pool.units_dirty <= before);
    assert_true(purged >= (before - shared_pool.units_dirty) * UNIT_SIZE);
    fake_fail_nothing();
    model_note_purged();
}

static void model_check(void)
{
    core_check_pool();
    for (uint32_t number = window_slots_begin(); number < shared_pool.slots_unused; number++) {
        const struct slot *slot = &shared_pool.slots[number];
        if (slot->kind != SLOT_SUPERSLAB)
            continue;
        assert_int_equal(slot->free, ~model_used[number] & ~(uint32_t)1); /* P1 */
        assert_int_equal(model_written[number] & ~slot->touched, 0);      /* P2 */
    }
}

static void test_model(void)
{
    chance_begin();
    hak_options.ss_lru_size = 8;
    hak_options.arena_size = 256 * HAK_MIB;
    core_begin();
    assert_true(window_slots_begin() + 128 < sizeof model_used / sizeof model_used[0]);
    for (size_t step = 0; step < MODEL_STEPS; step++) {
        /* Waves, so that SuperSlabs fill and empty. */
        bool rising = step / 500 % 2;
        if (chance_below(300) == 0)
            model_purge();
        else if (live_count == 0 || (live_count < MODEL_MOST && chance_below(8) < (rising ? 3 : 1)))
            model_acquire();
        else
            model_release(chance_below(live_count));
        if (step % 8 == 0)
            model_check();
        if (step % 1000 == 0)
            core_check_untouched();
    }
    while (live_count)
        model_release(live_count - 1);
    purge_run(true);
    model_note_purged();
    model_check();
    core_check_untouched();
    assert_int_equal(shared_pool.units_dirty, 0);
    assert_int_equal(shared_pool.units_used, 0);
}

/* With huge pages the first touch of a SuperSlab touches all of it. */
static void test_model_huge_pages(void)
{
    hak_options.thp = OPTION_ALWAYS;
    chance_begin();
    core_begin();
    for (unsigned round = 0; round < 3; round++) {
        struct slab *slab, *other;
        core_acquire(2, 1, 1, &slab);
        assert_true(slab->zero);
        assert_int_equal(shared_pool.units_dirty, RUN_UNITS - 2);
        core_check_pool();
        core_acquire(1, 1, 1, &other);
        assert_false(other->zero);
        core_touch(slab);
        core_release(slab);
        core_release(other);
        core_check_pool();
        purge_run(true);
        assert_int_equal(shared_pool.units_dirty, 0);
        core_check_pool();
        assert_int_equal(shared_pool.superslabs, 1);
    }
}

/* ---- Limits ---- */

/* The limit counts memory in use, waiting memory, headers and metadata. */
static void limit_units(uint64_t *limit, size_t units)
{
    *limit = shared_pool_footprint() + (units + 1) * UNIT_SIZE; /* one for the SuperSlab's header */
}

static void test_hard_limit(void)
{
    struct slab *slabs[64];

    core_begin();
    limit_units(&hak_options.memory_limit, 20);
    assert_int_equal(shared_pool_acquire(3, 1, 64, POOL_DENSE, slabs), 6);
    assert_int_equal(shared_pool_acquire(3, 1, 1, POOL_DENSE, &slabs[6]), 0);
    assert_int_equal(shared_pool_acquire(1, 1, 5, POOL_DENSE, &slabs[6]), 2);
    assert_int_equal(shared_pool.units_used, 20);
    assert_false(shared_pool_charge_huge(UNIT_SIZE));
    /* Waiting memory is reused. If it does not fit, it is given back. */
    core_touch(slabs[0]);
    core_release(slabs[0]);
    core_acquire(3, 1, 1, slabs);
    core_touch(slabs[0]);
    core_release(slabs[0]);
    assert_true(shared_pool_charge_huge(2 * UNIT_SIZE));
    assert_int_equal(shared_pool.units_dirty, 0);
    assert_int_equal(shared_pool.purged_bytes, 3 * UNIT_SIZE);
    assert_false(shared_pool_charge_huge(2 * UNIT_SIZE));
    assert_int_equal(shared_pool_acquire(1, 1, 2, POOL_DENSE, &slabs[14]), 1);
    shared_pool_uncharge_huge(2 * UNIT_SIZE);
    assert_int_equal(shared_pool.huge_bytes, 0);
    assert_int_equal(shared_pool_acquire(1, 1, 2, POOL_DENSE, &slabs[15]), 2);
    assert_int_equal(shared_pool_acquire(1, 1, 1, POOL_DENSE, &slabs[17]), 0);
    core_check_pool();
}

/* The limit counts metadata that was handed out, and not the slot that holds it. */
static void test_hard_limit_counts_metadata(void)
{
    struct slab *slab;

    core_begin();
    hak_options.memory_limit = shared_pool_footprint() + 2 * UNIT_SIZE;
    assert_non_null(metadata_allocate(UNIT_SIZE, 16));
    assert_int_equal(shared_pool_acquire(1, 1, 1, POOL_DENSE, &slab), 0);
    hak_options.memory_limit += UNIT_SIZE;
    core_acquire(1, 1, 1, &slab);
}

static void test_soft_limit(void)
{
    struct slab *slabs[20];

    core_begin();
    limit_units(&hak_options.memory_limit_soft, 10);
    core_acquire(1, 1, 10, slabs);
    assert_false(atomic_load(&shared_pool.over_soft_limit));
    /* Free memory leaves at once, before the footprint passes the soft limit. */
    for (size_t i = 5; i < 10; i++) {
        core_touch(slabs[i]);
        core_release(slabs[i]);
    }
    assert_true(shared_pool_charge_huge(5 * UNIT_SIZE));
    assert_int_equal(shared_pool.units_dirty, 0);
    assert_false(atomic_load(&shared_pool.over_soft_limit));
    /* Nothing is left to give back: the call succeeds and requests the handler. No unit is taken in advance. */
    assert_int_equal(shared_pool_acquire(1, 1, 10, POOL_DENSE, &slabs[5]), 1);
    for (size_t i = 6; i < 15; i++)
        core_acquire(1, 1, 1, &slabs[i]);
    assert_true(atomic_load(&shared_pool.over_soft_limit));
    assert_true(purge_is_due(shared_pool_now_ms()));
    assert_true(shared_pool.footprint_peak >= 15 * UNIT_SIZE);
    for (size_t i = 5; i < 15; i++) {
        core_touch(slabs[i]);
        core_release(slabs[i]);
    }
    /* Free memory is purged without a delay. */
    assert_int_equal(purge_run(false), 10 * UNIT_SIZE);
    assert_int_equal(shared_pool.units_dirty, 0);
    assert_false(atomic_load(&shared_pool.over_soft_limit));
}

static void test_window_full(void)
{
    static struct slab *slabs[8 * RUN_UNITS];
    size_t slots = 16 * HAK_MIB / SUPERSLAB_SIZE, count;

    hak_options.arena_size = 16 * HAK_MIB;
    core_begin();
    count = shared_pool_acquire(1, 1, sizeof slabs / sizeof slabs[0], POOL_DENSE, slabs);
    /* One slot holds metadata. */
    assert_int_equal(count, (slots - window_slots_begin() - 1) * RUN_UNITS);
    assert_int_equal(shared_pool_acquire(1, 1, 1, POOL_DENSE, &slabs[count]), 0);
    assert_null(shared_pool_take_metadata_slot());
    core_check_pool();
    core_release(slabs[7]);
    core_acquire(1, 1, 1, &slabs[7]);
}

static void test_commit_refused(void)
{
    struct slab *slabs[3 * RUN_UNITS];

    core_begin();
    fake_fail_from(FAKE_MAP_AT, 1);
    assert_int_equal(shared_pool_acquire(1, 1, 3 * RUN_UNITS, POOL_DENSE, slabs), RUN_UNITS);
    core_check_pool();
    fake_fail_nothing();
    core_acquire(1, 1, 2 * RUN_UNITS, &slabs[RUN_UNITS]);
    core_check_pool();
}

/* ---- Prewarm ---- */

static void test_prewarm(void)
{
    struct slab *slabs[3 * RUN_UNITS];
    uint64_t commits;

    core_begin();
    assert_int_equal(shared_pool_prewarm(3), 3);
    assert_int_equal(fake_calls(FAKE_POPULATE), 3);
    assert_int_equal(shared_pool.superslabs, 3);
    assert_int_equal(shared_pool.units_dirty, 3 * RUN_UNITS);
    assert_int_equal(shared_pool.dirty_empties, 3);
    core_check_pool();
    commits = fake_calls(FAKE_MAP_AT);
    core_acquire(1, 1, 3 * RUN_UNITS, slabs);
    assert_int_equal(fake_calls(FAKE_MAP_AT), commits);
    for (size_t i = 0; i < 3 * RUN_UNITS; i++)
        assert_int_equal(core_resident(slabs[i]->start, UNIT_SIZE), UNIT_SIZE);
    assert_int_equal(shared_pool.superslabs, 3);
    core_check_pool();
}

static void test_prewarm_refused(void)
{
    uint64_t populated;
    size_t done;

    core_begin();
    fake_fail_nth(FAKE_POPULATE, 3);
    assert_int_equal(shared_pool_prewarm(5), 2);
    core_check_pool();
    fake_fail_from(FAKE_MAP_AT, 1);
    populated = fake_calls(FAKE_POPULATE);
    done = shared_pool_prewarm(50);
    assert_true(done < 50);
    assert_int_equal(fake_calls(FAKE_POPULATE), populated + done); /* SuperSlabs only */
    core_check_pool();
    fake_fail_nothing();
    assert_int_equal(shared_pool_prewarm(5), 5);
    core_check_pool();
}

/* ---- Metadata ---- */

static void test_metadata(void)
{
    static const size_t sizes[] = { 1, 40, 4096, 100, 65536, SUPERSLAB_SIZE - 4096, 7, SUPERSLAB_SIZE / 2 };
    uintptr_t ends[256], starts[256];
    size_t count = 0;

    chance_begin();
    core_begin();
    for (; count < 256; count++) {
        size_t size = sizes[chance_below(count % 8 ? 4 : 8)], alignment = (size_t)1 << chance_below(13);
        char *record = metadata_allocate(size, alignment);
        assert_non_null(record);
        starts[count] = (uintptr_t)record;
        ends[count] = starts[count] + size;
        assert_int_equal(starts[count] % alignment, 0);
        assert_true(window_contains(record));
        assert_int_equal(shared_pool.slots[window_slot_of(record)].kind, SLOT_METADATA);
        assert_int_equal(window_slot_of(record + size - 1), window_slot_of(record));
        for (size_t at = 0; at < size; at += 64) {
            assert_int_equal(record[at], 0);
            record[at] = 1;
        }
        for (size_t i = 0; i < count; i++)
            assert_true(starts[i] >= ends[count] || ends[i] <= starts[count]);
    }
    assert_int_equal(metadata_bytes() % SUPERSLAB_SIZE, 0);
    assert_int_equal(metadata_bytes() / SUPERSLAB_SIZE + shared_pool.superslabs,
                     shared_pool.slots_unused - window_slots_begin());
    core_check_pool();
}

static void test_metadata_refused(void)
{
    size_t records = 0;

    core_begin();
    fake_fail_from(FAKE_MAP_AT, 1);
    while (metadata_allocate(HAK_MIB, 16))
        records++;
    assert_in_range(records, 1, 4);
    assert_null(metadata_allocate(HAK_MIB, 16));
    fake_fail_nothing();
    assert_non_null(metadata_allocate(HAK_MIB, 16));
}

/* G2: a huge page's first slab brings memory behind its neighbours, so their purge is announced. */
static void test_huge_page_announces(void)
{
    struct slab *slab;

    hak_options.thp = OPTION_ALWAYS;
    core_begin();
    core_acquire(1, 1, 1, &slab);
    assert_int_equal(shared_pool.units_dirty, RUN_UNITS - 1);
    assert_int_not_equal(atomic_load(&shared_pool.next_purge_ms), 0);
}

/* P8: a SuperSlab that begins with a class of few blocks, and metadata, refuse huge pages. */
static void test_small_pages(void)
{
    uint64_t refused;
    struct slab *slab, *rest;

    hak_options.thp = OPTION_AUTO;
    core_begin();
    do { /* both take a SuperSlab whole */
        core_acquire(SPAN_MAX_UNITS, 1, 1, &slab);
        core_use(slab, SPAN_MAX_UNITS * UNIT_SIZE);
        core_acquire(RUN_UNITS - SPAN_MAX_UNITS, 1, 1, &rest);
        core_use(rest, (RUN_UNITS - SPAN_MAX_UNITS) * UNIT_SIZE);
    } while (shared_pool.slots[window_slot_of(slab)].huge_pages != PAGES_HUGE);
    refused = fake_calls(FAKE_ADVISE_SMALL);
    core_acquire(SPAN_MAX_UNITS, 1, 1, &slab);
    assert_int_equal(shared_pool.slots[window_slot_of(slab)].huge_pages, PAGES_HUGE);
    assert_int_equal(fake_calls(FAKE_ADVISE_SMALL), refused);
    assert_int_equal(shared_pool_acquire(SPAN_MAX_UNITS, 1, 1, POOL_SPARSE, &slab), 1);
    assert_int_equal(shared_pool.slots[window_slot_of(slab)].huge_pages, PAGES_SPLIT);
    assert_int_equal(fake_calls(FAKE_ADVISE_SMALL), refused + 1);
    for (unsigned i = 0; i < 3; i++) {
        void *metadata = shared_pool_take_metadata_slot();
        assert_non_null(metadata);
        assert_int_equal(shared_pool.slots[window_slot_of(metadata)].huge_pages, PAGES_SMALL);
        assert_int_equal(fake_calls(FAKE_ADVISE_SMALL), refused + 2 + i);
    }
}

int main(void)
{
    /* libhakmem-secure has guard units, which core_check_pool checks. */
    const struct CMUnitTest guarded[] = { core_unit_test(test_model) };
    const struct CMUnitTest tests[] = {
        core_unit_test(test_tiers),
        core_unit_test(test_huge_page_announces),
        core_unit_test(test_tier_with_room),
        core_unit_test(test_best_fit),
        core_unit_test(test_touched_first),
        core_unit_test(test_alignment),
        core_unit_test(test_batch_contiguous),
        core_unit_test(test_header),
        core_unit_test(test_model),
        core_unit_test(test_model_huge_pages),
        core_unit_test(test_small_pages),
        core_unit_test(test_hard_limit),
        core_unit_test(test_hard_limit_counts_metadata),
        core_unit_test(test_soft_limit),
        core_unit_test(test_window_full),
        core_unit_test(test_commit_refused),
        core_unit_test(test_prewarm),
        core_unit_test(test_prewarm_refused),
        core_unit_test(test_metadata),
        core_unit_test(test_metadata_refused),
    };
    return HAK_SECURE ? cmocka_run_group_tests(guarded, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}
