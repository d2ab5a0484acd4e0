#include "os/cycles.h"

#include <string.h>

enum {
    TRIALS = 1001,               /* empty measurements at start */
    CALIBRATION_NS = 10000000,   /* least time over which the counter's frequency is measured */
    CLOCK_TRIALS = 16,           /* readings of both clocks, of which the closest pair counts */
    NS_PER_SECOND = 1000000000,
};

struct cycles_record {
    struct cycles_record *next;
    _Atomic bool taken; /* a thread counts here. Order: acquire by the next thread, release by the last */
    struct cycles_histogram kinds[CYCLES_KINDS];
};

/* A moment on both clocks. */
struct moment {
    uint64_t ns, ticks;
};

HAK_DATA_HERE bool cycles_on;
HAK_DATA_HERE _Thread_local uint8_t cycles_call __attribute__((tls_model("initial-exec")));
HAK_DATA_HERE struct cycles_overhead cycles_overhead;

static _Thread_local struct cycles_record *mine __attribute__((tls_model("initial-exec")));
static struct cycles_record *_Atomic cycles_records; /* only grows. Order: release in record_new, acquire: `next` */
static struct cycles_record shared;           /* Y1: of threads without one; not in the list */
static struct moment started_at;

/* ---- Counting ---- */

static void bump(uint64_t *word, uint64_t by)
{
    __atomic_store_n(word, *word + by, __ATOMIC_RELAXED);
}

