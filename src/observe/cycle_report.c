#include "observe/cycle_report.h"

#include "observe/output.h"
#include "os/cycles.h"

#if defined(__x86_64__)
#define CLOCK_NAME "tsc"
#elif defined(__aarch64__)
#define CLOCK_NAME "cntvct_el0"
#elif defined(__riscv)
#define CLOCK_NAME "time"
#else
#define CLOCK_NAME "clock_gettime"
#endif

enum {
    TENTHS = 10,
    REPORT_NS_PER_SECOND = 1000000000,
    SHARE = 1000000,  /* shares are printed with six digits */
    PERCENT = SHARE / 100,
};

static const char *const names[CYCLES_KINDS] = {
    [CYCLES_MALLOC_HIT] = "malloc_hit",
    [CYCLES_MALLOC_MISS] = "malloc_miss",
    [CYCLES_MALLOC_LARGE] = "malloc_large",
    [CYCLES_MALLOC_HUGE] = "malloc_huge",
    [CYCLES_FREE_HIT] = "free_hit",
    [CYCLES_FREE_MISS] = "free_miss",
    [CYCLES_FREE_LARGE] = "free_large",
    [CYCLES_FREE_HUGE] = "free_huge",
    [CYCLES_FREE_NULL] = "free_null",
    [CYCLES_HEAP_MALLOC] = "heap_malloc",
    [CYCLES_REALLOC_STAY] = "realloc_stay",
    [CYCLES_REALLOC_MOVE] = "realloc_move",
    [CYCLES_MALLOC_BATCH] = "malloc_batch",
    [CYCLES_FREE_BATCH] = "free_batch",
    [CYCLES_REFILL] = "refill",
    [CYCLES_FLUSH] = "flush",
    [CYCLES_REMOTE] = "remote",
    [CYCLES_DRAIN] = "drain",
};

/* Kinds that the table sums up under one name. A flush includes the remote frees that end it. */
enum { GROUPS = 4 };
static const struct group {
    const char *name;
    uint32_t kinds; /* bits */
} groups[GROUPS] = {
    { "malloc", 1u << CYCLES_MALLOC_HIT | 1u << CYCLES_MALLOC_MISS | 1u << CYCLES_MALLOC_LARGE |
                    1u << CYCLES_MALLOC_HUGE },
    { "free", 1u << CYCLES_FREE_HIT | 1u << CYCLES_FREE_MISS | 1u << CYCLES_FREE_LARGE | 1u << CYCLES_FREE_HUGE |
                  1u << CYCLES_FREE_NULL },
    { "refill", 1u << CYCLES_REFILL },
    { "migration", 1u << CYCLES_FLUSH | 1u << CYCLES_DRAIN },
};

struct row {
    uint64_t count, sum, p50, p99, most;
};

struct cycles_profile {
    struct row rows[CYCLES_KINDS];
    struct row groups[GROUPS];
    uint64_t frequency;
    uint64_t mallocs, frees;
};

static uint64_t count_calls(const struct row *rows, enum cycles_kind first, enum cycles_kind last)
{
    uint64_t calls = 0;

    for (unsigned kind = first; kind <= (unsigned)last; kind++)
        calls += rows[kind].count;
    return calls;
}

static struct row collect_row(uint32_t kinds)
{
    struct cycles_histogram sum = { 0 };

    for (unsigned kind = 0; kind < CYCLES_KINDS; kind++)
        if (kinds >> kind & 1)
            cycles_merge_more((enum cycles_kind)kind, &sum);
    return (struct row){ cycles_count(&sum), sum.sum, cycles_quantile(&sum, 50), cycles_quantile(&sum, 99), sum.most };
}

static void collect(struct cycles_profile *profile)
{
    for (unsigned kind = 0; kind < CYCLES_KINDS; kind++)
        profile->rows[kind] = collect_row(1u << kind);
    for (unsigned group = 0; group < GROUPS; group++)
        profile->groups[group] = collect_row(groups[group].kinds);
    profile->mallocs = count_calls(profile->rows, CYCLES_MALLOC_HIT, CYCLES_MALLOC_HUGE);
    profile->frees = count_calls(profile->rows, CYCLES_FREE_HIT, CYCLES_FREE_NULL);
    profile->frequency = cycles_frequency();
}

/* part / whole in units of 1 / scale, rounded. */
static uint64_t ratio(uint64_t part, uint64_t scale, uint64_t whole)
{
    return whole == 0 ? 0 : (uint64_t)(((__uint128_t)part * scale + whole / 2) / whole);
}

/* ---- As a table ---- */

