/* Protects statistics that are read while threads allocate: each reading is consistent, and exact at rest.
 *
 * stats_running [--seconds N] [--seed N]: reads statistics without a pause while threads allocate, free each other's
 * blocks, end and begin.
 *
 * Each reading must be consistent (docs/statistics.md): U1, no negative figure, pools sum to the totals, tiers sum to
 * the SuperSlabs, counters never fall; JSON, Prometheus text and text are complete. At rest all figures are exact.
 */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>
#include <hakmem/stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { WORKERS = 3, SLOTS = 2048, HUGE_SLOTS = 8, HEAP_BLOCKS = 40, ROWS = 64, TEXT = 1 << 20 };

static const char *const option_names[] = { "seed", "seconds", NULL };
static _Atomic(void *) slots[SLOTS], huge_slots[HUGE_SLOTS]; /* blocks that the next thread frees */
static atomic_bool running;
static _Atomic uint64_t readings;

/* ---- Threads that allocate ---- */

static void change(struct chance *chance)
{
    bool huge = chance_is(chance, 2);
    size_t size = huge ? chance_log(chance, MIB + 1, 5 * MIB)
                       : chance_log(chance, 1, chance_is(chance, 900) ? 4 * KIB : 900 * KIB);
    _Atomic(void *) *slot = huge ? &huge_slots[chance_below(chance, HUGE_SLOTS)] : &slots[chance_below(chance, SLOTS)];
    char *block = hak_malloc(size);

    CHECK(block != NULL, "no memory for %zu bytes", size);
    block[0] = block[size - 1] = 1;
    hak_free(atomic_exchange(slot, block));
}

static void use_heap(struct chance *chance)
{
    hak_heap_t *heap = hak_heap_new();

    CHECK(heap != NULL, "no heap");
    for (unsigned i = 0; i < HEAP_BLOCKS; i++)
        CHECK(hak_heap_malloc(heap, chance_log(chance, 1, i ? 20 * KIB : 2 * MIB)) != NULL, "no memory in a heap");
    hak_heap_destroy(heap);
}

static void *run_worker(void *argument)
{
    struct chance chance;

    chance_start(&chance, (uintptr_t)argument);
    while (atomic_load(&running)) {
        change(&chance);
        if (chance_is(&chance, 1))
            use_heap(&chance);
        if (chance_is(&chance, 1))
            hak_collect(chance_is(&chance, 300));
    }
    return NULL;
}

static void *run_brief(void *argument)
{
    struct chance chance;

    chance_start(&chance, (uintptr_t)argument);
    for (unsigned i = 0; i < 200; i++)
        change(&chance);
    return NULL;
}

/* Threads that end, one after another. */
static void *run_ending(void *argument)
{
    for (uintptr_t number = (uintptr_t)argument; atomic_load(&running); number++)
        support_join(support_thread(run_brief, (void *)number));
    return NULL;
}

/* ---- Readings ---- */

static uint64_t least(uint64_t first, uint64_t second) { return first < second ? first : second; }

/* Checks what must hold of a reading at any time. */
static void check_reading(const struct hak_stats *stats)
{
    const struct hak_stats_pool *pools[] = { &stats->small, &stats->medium, &stats->spans, &stats->huge };
    const uint64_t parts[] = { stats->live,     stats->cached,   stats->free_in_slab,
                               stats->retained, stats->metadata, stats->purged };
    uint64_t live = 0, cached = 0, slab_bytes = 0;

    CHECK(stats->mapped == stats->live + stats->cached + stats->free_in_slab + stats->retained + stats->metadata,
          "U1: %lu is not %lu + %lu + %lu + %lu + %lu", stats->mapped, stats->live, stats->cached, stats->free_in_slab,
          stats->retained, stats->metadata);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        CHECK(parts[i] <= stats->mapped, "part %zu is %lu of %lu mapped", i, parts[i], stats->mapped);
    for (size_t i = 0; i < 4; i++) {
        live += pools[i]->live_bytes;
        cached += pools[i]->cached_bytes;
        slab_bytes += pools[i]->slab_bytes;
        CHECK(pools[i]->live_bytes + pools[i]->cached_bytes + pools[i]->free_bytes == pools[i]->slab_bytes,
              "pool %zu: %lu live, %lu cached, %lu free of %lu", i, pools[i]->live_bytes, pools[i]->cached_bytes,
              pools[i]->free_bytes, pools[i]->slab_bytes);
        CHECK(least(pools[i]->live_blocks, pools[i]->cached_blocks) < UINT64_C(1) << 40, "pool %zu: blocks", i);
    }
    /* A slab that changes its heap may be counted twice. The totals are capped by what the pool has. */
    CHECK(live >= stats->live && cached >= stats->cached, "pools have %lu live and %lu cached, the totals %lu and %lu",
          live, cached, stats->live, stats->cached);
    if (slab_bytes + stats->metadata <= stats->mapped)
        CHECK(live == stats->live && cached == stats->cached,
              "pools have %lu live and %lu cached, the totals %lu and %lu", live, cached, stats->live, stats->cached);
    CHECK(stats->superslabs ==
              stats->superslabs_full + stats->superslabs_hot + stats->superslabs_draining + stats->superslabs_empty,
          "%lu SuperSlabs", stats->superslabs);
    CHECK(stats->pending_enqueued == stats->pending_drained + stats->pending, "%lu enqueued", stats->pending_enqueued);
    CHECK(stats->malloc_coverage <= 10000 && stats->free_coverage <= 10000, "a share above 1");
    CHECK(stats->huge_allocated - stats->huge_freed >= stats->huge.live_blocks, "%lu huge blocks live of %lu - %lu",
          stats->huge.live_blocks, stats->huge_allocated, stats->huge_freed);
}

