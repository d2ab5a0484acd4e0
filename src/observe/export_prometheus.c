#include "observe/export.h"

#include "base/format.h"
#include "base/version.h"
#include "observe/counters.h"
#include "observe/fields.h"
#include "observe/scopes.h"
#include "pool/registry.h"

static bool metric_grows(const struct field *field)
{
    return field->kind == FIELD_COUNTER || field->kind == FIELD_HITS;
}

/* The ending of a name, after hakmem_<group><name>. */
static const char *metric_suffix(const struct field *field)
{
    return metric_grows(field) ? "_total" : field->kind == FIELD_BYTES ? "_bytes" : "";
}

static void metric_head(struct output *output, const char *group, const struct field *field)
{
    const char *suffix = metric_suffix(field);

    output_print(output, "# HELP hakmem_%s%s%s %s\n", group, field->name, suffix, field->help);
    output_print(output, "# TYPE hakmem_%s%s%s %s\n", group, field->name, suffix,
                 metric_grows(field) ? "counter" : "gauge");
}

static void metric_value(struct output *output, const char *group, const struct field *field, const char *labels,
                         uint64_t value)
{
    output_print(output, "hakmem_%s%s%s%s ", group, field->name, metric_suffix(field), labels);
    field_print(output, field, value);
    output_print(output, "\n");
}

static void metrics_of(struct output *output, const char *group, const struct field_list *list,
                       const struct hak_stats *totals)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct field *field = &list->fields[i];
        uint64_t value = field_value(field, totals);
        if (!stats_knows(field))
            continue;
        metric_head(output, group, field);
        metric_value(output, group, field, "", value);
    }
}

static void metrics_of_pools(struct output *output, const struct hak_stats *totals)
{
    for (size_t i = 0; i < fields_pool.count; i++) {
        const struct field *field = &fields_pool.fields[i];
        metric_head(output, "pool_", field);
        metric_value(output, "pool_", field, "{pool=\"small\"}", field_value(field, &totals->small));
        metric_value(output, "pool_", field, "{pool=\"medium\"}", field_value(field, &totals->medium));
        metric_value(output, "pool_", field, "{pool=\"spans\"}", field_value(field, &totals->spans));
        metric_value(output, "pool_", field, "{pool=\"huge\"}", field_value(field, &totals->huge));
    }
}

static void metrics_of_classes(struct output *output, const struct stats_shot *shot)
{
    char labels[48];

    for (size_t i = 1; i < fields_class.count; i++) { /* [0], the size, becomes the label */
        if (!stats_knows(&fields_class.fields[i]))
            continue;
        metric_head(output, "class_", &fields_class.fields[i]);
        for (unsigned class = 1; class < CLASS_COUNT; class++)
            if (stats_class_is_used(&shot->classes[class])) {
                base_format(labels, sizeof labels, "{size=\"%lu\"}", (unsigned long)shot->classes[class].block_size);
                metric_value(output, "class_", &fields_class.fields[i], labels,
                             field_value(&fields_class.fields[i], &shot->classes[class]));
            }
    }
}

/* A heap that is made between two metrics has only the later ones. */
static void metrics_of_heaps(struct output *output, struct usage_count *count_room)
{
    static const char *const kinds[] = { "thread", "house", "first_class", "profile", "shared", "long_lived" };
    char labels[96];

    for (size_t i = 3; i < fields_heap.count; i++) { /* those before it become the labels */
        if (!stats_knows(&fields_heap.fields[i]))
            continue;
        metric_head(output, "heap_", &fields_heap.fields[i]);
        for (struct heap *heap = __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE); heap; heap = heap->next) {
            struct hak_stats_heap row;
            stats_heap(&row, heap, count_room);
            base_format(labels, sizeof labels, "{heap=\"%lu\",thread=\"%lu\",kind=\"%s\"}", (unsigned long)row.number,
                        (unsigned long)row.thread, kinds[row.kind]);
            metric_value(output, "heap_", &fields_heap.fields[i], labels, field_value(&fields_heap.fields[i], &row));
        }
    }
}

