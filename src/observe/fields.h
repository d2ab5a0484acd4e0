/* The members of the public structs, by name, for the formats that print all of them. */
#ifndef HAK_OBSERVE_FIELDS_H
#define HAK_OBSERVE_FIELDS_H

#include <hakmem/stats.h>

#include "base/base.h"
#include "observe/output.h"

/* The kind of a member: a state, a state in bytes (its name does not say so), a counter that only grows, a state with a
 * sign, a counter of hits, or a share of hits in 1/10,000. */
enum field_kind { FIELD_GAUGE, FIELD_BYTES, FIELD_COUNTER, FIELD_SIGNED, FIELD_HITS, FIELD_SHARE };

/* Texts lie in the row: a pointer to each would be written by the dynamic linker as every process starts. */
struct field {
    uint16_t offset;
    uint8_t kind; /* enum field_kind */
    char name[24];
    char help[96];
};

struct field_list {
    const struct field *fields;
    size_t count;
};

/* of struct hak_stats */
HAK_DATA const struct field_list fields_memory, fields_counters, fields_faults, fields_profile;
HAK_DATA const struct field_list fields_pool, fields_class, fields_heap, fields_superslab;
HAK_DATA const struct field_list fields_scope; /* those of struct hak_scope_stats that are exported */

HAK_INLINE uint64_t field_value(const struct field *field, const void *record)
{
    return *(const uint64_t *)((const char *)record + field->offset);
}

/* Prints the value as JSON and Prometheus have numbers. */
HAK_HIDDEN void field_print(struct output *output, const struct field *field, uint64_t value);

#endif