/* No counter is lower than before. */
static void check_grown(const struct hak_stats *before, const struct hak_stats *after)
{
    const uint64_t *from = &before->refills, *to = &after->refills;
    size_t gauges[] = { offsetof(struct hak_stats, pending), offsetof(struct hak_stats, remote_blocks),
                        /* the sum of drained and queued slabs */
                        offsetof(struct hak_stats, pending_enqueued) };

    for (size_t i = 0; &to[i] <= &after->free_hits; i++) {
        size_t offset = offsetof(struct hak_stats, refills) + i * sizeof *to;
        if (offset != gauges[0] && offset != gauges[1] && offset != gauges[2])
            CHECK(to[i] >= from[i], "counter at %zu fell from %lu to %lu", offset, from[i], to[i]);
    }
}

static void check_rows(void)
{
    struct hak_stats_class classes[ROWS];
    struct hak_stats_heap heaps[ROWS];
    struct hak_stats_superslab superslabs[ROWS];
    size_t count = hak_stats_classes(classes, sizeof classes[0], ROWS);

    CHECK(count > 0 && count <= ROWS, "%zu classes", count);
    for (size_t i = 0; i < count; i++)
        CHECK(classes[i].live_blocks < UINT64_C(1) << 40 && classes[i].cached_blocks < UINT64_C(1) << 40 &&
                  classes[i].free_blocks < UINT64_C(1) << 40 && classes[i].block_size > 0,
              "blocks of %lu bytes: %lu live, %lu cached, %lu free", classes[i].block_size, classes[i].live_blocks,
              classes[i].cached_blocks, classes[i].free_blocks);
    count = hak_stats_heaps(heaps, sizeof heaps[0], ROWS);
    CHECK(count > 0, "%zu heaps", count);
    for (size_t i = 0; i < count && i < ROWS; i++)
        CHECK(heaps[i].used_bytes <= heaps[i].slab_bytes && heaps[i].kind <= HAK_STATS_LONG,
              "heap %lu uses %lu of %lu bytes", heaps[i].number, heaps[i].used_bytes, heaps[i].slab_bytes);
    count = hak_stats_superslabs(superslabs, sizeof superslabs[0], ROWS);
    for (size_t i = 0; i < count && i < ROWS; i++)
        CHECK(superslabs[i].used_units + superslabs[i].free_units == 31 &&
                  superslabs[i].dirty_units <= superslabs[i].free_units,
              "SuperSlab %lu: %lu used, %lu free, %lu dirty", superslabs[i].number, superslabs[i].used_units,
              superslabs[i].free_units, superslabs[i].dirty_units);
}

struct text {
    size_t length;
    char *characters;
};

static int collect_text(void *argument, const char *piece, size_t length)
{
    struct text *text = argument;

    CHECK(text->length + length < TEXT, "more than %d characters", TEXT);
    memcpy(text->characters + text->length, piece, length);
    text->length += length;
    text->characters[text->length] = '\0';
    hak_free(hak_malloc(100)); /* no lock is held */
    return 0;
}

/* The first number behind `name` in the text. */
static uint64_t number_in(const char *text, const char *name)
{
    const char *found = strstr(text, name);

    CHECK(found != NULL, "no %s in %.300s", name, text);
    return strtoull(found + strlen(name), NULL, 10);
}

/* Checks U1 in a text whose numbers follow before + PART + after. */
static void check_text_identity(const char *text, const char *before, const char *after)
{
    static const char *const parts[] = { "mapped", "live", "cached", "free_in_slab", "retained", "metadata" };
    uint64_t values[6], sum = 0;
    char name[64];

    for (size_t i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "%s%s%s", before, parts[i], after);
        values[i] = number_in(text, name);
        sum += i ? values[i] : 0;
    }
    CHECK(values[0] == sum, "%s: %lu mapped, its parts sum to %lu", before, values[0], sum);
}