static void add_shared(struct cycles_histogram *histogram, uint64_t ticks)
{
    uint64_t most = __atomic_load_n(&histogram->most, __ATOMIC_RELAXED);

    __atomic_fetch_add(&histogram->buckets[cycles_bucket(ticks)], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&histogram->sum, ticks, __ATOMIC_RELAXED);
    while (ticks > most &&
           !__atomic_compare_exchange_n(&histogram->most, &most, ticks, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

static void add_own(struct cycles_histogram *histogram, uint64_t ticks)
{
    bump(&histogram->buckets[cycles_bucket(ticks)], 1);
    bump(&histogram->sum, ticks);
    if (ticks > histogram->most)
        __atomic_store_n(&histogram->most, ticks, __ATOMIC_RELAXED);
}

/* Takes off what timing nothing reads at least. The counters of two processors may differ by a few ticks, so a duration
 * may come out negative, which counts as 0. */
void cycles_add(enum cycles_kind kind, uint64_t ticks)
{
    ticks -= cycles_overhead.empty_least;
    if (HAK_UNLIKELY((int64_t)ticks < 0))
        ticks = 0;
    if (HAK_LIKELY(mine != NULL))
        add_own(&mine->kinds[kind], ticks);
    else
        add_shared(&shared.kinds[kind], ticks);
}

/* ---- Threads ---- */

static struct cycles_record *record_new(void)
{
    struct cycles_record *record = os_map(base_align_up(sizeof *record, os_page_size()), os_page_size());

    if (record == NULL)
        return NULL;
    os_name(record, base_align_up(sizeof *record, os_page_size()), "hakmem cycles");
    atomic_store_explicit(&record->taken, true, memory_order_relaxed);
    record->next = atomic_load_explicit(&cycles_records, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&cycles_records, &record->next, record, memory_order_release,
                                                  memory_order_relaxed))
        continue;
    return record;
}

void cycles_thread_begin(void)
{
    struct cycles_record *record;

    if (!cycles_on || mine != NULL)
        return;
    for (record = atomic_load_explicit(&cycles_records, memory_order_acquire); record != NULL; record = record->next)
        if (!atomic_load_explicit(&record->taken, memory_order_relaxed) &&
            !atomic_exchange_explicit(&record->taken, true, memory_order_acquire))
            break;
    mine = record ? record : record_new();
}

void cycles_thread_end(void)
{
    struct cycles_record *record = mine;

    mine = NULL;
    if (record != NULL)
        atomic_store_explicit(&record->taken, false, memory_order_release);
}

static void record_clear(struct cycles_record *record)
{
    struct cycles_histogram *histogram;

    /* A histogram that nothing was counted in has no memory. Writing zeros to it would give it some. */
    for (histogram = record->kinds; histogram < record->kinds + CYCLES_KINDS; histogram++)
        if (histogram->most != 0 || histogram->buckets[0] != 0)
            memset(histogram, 0, sizeof *histogram);
}

void cycles_reset_after_fork(void)
{
    if (!cycles_on)
        return;
    record_clear(&shared);
    for (struct cycles_record *record = atomic_load(&cycles_records); record != NULL; record = record->next) {
        record_clear(record);
        atomic_store(&record->taken, record == mine);
    }
}

/* ---- The counter itself ---- */

static struct moment moment_now(void)
{
    struct moment best = { 0, 0 };
    uint64_t closest = UINT64_MAX;

    for (unsigned i = 0; i < CLOCK_TRIALS; i++) {
        uint64_t before = cycles_now(), ns = os_now(), after = cycles_now();
        if (after - before < closest) {
            closest = after - before;
            best = (struct moment){ ns, before + (after - before) / 2 };
        }
    }
    return best;
}

uint64_t cycles_frequency(void)
{
#if defined(__aarch64__)
    uint64_t frequency;
    __asm__("mrs %0, cntfrq_el0" : "=r"(frequency));
    return frequency;
#else
    struct moment now;

    while (os_now() - started_at.ns < CALIBRATION_NS)
        continue;
    now = moment_now();
    return (uint64_t)((__uint128_t)(now.ticks - started_at.ticks) * NS_PER_SECOND / (now.ns - started_at.ns));
#endif
}

/* Counts into the shared record, as if it were this thread's own, and clears it afterwards: no thread counts yet. */
static void measure_overhead(void)
{
    struct cycles_histogram *empty = &shared.kinds[CYCLES_MALLOC_HIT], *cost = &shared.kinds[CYCLES_FREE_HIT];
    uint64_t least = 0;

    mine = &shared;
    for (unsigned i = 0; i < TRIALS; i++) {
        uint64_t start = cycles_now();
        cycles_add(CYCLES_MALLOC_HIT, cycles_now() - start);
    }
    for (unsigned bucket = CYCLES_BUCKETS; bucket-- > 0;)
        if (empty->buckets[bucket] != 0)
            least = cycles_bucket_low(bucket);
    cycles_overhead.empty_median = cycles_quantile(empty, 50);
    for (unsigned i = 0; i < TRIALS; i++) {
        uint64_t start = cycles_now();
        struct cycles_scope scope = cycles_call_begin(CYCLES_REFILL);
        cycles_call_end(&scope);
        cycles_add(CYCLES_FREE_HIT, cycles_now() - start);
    }
    cycles_overhead.call_median = cycles_quantile(cost, 50);
    cycles_overhead.call_median -= base_min(cycles_overhead.call_median, cycles_overhead.empty_median);
    cycles_overhead.empty_least = least; /* not before: the figures above have nothing taken off */
    record_clear(&shared);
    mine = NULL;
}

void cycles_start(void)
{
    measure_overhead();
    started_at = moment_now();
    __atomic_store_n(&cycles_on, true, __ATOMIC_RELEASE); /* Release: what this function stored before */
}

/* ---- Reading ---- */

static void add_up(struct cycles_histogram *sum, const struct cycles_histogram *one)
{
    for (unsigned bucket = 0; bucket < CYCLES_BUCKETS; bucket++)
        sum->buckets[bucket] += __atomic_load_n(&one->buckets[bucket], __ATOMIC_RELAXED);
    sum->sum += __atomic_load_n(&one->sum, __ATOMIC_RELAXED);
    sum->most = base_max(sum->most, __atomic_load_n(&one->most, __ATOMIC_RELAXED));
}

void cycles_merge_more(enum cycles_kind kind, struct cycles_histogram *sum)
{
    add_up(sum, &shared.kinds[kind]);
    for (struct cycles_record *record = atomic_load_explicit(&cycles_records, memory_order_acquire); record != NULL;
         record = record->next)
        add_up(sum, &record->kinds[kind]);
}

void cycles_merge(enum cycles_kind kind, struct cycles_histogram *sum)
{
    memset(sum, 0, sizeof *sum);
    cycles_merge_more(kind, sum);
}

uint64_t cycles_count(const struct cycles_histogram *histogram)
{
    uint64_t count = 0;

    for (unsigned bucket = 0; bucket < CYCLES_BUCKETS; bucket++)
        count += histogram->buckets[bucket];
    return count;
}

uint64_t cycles_quantile(const struct cycles_histogram *histogram, unsigned percent)
{
    uint64_t count = cycles_count(histogram), rank = (uint64_t)(((__uint128_t)count * percent + 99) / 100), seen = 0;
    unsigned bucket = 0;

    if (count == 0)
        return 0;
    while ((seen += histogram->buckets[bucket]) < rank)
        bucket++;
    return base_min((cycles_bucket_low(bucket) + cycles_bucket_low(bucket + 1) - 1) / 2, histogram->most);
}
