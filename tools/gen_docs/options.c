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
      "[tune.md](tune.md) says which to set for which goal.\n",
      { "VERBOSE", "SHOW_STATS", "STATS_FILE", "THP", "CACHE_BYTES" } },
    { "Limits of memory",
      "A limit counts what HAKMEM holds of the system's memory: blocks, free memory that waits, metadata.\n"
      "\n"
      "- `auto` comes from the process's cgroup (v1 or v2) and all above it: the hard limit is `memory.max`, the\n"
      "  soft one 90 % of the lesser of `memory.max` and `memory.high`; none where there is none. They are read\n"
      "  again about once a second. The soft `auto` gives back all that is free, too, while the kernel's\n"
      "  `memory.pressure` says that some task waited for memory for 10 % of the last 10 seconds.\n"
      "- Without the variable the soft limit is `auto`, read once, before HAKMEM holds more than 8 MiB, and without\n"
      "  heeding `memory.pressure`. 0 reads no file.\n",
      { "MEMORY_LIMIT", "MEMORY_LIMIT_SOFT", "ARENA_SIZE" } },
    { "When free memory goes back",
      "[design.md](design.md#purge-and-the-tick) says how memory is purged.\n",
      { "PURGE_DELAY", "PURGE_THREAD", "HUGE_CACHE", "SS_LRU_SIZE" } },
    { "Profiles",
      "[profile.md](profile.md) explains the heap profile, [cycles.md](cycles.md) the cycle profile.\n",
      { "HEAP_PROFILE", "HEAP_PROFILE_RATE", "HEAP_PROFILE_OVERHEAD", "HEAP_PROFILE_INTERVAL", "HEAP_PROFILE_SIGNAL",
        "HEAP_PROFILE_UNWIND", "HEAP_PROFILE_PYTHON", "LEAK_REPORT", "RECORD_ALL", "TINY_PROFILE" } },
    { "Guarded blocks",
      "[guard.md](guard.md) says what is found, and what it costs.\n",
      { "GUARD", "GUARD_RATE", "GUARD_SLOTS", "GUARD_FILE", "GUARD_CONTINUE" } },
    { "When something is wrong",
      "[misuse.md](misuse.md) says what misuse is caught, [interposition.md](interposition.md) what\n"
      "`RTLD_DEEPBIND` does. The others print what parts of the allocator did ([statistics.md](statistics.md)).\n",
      { "ABORT_ON_MISUSE", "DEEPBIND", "DEBUG_COUNTERS", "FRONT_STATS", "WARM_POOL_STATS", "SS_LRU_DEBUG",
        "SS_PREWARM_DEBUG" } },
    { "Hardening",
      "[hardening.md](hardening.md) says what each mechanism stops and costs. `HAKMEM_HARDENED=1` turns them on in "
      "the\n"
      "ordinary library, and the other options turn single ones off, for those who measure. `libhakmem-secure` is\n"
      "hardened always.\n",
      { "HARDENED", "HARDEN_CANARY", "HARDEN_ZERO", "HARDEN_QUARANTINE", "HARDEN_RANDOM", "HARDEN_NEIGHBOURS",
        "HARDEN_PATROL", "HARDEN_NOTHING", "HARDEN_GUARDS", "HARDEN_PROTECT", "HARDEN_PROTECT_TIME",
        "HARDEN_OPERATORS" } },
    { "Sweep",
      "[sweep.md](sweep.md) says what use after free it makes impossible, what it cannot see, and what it costs.\n",
      { "SWEEP", "SWEEP_PERCENT", "SWEEP_MIN", "SWEEP_KEEP", "SWEEP_SIGNAL" } },
    { "Inside the allocator",
      "These adapt by themselves, and are here for experiments. [design.md](design.md) explains their words.\n",
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
        "Made by `gen_docs options` from `src/options/table.h`; change the table, not this file.\n"
        "\n"
        "HAKMEM needs no settings. It reads these environment variables once, at the first call into it, and not at\n"
        "all in a privileged program (set-user-id, file capabilities). A variable that begins with `HAKMEM_` and is\n"
        "not in the table, or whose value does not fit, is named on standard error and ignored.\n"
        "`HAKMEM_VERBOSE=1` prints the version and every setting in force.\n"
        "\n"
        "- A size is a number of bytes, or of units of 1024: `64K`, `64KiB` and `65536` are the same. The larger\n"
        "  units are `M`, `G` and `T`.\n"
        "- A switch takes `1`, `on`, `yes`, `true` or `0`, `off`, `no`, `false`.\n"
        "- In a path `%%p` becomes the number of the process.\n"
        "\n"
        "A program may bring settings of its own. A variable in the environment overrides the setting of that name.\n"
        "Names are those below, with or without `HAKMEM_`. A program into which HAKMEM is linked, or which is linked\n"
        "to the shared library, needs only the definition; one that has the library preloaded must export it\n"
        "(`-rdynamic`). A privileged program's own settings count, too:\n"
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
}
