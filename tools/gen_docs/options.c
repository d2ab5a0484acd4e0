/* docs/options.md, from src/options/table.h. */
#include <inttypes.h>
#include <stdlib.h>
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

enum { ROWS = sizeof rows / sizeof rows[0], GROUP_MOST = 16 };

/* A section of the page: its heading, the text below it, and its options by name without HAKMEM_. */
static const struct group {
    const char *title, *text;
    const char *names[GROUP_MOST];
} groups[] = {
    { "Set most often",
      "[tune.md](tune.md) says which options to set for a goal.\n",
      { "VERBOSE", "SHOW_STATS", "STATS_FILE", "THP", "CACHE_BYTES" } },
    { "Limits of memory",
      "A limit counts the memory that HAKMEM holds: blocks, free memory that waits, metadata.\n"
      "\n"
      "- `auto` takes the limit of the process's cgroup (v1 or v2) or of one above it, whichever is lowest: for the\n"
      "  hard limit `memory.max`, for the soft limit 90 % of the lower of `memory.max` and `memory.high`. HAKMEM\n"
      "  reads them again about once a second. With the soft `auto` it also gives back all free memory while the\n"
      "  kernel's `memory.pressure` says that some task waited for memory for 10 % of the last 10 seconds.\n"
      "- If the variable is not set, the soft limit is `auto`, but HAKMEM reads it only once, before it holds more\n"
      "  than 8 MiB, and does not read `memory.pressure`. With 0 it reads no file.\n",
      { "MEMORY_LIMIT", "MEMORY_LIMIT_SOFT", "ARENA_SIZE" } },
    { "When free memory goes back",
      "[design.md](dev/design.md#purge-and-the-tick) says how memory is purged.\n",
      { "PURGE_DELAY", "PURGE_THREAD", "HUGE_CACHE", "SS_LRU_SIZE" } },
    { "Profiles",
      "[profile.md](profile.md) explains the heap profile, [cycles.md](dev/cycles.md) the cycle profile.\n",
      { "HEAP_PROFILE", "HEAP_PROFILE_RATE", "HEAP_PROFILE_INTERVAL", "HEAP_PROFILE_SIGNAL",
        "HEAP_PROFILE_UNWIND", "HEAP_PROFILE_PYTHON", "LEAK_REPORT", "RECORD_ALL", "TINY_PROFILE" } },
    { "Guarded blocks",
      "[misuse.md](misuse.md#guarded-blocks) says what errors guarded blocks find, and what they cost.\n",
      { "GUARD", "GUARD_RATE", "GUARD_SLOTS", "GUARD_FILE", "GUARD_CONTINUE" } },
    { "When something is wrong",
      "[misuse.md](misuse.md) says what misuse is caught, [doctor.md](doctor.md#rtld_deepbind) what `RTLD_DEEPBIND`\n"
      "does. The other options print figures of parts of the allocator ([statistics.md](statistics.md)).\n",
      { "ABORT_ON_MISUSE", "DEEPBIND", "DEBUG_COUNTERS", "FRONT_STATS", "WARM_POOL_STATS", "SS_LRU_DEBUG",
        "SS_PREWARM_DEBUG" } },
    { "Inside the allocator",
      "What these options bound adapts by itself; they are for experiments. [glossary.md](glossary.md) explains the\n"
      "words.\n",
      { "FC_CAP", "FC_REFILL", "WARM_POOL", "POPULATE", "SS_PREWARM", "MF2_ENABLE", "MF2_MAX_QUEUES",
        "MF2_IDLE_THRESHOLD_US", "MF2_ENQUEUE_THRESHOLD" } },
};

/* The size in the largest unit that divides it, as a value may be given. */
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

static const struct row *find_row(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name + strlen("HAKMEM_"), name) == 0)
            return &rows[i];
    fprintf(stderr, "gen_docs: a group of tools/gen_docs/options.c has %s, which src/options/table.h has not\n", name);
    exit(2);
}

static void print_group(FILE *out, const struct group *group, bool *printed)
{
    fprintf(out,
            "\n"
            "## %s\n"
            "\n"
            "%s"
            "\n"
            "| Variable | Default | Values | What it does |\n"
            "|---|---|---|---|\n",
            group->title, group->text);
    for (size_t i = 0; i < GROUP_MOST && group->names[i] != NULL; i++) {
        const struct row *row = find_row(group->names[i]);
        fprintf(out, "| `%s` | ", row->name);
        print_value(out, row, row->default_value);
        fprintf(out, " | ");
        print_range(out, row);
        fprintf(out, " | %s |\n", row->doc);
        printed[row - rows] = true;
    }
}

void gen_docs_options(FILE *out)
{
    bool printed[ROWS] = { false };
    fprintf(
        out,
        "# Options\n"
        "\n"
        "This page lists every option. `gen_docs options` makes it from `src/options/table.h`; change the table, not\n"
        "this file.\n"
        "\n"
        "HAKMEM needs no settings. It reads these environment variables once, at the first call into it. It reads\n"
        "none in a privileged program (set-user-id, file capabilities). If HAKMEM does not know a variable that\n"
        "begins with `HAKMEM_`, or the value does not fit, it says so on standard error and ignores the variable.\n"
        "`HAKMEM_VERBOSE=1` prints the version and every setting in force.\n"
        "\n"
        "- A size is a number of bytes, or of units of 1024: `64K`, `64KiB` and `65536` are the same. `M`, `G`, `T`\n"
        "  work alike.\n"
        "- A switch takes `1`, `on`, `yes`, `true` or `0`, `off`, `no`, `false`.\n"
        "- In a path `%%p` becomes the number of the process.\n"
        "\n"
        "A program may bring settings of its own. A variable of the environment replaces the program's setting of\n"
        "the same name. Names are those below, with or without `HAKMEM_`. The settings count if HAKMEM is linked\n"
        "into the program, or if the program is linked to the shared library. With the library preloaded, the\n"
        "program must export the name (`-rdynamic`). The settings count in a privileged program, too:\n"
        "\n"
        "```c\n"
        "#include <hakmem/hakmem.h>\n"
        "\n"
        "const char hakmem_options[] = \"PURGE_DELAY=100;THP=never\";\n"
        "```\n"
        "\n"
        "In Rust that is `hakmem::options!(\"PURGE_DELAY=100;THP=never\");`, in the crate of the program.\n");
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        print_group(out, &groups[i], printed);
    for (size_t i = 0; i < ROWS; i++) {
        if (!printed[i]) {
            fprintf(stderr, "gen_docs: %s is in no group of tools/gen_docs/options.c\n", rows[i].name);
            exit(2);
        }
    }
    fprintf(out,
            "\n"
            "## Accepted, and without effect\n"
            "\n"
            "Scripts may set these variables for the HAKMEM of the source documents. This HAKMEM accepts them with\n"
            "any value, because what they ask for needs no setting. With `HAKMEM_VERBOSE=1` it says so for each one\n"
            "that is set.\n"
            "\n"
            "| Variable | What does its work |\n"
            "|---|---|\n");
#define ACCEPTED(name, served_by) fprintf(out, "| `%s` | %s |\n", name, served_by);
    ACCEPTED_TABLE(ACCEPTED)
#undef ACCEPTED
}
