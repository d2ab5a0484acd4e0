/* Protects profile/: chance, records, sites and sizes. Their sums match the records that were put in and taken out. */
#include "heaps.h"

#include <math.h>

#include "profile/profile.h"

/* ---- Chance ---- */

static void test_weights(void **state)
{
    static const size_t sizes[] = { 16, 48, 4096, 65536, 524288, 1048576, 16 * HAK_MIB };

    (void)state;
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (uint64_t mean = 1; mean <= UINT64_C(1) << 40; mean *= 8) {
            double exact = -1 / expm1(-(double)sizes[i] / (double)mean);
            double ours = (double)draw_weight(mean, sizes[i]) / (double)WEIGHT_ONE;
            assert_true(fabs(ours / exact - 1) < 1e-5);
        }
}

/* The share of samples among calls is 1 / weight, counted in runs of any length and one by one. */
static void test_share_of_samples(void **state)
{
    enum { CALLS = 4000000 / UNIT_FEWER };
    static const size_t sizes[] = { 16, 1024, 65536, 1048576 };
    const uint64_t mean = 65536;
    static struct countdowns countdowns;
    struct draw draw = { 0 };

    (void)state;
    draw_begin(&draw, 1, mean);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned class = class_of_size(sizes[i]);
        double p = (double)WEIGHT_ONE / (double)draw_weight(mean, sizes[i]);
        double blocks = 0, in_runs = 0, single = 0;
        assert_int_equal(class_size(class), sizes[i]);
        countdowns.left[class] = draw_countdown(&draw, mean);
        for (unsigned count = 1; blocks < CALLS; count = count % 64 + 1) {
            unsigned run = countdowns_may_pass(&countdowns, class, count);
            assert_true(run <= count);
            countdowns_pass(&countdowns, class, run);
            assert_true(countdowns.left[class] >= 0);
            blocks += run;
            if (run == count)
                continue;
            countdowns.left[class] = draw_countdown(&draw, mean);
            blocks++;
            in_runs++;
        }
        for (unsigned n = 0; n < CALLS; n++)
            single += draw_one(&draw, mean, sizes[i]);
        print_message("%zu bytes: p %.6f, in runs %.6f, singly %.6f\n", sizes[i], p, in_runs / blocks, single / CALLS);
        assert_true(fabs(in_runs - p * blocks) <= 5 * sqrt(blocks * p * (1 - p)) + 1);
        assert_true(fabs(single - p * CALLS) <= 5 * sqrt(CALLS * p * (1 - p)) + 1);
    }
}

/* ---- Records and sites ---- */

static const struct caller nobody;

/* R4 */
static void check_memory(void)
{
    size_t bytes = 0;

    for (const struct table_map *map = table_memory.maps; map; map = map->next) {
        assert_true(fake_is_mapped(map, map->bytes));
        bytes += map->bytes;
    }
    assert_true(bytes > 0);
    assert_int_equal(table_bytes(), bytes);
}

static void test_records(void)
{
    enum { COUNT = 50000 };
    static struct heap heaps[2];
    struct record record = { .size = 64, .weight = 3 * WEIGHT_ONE, .foreign = true }, removed;
    struct site *sites[8];

    core_begin();
    for (uintptr_t i = 0; i < 8; i++) {
        uintptr_t frames[2] = { 0x1000 + i, 0x2000 };
        sites[i] = table_site(frames, 2, NULL);
        assert_non_null(sites[i]);
        assert_ptr_equal(table_site(frames, 2, NULL), sites[i]);
        assert_ptr_not_equal(table_site(frames, 1, NULL), sites[i]);
    }
    assert_ptr_equal(profile_sites.first, sites[0]);
    assert_int_equal(profile_sites.count, 16);
    check_memory();
    for (uintptr_t i = 1; i <= COUNT; i++) {
        record.address = i * 4096;
        record.site = sites[i % 8];
        record.heap = &heaps[i % 3 == 0];
        assert_true(table_insert(&record));
    }
    assert_int_equal(table_foreign(), COUNT);
    check_memory(); /* the table has grown, and its smaller ones are gone */
    assert_int_equal(sites[3]->in_use.objects, COUNT / 8 * record.weight);
    assert_int_equal(sites[3]->in_use.bytes, COUNT / 8 * record.weight * 64);
    assert_int_equal(heaps[1].sampled, COUNT / 3);
    table_remove_heap(&heaps[1], 5);
    assert_int_equal(table_records(), COUNT - COUNT / 3);
    assert_int_equal(heaps[1].sampled, 0);
    assert_int_equal(heaps[0].sampled, COUNT - COUNT / 3);
    for (uintptr_t i = 1; i <= COUNT; i++) {
        assert_int_equal(table_remove((void *)(i * 4096), 1000, nobody, &removed), i % 3 != 0);
        assert_false(table_remove((void *)(i * 4096), 1000, nobody, &removed));
    }
    assert_int_equal(table_records(), 0);
    for (unsigned i = 0; i < 8; i++) { /* R1 */
        uint64_t ended = 0;
        assert_int_equal(sites[i]->in_use.objects | sites[i]->in_use.bytes, 0);
        for (unsigned b = 0; b < LIFETIME_BUCKETS; b++)
            ended += sites[i]->lifetimes[b].objects;
        assert_int_equal(ended, sites[i]->allocated.objects);
        assert_int_equal(sites[i]->lifetimes[10].bytes / 1000 + sites[i]->lifetimes[3].bytes / 5, ended);
    }
}

