/* docs/options.md, from src/options/table.h. */
#include <inttypes.h>
#include <string.h>

#include "gen_docs.h"
#include "options/table.h"

enum kind { BOOL, COUNT, SIZE, TIME, MICROS, LIMIT, CHOICE, FORMAT, PATH };

static const struct row {
    const char *name;
    enum kind kind;
    uint64_t default_value, lowest, highest;
    const char *unit, *doc;
} rows[] = {
#define ROW(field, name, kind, default_, lowest, highest, unit, doc) \
    { name, kind, default_, lowest, highest, unit, doc },
    OPTION_TABLE(ROW)
#undef ROW
};

/* The largest unit that divides the size, as a value may be given. */
static void print_size(FILE *out, uint64_t bytes)
{
    static const char *const units[] = { "", "K", "M", "G", "T" };
    unsigned unit = 0;
    for (; bytes != 0 && bytes % 1024 == 0 && unit < 4; unit++)
        bytes /= 1024;
    fprintf(out, "%" PRIu64 "%s", bytes, units[unit]);
}

static void print_value(FILE *out, const struct row *row, uint64_t value)
{
    static const char *const choices[] = { "auto", "never", "always" };
    if (row->kind == CHOICE)
        fprintf(out, "%s", choices[value]);
    else if (row->kind == LIMIT && value == LIMIT_DEFAULT)
        fprintf(out, "auto");
    else if (row->kind == SIZE || row->kind == LIMIT)
        print_size(out, value);
    else if (row->kind == PATH)
        fprintf(out, "none");
    else
        fprintf(out, "%" PRIu64, value);
}

static void print_range(FILE *out, const struct row *row)
{
    switch (row->kind) {
    case BOOL:
        fprintf(out, "0 or 1");
        return;
    case CHOICE:
        fprintf(out, "auto, never, always");
        return;
    case FORMAT:
        fprintf(out, "0, 1, text, json, prometheus");
        return;
    case PATH:
        fprintf(out, "a %s", row->unit[0] ? row->unit : "path");
        return;
    case LIMIT:
        fprintf(out, "a size, 0 (none), auto");
        return;
    default:
        print_value(out, row, row->lowest);
        fprintf(out, " to ");
        print_value(out, row, row->highest);
        if (row->kind != SIZE)
            fprintf(out, " %s", row->unit);
    }
}

void gen_docs_options(FILE *out)
{
    fprintf(out,
            "# Options\n"
            "\n"
            "Made by `gen_docs options` from `src/options/table.h`; change the table, not this file.\n"
            "\n"
            "HAKMEM needs no settings. It reads these environment variables once, at the first call into it, and not at\n"
            "all in a privileged program (set-user-id, file capabilities). A variable that begins with `HAKMEM_` and is\n"
            "not in the table, or whose value does not fit, is named on standard error and ignored.\n"
            "`HAKMEM_VERBOSE=1` prints the version and every setting in force.\n"
            "\n"
            "- A size is a number of bytes, or of units of 1024: `64K`, `64KiB` and `65536` are the same; so on with\n"
            "  `M`, `G` and `T`.\n"
            "- A switch takes `1`, `on`, `yes`, `true` or `0`, `off`, `no`, `false`.\n"
            "- A limit counts what HAKMEM holds of the system's memory: blocks, free memory that waits, metadata.\n"
            "  A limit of `auto` comes from the process's cgroup (v1 or v2) and all above it: the hard limit is\n"
            "  `memory.max`, the soft one 90 %% of the lesser of `memory.max` and `memory.high`; none where there is none.\n"
            "  They are read again about once a second. The soft `auto` gives back all that is free, too, while the\n"
            "  kernel's `memory.pressure` says that some task waited for memory for 10 %% of the last 10 seconds.\n"
            "- Without the variable the soft limit is `auto`, read once, before HAKMEM holds more than 8 MiB, and without\n"
            "  heeding `memory.pressure`. 0 reads no file.\n"
            "\n"
            "| Variable | Default | Values | What it does |\n"
            "|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fprintf(out, "| `%s` | ", rows[i].name);
        print_value(out, &rows[i], rows[i].default_value);
        fprintf(out, " | ");
        print_range(out, &rows[i]);
        fprintf(out, " | %s |\n", rows[i].doc);
    }
}
