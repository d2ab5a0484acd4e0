/* The members of the public structs, by name, for the formats that print all of them. */
#ifndef HAK_OBSERVE_FIELDS_H
#define HAK_OBSERVE_FIELDS_H

#include <hakmem/stats.h>

#include "base/base.h"

/* What a member is: a state, one in bytes (which its name does not say), something that only grows, a state with a sign, or a share
 * in 1/10,000. */
enum field_kind { FIELD_GAUGE, FIELD_BYTES, FIELD_COUNTER, FIELD_SIGNED, FIELD_SHARE };

struct field {
    const char *name;
    uint16_t offset;
    uint8_t kind; /* enum field_kind */
    const char *help;
};

struct field_list {
    const struct field *fields;
    size_t count;
};

HAK_DATA const struct field_list fields_memory, fields_counters, fields_faults, fields_profile; /* of struct hak_stats */
HAK_DATA const struct field_list fields_pool, fields_class, fields_heap, fields_superslab;

HAK_INLINE uint64_t field_value(const struct field *field, const void *record)
{
    return *(const uint64_t *)((const char *)record + field->offset);
}

#endif