/* R1: a record that finds no room when its block is put back ends. */
static void test_no_room(void)
{
    enum { COUNT = 256 }; /* as many as the first table holds */
    struct record record = { .size = 64, .weight = WEIGHT_ONE }, taken;
    struct site *site;

    core_begin();
    record.site = site = table_site(&(uintptr_t){ 0x1000 }, 1, NULL);
    for (uintptr_t i = 1; i <= COUNT; i++) {
        record.address = i * 4096;
        assert_true(table_insert(&record));
    }
    assert_true(table_take_out((void *)4096, &taken));
    assert_int_equal(site->in_use.objects, COUNT * WEIGHT_ONE);
    record.address = 4096 * (COUNT + 1);
    assert_true(table_insert(&record));
    fake_fail_from(FAKE_MAP, 1);
    table_put_back(&taken);
    assert_int_equal(table_records(), COUNT);
    assert_int_equal(site->in_use.objects, COUNT * WEIGHT_ONE);
    assert_int_equal(site->lifetimes[0].objects, WEIGHT_ONE);
    assert_false(table_insert(&taken));
    assert_int_equal(site->in_use.objects, COUNT * WEIGHT_ONE);
    fake_fail_nothing();
    assert_true(table_insert(&taken));
    assert_true(table_take_out((void *)4096, &taken));
    table_put_back(&taken);
    assert_int_equal(table_records(), COUNT + 1);
    assert_int_equal(site->in_use.objects, (COUNT + 1) * WEIGHT_ONE);
}

/* R6: a site's bytes at the peak are those it had when the sum over all sites was highest. */
static void test_peak(void)
{
    enum { SITES = 7, BLOCKS = 400, STEPS = 200000 };
    struct site *sites[SITES];
    struct site_sums now[SITES] = { { 0, 0 } }, highest[SITES] = { { 0, 0 } };
    struct record records[BLOCKS] = { { 0 } }, removed;
    uint64_t live = 0, most = 0, state = 7;
    unsigned rises = 0;

    core_begin();
    table_begin_peak(0, true);
    for (uintptr_t i = 0; i < SITES; i++)
        sites[i] = table_site(&(uintptr_t){ 0x1000 + i }, 1, NULL);
    for (unsigned step = 0; step < STEPS; step++) {
        struct record *record;
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        record = &records[(state >> 33) % (BLOCKS * (1 + step / 50000) / 4)];
        if (record->address) {
            assert_true(table_remove((void *)record->address, 5, nobody, &removed));
            now[(record->address >> 4) % SITES].objects -= record->weight;
            now[(record->address >> 4) % SITES].bytes -= record->weight * record->size;
            live -= record->weight * record->size;
            record->address = 0;
        } else {
            unsigned at = step % SITES;
            *record = (struct record){ .address = (uintptr_t)16 * (SITES * (step + 1) + at),
                                       .site = sites[at],
                                       .size = 16 + (state >> 50),
                                       .weight = 3 * WEIGHT_ONE,
                                       .born_ms = step };
            assert_true(table_insert(record));
            now[at].objects += record->weight;
            now[at].bytes += record->weight * record->size;
            live += record->weight * record->size;
        }
        if (live > most) {
            most = live;
            rises++;
            __builtin_memcpy(highest, now, sizeof now);
            assert_int_equal(table_peak.at_ms, step);
        }
        if (step % 64 == 0)
            for (unsigned i = 0; i < SITES; i++) {
                assert_int_equal(table_at_peak(sites[i]).objects, highest[i].objects);
                assert_int_equal(table_at_peak(sites[i]).bytes, highest[i].bytes);
            }
    }
    assert_int_equal(table_peak.bytes, weight_round(most));
    assert_int_equal(table_peak.sampled, most);
    assert_true(rises > 100 && live < most);
}