/* Scopes may share a name, so the number is a label, too. */
static void metrics_of_scopes(struct output *output)
{
    char labels[96];

    for (size_t i = 0; i < fields_scope.count && scopes_first(); i++) {
        const struct field *field = &fields_scope.fields[i];
        metric_head(output, "scope_", field);
        for (struct scope *scope = scopes_first(); scope; scope = scopes_from(scope->next)) {
            struct hak_scope_stats row;
            (void)scopes_row(&row, scope);
            base_format(labels, sizeof labels, "{scope=\"%s\",number=\"%lu\"}", row.name, (unsigned long)row.number);
            metric_value(output, "scope_", field, labels, field_value(field, &row));
        }
    }
}

/* Units by tier. A series for each SuperSlab would make thousands, and its number means another SuperSlab later. */
static void metrics_of_superslabs(struct output *output)
{
    static const char *const tiers[] = { "full", "hot", "draining", "empty" };
    uint64_t used[HAK_STATS_EMPTY + 1] = { 0 }, clean[HAK_STATS_EMPTY + 1] = { 0 }, dirty[HAK_STATS_EMPTY + 1] = { 0 };
    struct hak_stats_superslab row;
    uint32_t number = 0;

    while (stats_superslab(&row, &number)) {
        used[row.tier] += row.used_units;
        dirty[row.tier] += row.dirty_units;
        clean[row.tier] += row.free_units - row.dirty_units;
    }
    output_print(output,
                 "# HELP hakmem_superslab_units Units of 64 KiB of the SuperSlabs of a tier: in use, free with memory "
                 "behind them (dirty), free without (clean)\n# TYPE hakmem_superslab_units gauge\n");
    for (unsigned tier = 0; tier <= HAK_STATS_EMPTY; tier++)
        output_print(output, "hakmem_superslab_units{tier=\"%s\",state=\"used\"} %lu\n"
                             "hakmem_superslab_units{tier=\"%s\",state=\"dirty\"} %lu\n"
                             "hakmem_superslab_units{tier=\"%s\",state=\"clean\"} %lu\n",
                     tiers[tier], (unsigned long)used[tier], tiers[tier], (unsigned long)dirty[tier], tiers[tier],
                     (unsigned long)clean[tier]);
}

/* A series without a size counts events without a class. The sum over an event's series is all of its events. */
static void metrics_of_debug_counters(struct output *output)
{
    output_print(output, "# HELP hakmem_debug_events_total What debug builds count, by size of block\n"
                         "# TYPE hakmem_debug_events_total counter\n");
    for (unsigned which = 0; which < DEBUG_COUNTERS; which++) {
        const char *event = debug_counter_names[which].name;
        output_print(output, "hakmem_debug_events_total{event=\"%s\"} %lu\n", event,
                     (unsigned long)debug_counter_of(which, CLASS_NONE));
        for (unsigned class = 1; class < CLASS_COUNT; class++)
            if (debug_counter_of(which, class))
                output_print(output, "hakmem_debug_events_total{event=\"%s\",size=\"%zu\"} %lu\n", event,
                             class_size(class), (unsigned long)debug_counter_of(which, class));
    }
}

void export_prometheus(struct output *output, struct stats_shot *shot)
{
    output_print(output, "# HELP hakmem_build_info The library that runs\n# TYPE hakmem_build_info gauge\n"
                         "hakmem_build_info{version=\"%s\",build=\"%s\"} 1\n",
                 BASE_VERSION_STRING, HAK_DEBUG ? "debug" : "release");
    metrics_of(output, "memory_", &fields_memory, &shot->totals);
    metrics_of(output, "", &fields_counters, &shot->totals);
    metrics_of(output, "process_", &fields_faults, &shot->totals);
    metrics_of(output, "", &fields_profile, &shot->totals);
    metrics_of_pools(output, &shot->totals);
    metrics_of_classes(output, shot);
    metrics_of_heaps(output, &shot->count);
    metrics_of_scopes(output);
    metrics_of_superslabs(output);
    if (HAK_DEBUG_COUNTERS)
        metrics_of_debug_counters(output);
}
