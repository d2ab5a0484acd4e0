#include "observe/export.h"

#include "base/version.h"
#include "observe/counters.h"
#include "observe/fields.h"
#include "os/file.h"
#include "pool/registry.h"

static void json_value(struct output *output, const struct field *field, uint64_t value)
{
    output_print(output, "\"%s\":", field->name);
    if (stats_knows(field))
        field_print(output, field, value);
    else
        output_print(output, "null");
}

static void json_members(struct output *output, const struct field_list *list, const void *record)
{
    for (size_t i = 0; i < list->count; i++) {
        output_print(output, i ? "," : "{");
        json_value(output, &list->fields[i], field_value(&list->fields[i], record));
    }
    output_print(output, "}");
}

static void json_object(struct output *output, const char *name, const struct field_list *list, const void *record)
{
    output_print(output, ",\n\"%s\":", name);
    json_members(output, list, record);
}

/* Separates the next row of an array or object from the `count` rows before it. */
static void json_next(struct output *output, size_t count) { output_print(output, count ? ",\n" : "\n"); }

static void json_classes(struct output *output, const struct stats_shot *shot)
{
    size_t count = 0;

    output_print(output, ",\n\"classes\":[");
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        if (stats_class_is_used(&shot->classes[class])) {
            json_next(output, count++);
            json_members(output, &fields_class, &shot->classes[class]);
        }
    output_print(output, "]");
}

static void json_heaps(struct output *output, struct usage_count *count_room)
{
    size_t count = 0;

    output_print(output, ",\n\"heaps\":[");
    for (struct heap *heap = __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE); heap; heap = heap->next) {
        struct hak_stats_heap row;
        stats_heap(&row, heap, count_room);
        json_next(output, count++);
        json_members(output, &fields_heap, &row);
    }
    output_print(output, "]");
}

static void json_superslabs(struct output *output)
{
    struct hak_stats_superslab row;
    uint32_t number = 0;
    size_t count = 0;

    output_print(output, ",\n\"superslab_list\":[");
    while (stats_superslab(&row, &number)) {
        json_next(output, count++);
        json_members(output, &fields_superslab, &row);
    }
    output_print(output, "]");
}

/* Reads each count once, because other threads count meanwhile: so the counts by size never exceed their sum. */
static void json_debug_counter(struct output *output, enum debug_counter which)
{
    uint64_t counts[CLASS_COUNT], sum = 0;
    size_t count = 0;

    for (unsigned class = 0; class < CLASS_COUNT; class++)
        sum += counts[class] = debug_counter_of(which, class);
    output_print(output, "\"%s\":{\"count\":%lu,\"by_size\":{", debug_counter_names[which].name, (unsigned long)sum);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        if (counts[class])
            output_print(output, "%s\"%zu\":%lu", count++ ? "," : "", class_size(class), (unsigned long)counts[class]);
    output_print(output, "}}");
}

static void json_debug_counters(struct output *output)
{
    output_print(output, ",\n\"debug_counters\":{");
    for (unsigned which = 0; which < DEBUG_COUNTERS; which++) {
        json_next(output, which);
        json_debug_counter(output, which);
    }
    output_print(output, "}");
}

void export_json(struct output *output, struct stats_shot *shot)
{
    output_print(output, "{\"hakmem\":\"%s\",\"version\":%u,\"build\":\"%s\",\"pid\":%u", BASE_VERSION_STRING,
                 HAK_STATS_VERSION, HAK_DEBUG ? "debug" : "release", os_process_id());
    json_object(output, "memory", &fields_memory, &shot->totals);
    json_object(output, "counters", &fields_counters, &shot->totals);
    json_object(output, "faults", &fields_faults, &shot->totals);
    json_object(output, "profile", &fields_profile, &shot->totals);
    output_print(output, ",\n\"pools\":{\"small\":");
    json_members(output, &fields_pool, &shot->totals.small);
    json_object(output, "medium", &fields_pool, &shot->totals.medium);
    json_object(output, "spans", &fields_pool, &shot->totals.spans);
    json_object(output, "huge", &fields_pool, &shot->totals.huge);
    output_print(output, "}");
    json_classes(output, shot);
    json_heaps(output, &shot->count);
    json_superslabs(output);
    if (HAK_DEBUG_COUNTERS)
        json_debug_counters(output);
    output_print(output, "}\n");
}