static void check_texts(struct text *text)
{
    long depth = 0;

    text->length = 0;
    CHECK(hak_stats_print(HAK_STATS_JSON, collect_text, text) == 0, "JSON");
    for (const char *at = text->characters; *at; at++)
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
    CHECK(depth == 0 && strcmp(text->characters + text->length - 2, "}\n") == 0, "JSON ends in %s",
          text->characters + text->length - 20);
    check_text_identity(text->characters, "\"", "\":");
    text->length = 0;
    CHECK(hak_stats_print(HAK_STATS_PROMETHEUS, collect_text, text) == 0, "Prometheus");
    check_text_identity(text->characters, "\nhakmem_memory_", "_bytes ");
    text->length = 0;
    CHECK(hak_stats_print(HAK_STATS_TEXT, collect_text, text) == 0, "text");
    CHECK(strstr(text->characters, "page faults:") != NULL, "text ends early");
}

static void *run_reader(void *unused)
{
    struct hak_stats stats, before = { 0 };
    struct text text = { .characters = support_map(TEXT) };

    (void)unused;
    do {
        for (unsigned i = 0; i < 20; i++, before = stats) {
            CHECK(hak_stats_get(&stats, sizeof stats) == sizeof stats, "hak_stats_get");
            check_reading(&stats);
            check_grown(&before, &stats);
        }
        check_rows();
        check_texts(&text);
        atomic_fetch_add(&readings, 1);
    } while (atomic_load(&running));
    support_unmap(text.characters, TEXT);
    return NULL;
}

/* ---- At rest ---- */

static uint64_t held(_Atomic(void *) *some, size_t count, bool release)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        void *block = atomic_load(&some[i]);
        bytes += block ? hak_usable_size(block) : 0;
        if (release)
            hak_free(atomic_exchange(&some[i], NULL));
    }
    return bytes;
}

static void check_at_rest(uint64_t live_at_start, bool release)
{
    uint64_t wanted = held(slots, SLOTS, release) + held(huge_slots, HUGE_SLOTS, release);
    struct hak_stats stats;

    hak_stats_get(&stats, sizeof stats);
    check_reading(&stats);
    CHECK(stats.live - live_at_start == (release ? 0 : wanted), "at rest: %lu live, %lu held",
          stats.live - live_at_start, wanted);
    CHECK(stats.small.live_bytes + stats.medium.live_bytes + stats.spans.live_bytes + stats.huge.live_bytes ==
              stats.live,
          "at rest: pools are not the totals");
    CHECK(stats.refilled_blocks - stats.returned_blocks ==
              stats.small.live_blocks + stats.medium.live_blocks + stats.spans.live_blocks + stats.small.cached_blocks +
                  stats.medium.cached_blocks + stats.spans.cached_blocks + stats.remote_blocks,
          "C1 at rest: %lu - %lu", stats.refilled_blocks, stats.returned_blocks);
    CHECK(stats.huge_allocated - stats.huge_freed == stats.huge.live_blocks, "at rest: huge blocks");
}

int main(int argc, char **argv)
{
    pthread_t workers[WORKERS], ending, readers[2];
    struct hak_stats start;

    support_options_known(argc, argv, option_names);
    support_seed = support_option(argc, argv, "seed", 1);
    hak_free(hak_malloc(1));
    hak_stats_get(&start, sizeof start);
    for (unsigned round = 0; round < 3; round++) {
        atomic_store(&running, true);
        for (uintptr_t i = 0; i < WORKERS; i++)
            workers[i] = support_thread(run_worker, (void *)(i + 10 * round));
        ending = support_thread(run_ending, (void *)(uintptr_t)(1000 * (round + 1)));
        for (unsigned i = 0; i < 2; i++)
            readers[i] = support_thread(run_reader, NULL);
        support_sleep_ms((unsigned)(1000 * support_option(argc, argv, "seconds", 3) / 3));
        atomic_store(&running, false);
        for (unsigned i = 0; i < WORKERS; i++)
            support_join(workers[i]);
        support_join(ending);
        for (unsigned i = 0; i < 2; i++)
            support_join(readers[i]);
        check_at_rest(start.live, false);
        check_at_rest(start.live, true);
    }
    CHECK(atomic_load(&readings) >= 6, "only %lu readings", (unsigned long)atomic_load(&readings));
    printf("%lu rounds of readings, each whole; exact at rest\n", (unsigned long)atomic_load(&readings));
    return 0;
}
