/* The rows of the option table (src/options/table.h), for the tests that loop over them. */
#ifndef TESTS_UNIT_OPTION_ROWS_H
#define TESTS_UNIT_OPTION_ROWS_H

#include "options/options.h"

enum { BOOL, COUNT, SIZE, TIME, MICROS, LIMIT, CHOICE, FORMAT, PATH };

static const struct row {
    const char *name;
    int kind;
    uint64_t default_value, lowest, highest;
    const uint64_t *value;
} rows[] = {
#define ROW(field, name, kind, default_, lowest, highest, unit, doc) \
    { name, kind, default_, lowest, highest, &hak_options.field },
    OPTION_TABLE(ROW)
#undef ROW
};
enum { ROWS = sizeof rows / sizeof rows[0] };

#endif