static uint64_t ns_tenths(const struct cycles_profile *profile, uint64_t ticks)
{
    return ratio(ticks, (uint64_t)REPORT_NS_PER_SECOND * TENTHS, profile->frequency);
}

static void table_row(struct output *output, const struct cycles_profile *profile, const char *name,
                      const struct row *row)
{
    uint64_t mean = ratio(row->sum, TENTHS, row->count);
    uint64_t mean_ns = ratio(row->sum, (uint64_t)REPORT_NS_PER_SECOND * TENTHS, profile->frequency * row->count);
    uint64_t p50 = ns_tenths(profile, row->p50), p99 = ns_tenths(profile, row->p99),
             most = ns_tenths(profile, row->most);

    if (row->count == 0) {
        output_line(output, "%-13s %12s", name, "0");
        return;
    }
    output_line(output, "%-13s %12lu %9lu.%lu %8lu %8lu %10lu %9lu.%lu %7lu.%lu %7lu.%lu %10lu.%lu", name,
                row->count, mean / TENTHS, mean % TENTHS, row->p50, row->p99, row->most, mean_ns / TENTHS,
                mean_ns % TENTHS, p50 / TENTHS, p50 % TENTHS, p99 / TENTHS, p99 % TENTHS, most / TENTHS, most % TENTHS);
}

static void table_coverage(struct output *output, const char *name, uint64_t hits, uint64_t calls)
{
    uint64_t share = ratio(hits, SHARE, calls);

    if (calls == 0)
        output_line(output, "%s: no calls", name);
    else
        output_line(output, "%s: the fast path served %lu of %lu calls, %lu.%04lu %%", name, hits, calls,
                    share / PERCENT, share % PERCENT);
}

static void print_table(struct output *output, const struct cycles_profile *profile)
{
    uint64_t mhz_tenths = profile->frequency / (1000000 / TENTHS), ns = ns_tenths(profile, 1000);

    output_line(output,
                "cycle profile: ticks of " CLOCK_NAME
                " at %lu.%lu MHz (1,000 ticks are %lu.%lu ns); p50 and p99 within 1/%u",
                mhz_tenths / TENTHS, mhz_tenths % TENTHS, ns / TENTHS, ns % TENTHS, 2u * CYCLES_PER_OCTAVE);
    output_line(
        output,
        "a measurement of nothing reads %lu (least) and %lu (median); every figure has the least taken off; timing a "
        "call takes its thread %lu",
        cycles_overhead.empty_least, cycles_overhead.empty_median, cycles_overhead.call_median);
    table_coverage(output, "malloc", profile->rows[CYCLES_MALLOC_HIT].count, profile->mallocs);
    table_coverage(output, "free", profile->rows[CYCLES_FREE_HIT].count, profile->frees);
    output_line(output, "%-13s %12s %11s %8s %8s %10s %11s %9s %9s %12s", "", "count", "mean", "p50", "p99", "max",
                "mean ns", "p50 ns", "p99 ns", "max ns");
    for (unsigned group = 0; group < GROUPS; group++)
        table_row(output, profile, groups[group].name, &profile->groups[group]);
    output_line(output, "calls, by what became of them:");
    for (unsigned kind = 0; kind < CYCLES_KINDS; kind++) {
        if (kind == CYCLES_REFILL)
            output_line(output, "parts of calls, or of the allocator's other work:");
        table_row(output, profile, names[kind], &profile->rows[kind]);
    }
}

/* ---- As JSON: one line ---- */

static void json_share(struct output *output, const char *name, uint64_t hits, uint64_t calls)
{
    uint64_t share = ratio(hits, SHARE, calls);

    output_print(output, "\"%s\":{\"calls\":%lu,\"hits\":%lu,\"share\":", name, calls, hits);
    if (calls == 0)
        output_print(output, "null}");
    else
        output_print(output, "%lu.%06lu}", share / SHARE, share % SHARE);
}

/* For each bucket that is not empty: lowest value, highest value, count. The last bucket has no highest value. */
static void json_histogram(struct output *output, const struct cycles_histogram *histogram)
{
    const char *comma = "";

    for (unsigned bucket = 0; bucket < CYCLES_BUCKETS; bucket++) {
        if (histogram->buckets[bucket] == 0)
            continue;
        output_print(output, "%s[%lu,", comma, cycles_bucket_low(bucket));
        if (bucket + 1 == CYCLES_BUCKETS)
            output_print(output, "null");
        else
            output_print(output, "%lu", cycles_bucket_low(bucket + 1) - 1);
        output_print(output, ",%lu]", histogram->buckets[bucket]);
        comma = ",";
    }
}

/* Makes the row from the histogram that it prints, because other threads may have counted on since the profile was
 * taken. */