/* R1, R6, R8: the sums of a site's sizes are those of the blocks of each size. Sizes beyond SIZES_MOST share one. */
static void test_sizes(void)
{
    enum { SIZES = 2 * SIZES_MOST, BLOCKS = 1000, STEPS = 100000 };
    struct site_sums now[SIZES] = { { 0, 0 } }, highest[SIZES] = { { 0, 0 } }, ever[SIZES] = { { 0, 0 } };
    struct record records[BLOCKS] = { { 0 } }, removed;
    struct site *site, *other;
    uint64_t live = 0, most = 0, state = 7;
    unsigned count = 0;

    core_begin();
    table_begin_peak(0, true);
    site = table_site(&(uintptr_t){ 0x1000 }, 1, NULL);
    other = table_site(&(uintptr_t){ 0x2000 }, 1, NULL);
    for (unsigned step = 0; step < STEPS; step++) {
        struct record *record;
        unsigned at;
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        record = &records[(state >> 33) % BLOCKS];
        if (record->address) {
            at = (unsigned)base_min(record->size / 16 - 1, SIZES_MOST - 1);
            assert_true(table_remove((void *)record->address, 5, nobody, &removed));
            now[at].objects -= record->weight;
            now[at].bytes -= record->weight * record->size;
            live -= record->weight * record->size;
            record->address = 0;
        } else {
            size_t size = 16 * ((size_t)base_min(step / 100, (state >> 50) % SIZES) + 1);
            at = (unsigned)base_min(size / 16 - 1, SIZES_MOST - 1);
            *record = (struct record){ .address = (uintptr_t)16 * (step + 1), .site = site, .size = size,
                                       .weight = 2 * WEIGHT_ONE };
            assert_true(table_insert(record));
            now[at].objects += record->weight;
            now[at].bytes += record->weight * size;
            ever[at].objects += record->weight;
            ever[at].bytes += record->weight * size;
            live += record->weight * size;
        }
        if (live > most) {
            most = live;
            __builtin_memcpy(highest, now, sizeof now);
        }
    }
    for (const struct site_size *size = profile_sizes.first; size; size = size->next, count++) {
        unsigned at = size->size == SIZE_ANY ? SIZES_MOST - 1 : (unsigned)(size->size / 16 - 1);
        assert_ptr_equal(size->site, site);
        assert_int_equal(size->allocated.objects, ever[at].objects);
        assert_int_equal(size->allocated.bytes, ever[at].bytes);
        assert_int_equal(size->in_use.objects, now[at].objects);
        assert_int_equal(size->in_use.bytes, now[at].bytes);
        assert_int_equal(table_at_peak(size).bytes, highest[at].bytes);
    }
    assert_int_equal(count, SIZES_MOST);
    assert_int_equal(site->size_count, SIZES_MOST);
    assert_int_equal(profile_sizes.count, SIZES_MOST);
    assert_null(other->sizes);
}

/* Above the size classes a size stands for those up to the next quarter of a power of two. */
static void test_sizes_of_huge_blocks(void **state)
{
    (void)state;
    assert_int_equal(table_size_of(48), 48);
    assert_int_equal(table_size_of(POOLED_MAX), POOLED_MAX);
    assert_int_equal(table_size_of(POOLED_MAX + 4096), POOLED_MAX);
    assert_int_equal(table_size_of(3 * HAK_MIB - 1), 5 * HAK_MIB / 2);
    assert_int_equal(table_size_of(3 * HAK_MIB), 3 * HAK_MIB);
    assert_int_equal(table_size_of((size_t)1 << 46), (size_t)1 << 46);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_share_of_samples),
        core_unit_test(test_records),
        core_unit_test(test_no_room),
        core_unit_test(test_peak),
        core_unit_test(test_sizes),
        cmocka_unit_test(test_sizes_of_huge_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