static void json_kind(struct output *output, enum cycles_kind kind)
{
    struct cycles_histogram sum;
    uint64_t count, mean;

    cycles_merge(kind, &sum);
    count = cycles_count(&sum);
    mean = ratio(sum.sum, TENTHS, count);
    output_print(output, "\"%s\":{\"count\":%lu,\"sum\":%lu,", names[kind], count, sum.sum);
    if (count == 0)
        output_print(output, "\"mean\":null,\"p50\":null,\"p99\":null,\"max\":null,");
    else
        output_print(output, "\"mean\":%lu.%lu,\"p50\":%lu,\"p99\":%lu,\"max\":%lu,", mean / TENTHS, mean % TENTHS,
                     cycles_quantile(&sum, 50), cycles_quantile(&sum, 99), sum.most);
    output_print(output, "\"histogram\":[");
    json_histogram(output, &sum);
    output_print(output, "]}");
}

static void print_json(struct output *output, const struct cycles_profile *profile)
{
    output_print(output,
                 "{\"hakmem_cycles\":1,\"counter\":\"" CLOCK_NAME
                 "\",\"frequency_hz\":%lu,\"relative_error\":%lu.%06lu,",
                 profile->frequency, (uint64_t)0, ratio(1, SHARE, (uint64_t)2 * CYCLES_PER_OCTAVE));
    output_print(output,
                 "\"overhead\":{\"empty_min\":%lu,\"empty_median\":%lu,\"call_median\":%lu,\"subtracted\":%lu},",
                 cycles_overhead.empty_least, cycles_overhead.empty_median, cycles_overhead.call_median,
                 cycles_overhead.empty_least);
    output_print(output, "\"coverage\":{");
    json_share(output, "malloc", profile->rows[CYCLES_MALLOC_HIT].count, profile->mallocs);
    output_print(output, ",");
    json_share(output, "free", profile->rows[CYCLES_FREE_HIT].count, profile->frees);
    output_print(output, "},\"kinds\":{");
    for (unsigned kind = 0; kind < CYCLES_KINDS; kind++) {
        if (kind != 0)
            output_print(output, ",");
        json_kind(output, (enum cycles_kind)kind);
    }
    output_print(output, "}}\n");
}

/* ---- As Prometheus text ---- */

static void print_prometheus(struct output *output, const struct cycles_profile *profile)
{
    output_print(output, "# HELP hakmem_cycles What calls and slow paths took, in ticks of " CLOCK_NAME
                         ".\n# TYPE hakmem_cycles summary\n");
    for (unsigned kind = 0; kind < CYCLES_KINDS; kind++) {
        const struct row *row = &profile->rows[kind];
        const char *name = names[kind];
        if (row->count != 0)
            output_print(
                output,
                "hakmem_cycles{kind=\"%s\",quantile=\"0.5\"} %lu\nhakmem_cycles{kind=\"%s\",quantile=\"0.99\"} %lu\n",
                name, row->p50, name, row->p99);
        output_print(output, "hakmem_cycles_sum{kind=\"%s\"} %lu\nhakmem_cycles_count{kind=\"%s\"} %lu\n", name,
                     row->sum, name, row->count);
    }
    output_print(output, "# HELP hakmem_cycles_max The most ticks that one took.\n# TYPE hakmem_cycles_max gauge\n");
    for (unsigned kind = 0; kind < CYCLES_KINDS; kind++)
        output_print(output, "hakmem_cycles_max{kind=\"%s\"} %lu\n", names[kind], profile->rows[kind].most);
    output_print(output,
                 "# HELP hakmem_cycles_empty What a measurement of nothing reads, in ticks; every figure has the least "
                 "taken off.\n"
                 "# TYPE hakmem_cycles_empty gauge\nhakmem_cycles_empty{of=\"min\"} "
                 "%lu\nhakmem_cycles_empty{of=\"median\"} %lu\n",
                 cycles_overhead.empty_least, cycles_overhead.empty_median);
    output_print(output, "# HELP hakmem_cycles_frequency_hertz Ticks of " CLOCK_NAME " in a second.\n"
                 "# TYPE hakmem_cycles_frequency_hertz gauge\nhakmem_cycles_frequency_hertz %lu\n", profile->frequency);
}

void observe_cycles(enum option_format format)
{
    struct cycles_profile profile;
    struct output output;

    collect(&profile);
    output_begin(&output, NULL, NULL, "hakmem: ");
    if (format == OPTION_JSON)
        print_json(&output, &profile);
    else if (format == OPTION_PROMETHEUS)
        print_prometheus(&output, &profile);
    else
        print_table(&output, &profile);
    (void)output_end(&output); /* an error could only be reported on standard error itself */
}
