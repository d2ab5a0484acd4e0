#include "options/malloc_conf.h"

#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "os/os.h"

/* The library's definitions. A program's own replace them, so they are read through the dynamic linker's table. */
__attribute__((weak, visibility("default"))) const char *malloc_conf;
__attribute__((weak, visibility("default"))) const char *je_malloc_conf;

HAK_DATA_HERE struct malloc_conf malloc_conf_said = { .prof_active = true,
                                                      .prof_prefix = "jeprof",
                                                      .program_text = "" };

enum {
    VALUE_MOST = 256,  /* characters of a value */
    NAMED_MOST = 480,  /* of the names that one message lists */
    LG_MOST = 40,      /* a power of two that is a size */
    DELAY_MOST = 3600000,
};

/* The form of a name's value, and its effect on the row's option. */
enum conf_kind {
    CONF_UNUSED,  /* a name of jemalloc's without a meaning here */
    CONF_DELAY,   /* milliseconds; -1: the longest delay */
    CONF_THREAD,  /* true: always; false: never */
    CONF_SWITCH,  /* true or false */
    CONF_FLAG,    /* true or false, in struct malloc_conf */
    CONF_LG,      /* logarithm of a size; -1: size 0 */
    CONF_THP,
    CONF_PRINT,   /* true: text */
    CONF_PRINT_HOW, /* J: JSON */
    CONF_PREFIX,
};

struct conf_row {
    const char *name, *option;
    enum conf_kind kind;
    size_t flag; /* offset in struct malloc_conf */
};

#define FLAG(field) "", CONF_FLAG, offsetof(struct malloc_conf, field)
static const struct conf_row conf_rows[] = {
    { "dirty_decay_ms", "HAKMEM_PURGE_DELAY", CONF_DELAY, 0 },
    { "background_thread", "HAKMEM_PURGE_THREAD", CONF_THREAD, 0 },
    { "thp", "HAKMEM_THP", CONF_THP, 0 },
    { "confirm_conf", "HAKMEM_VERBOSE", CONF_SWITCH, 0 },
    { "stats_print", "HAKMEM_SHOW_STATS", CONF_PRINT, 0 },
    { "stats_print_opts", "HAKMEM_SHOW_STATS", CONF_PRINT_HOW, 0 },
    { "lg_prof_sample", "HAKMEM_HEAP_PROFILE_RATE", CONF_LG, 0 },
    { "lg_prof_interval", "HAKMEM_HEAP_PROFILE_INTERVAL", CONF_LG, 0 },
    { "prof_prefix", "", CONF_PREFIX, 0 },
    { "prof", FLAG(prof) },
    { "prof_active", FLAG(prof_active) },
    { "prof_final", FLAG(prof_final) },
    { "prof_leak", FLAG(prof_leak) },
    { "abort_conf", FLAG(abort_conf) },
};

/* jemalloc 5.3's other names, and beginnings of names. */
static const char *const unused[] = {
    "abort",
    "bin_shards",
    "cache_oblivious",
    "calloc_madvise_threshold",
    "debug_double_free_max_scan",
    "dss",
    "experimental_*",
    "hpa*",
    "huge_arena_pac_thp",
    "junk",
    "lg_extent_max_active_fit",
    "lg_san_uaf_align",
    "lg_tcache_*",
    "log",
    "max_background_threads",
    "metadata_thp",
    "mutex_max_spin",
    "muzzy_decay_ms",
    "narenas",
    "oversize_threshold",
    "percpu_arena",
    "prof_*",
    "retain",
    "san_guard_large",
    "san_guard_small",
    "slab_sizes",
    "stats_interval",
    "stats_interval_opts",
    "tcache",
    "tcache_*",
    "trust_madvise",
    "utrace",
    "xmalloc",
    "zero",
    "zero_realloc",
};

struct reading {
    const char *source; /* its name in messages */
    bool told;          /* the user typed it: also report names without a meaning */
    bool wrong;
    char names[NAMED_MOST]; /* without a meaning, separated by blanks */
    size_t length;
};

/* ---- Values ---- */

static bool parse_truth(const char *value, bool *truth)
{
    *truth = strcmp(value, "true") == 0;
    return *truth || strcmp(value, "false") == 0;
}

/* A decimal number, maybe with a minus. */
static bool parse_signed(const char *value, int64_t *number)
{
    bool minus = *value == '-';
    uint64_t digits;

    value += minus;
    if (!base_number(&value, &digits) || *value != '\0' || digits > INT64_MAX)
        return false;
    *number = minus ? -(int64_t)digits : (int64_t)digits;
    return true;
}

static bool set_number(const char *option, uint64_t number)
{
    char text[24];

    base_format(text, sizeof text, "%llu", (unsigned long long)number);
    return options_set(option, text);
}

static bool conf_number(const struct conf_row *row, const char *value)
{
    int64_t number;

    if (!parse_signed(value, &number) || number < -1)
        return false;
    if (row->kind == CONF_DELAY)
        return set_number(row->option, number < 0 || number > DELAY_MOST ? DELAY_MOST : (uint64_t)number);
    return number <= LG_MOST && set_number(row->option, number < 0 ? 0 : UINT64_C(1) << number);
}

static bool conf_truth(const struct conf_row *row, const char *value)
{
    bool truth;

    if (!parse_truth(value, &truth))
        return false;
    if (row->kind == CONF_FLAG) {
        *(bool *)((char *)&malloc_conf_said + row->flag) = truth;
        return true;
    }
    if (row->kind == CONF_PRINT && truth && hak_options.show_stats != OPTION_NONE)
        return true; /* stats_print_opts has set more */
    return options_set(row->option, row->kind == CONF_THREAD ? (truth ? "always" : "never") : truth ? "1" : "0");
}

static bool conf_text(const struct conf_row *row, const char *value)
{
    if (row->kind == CONF_PREFIX) {
        memcpy(malloc_conf_said.prof_prefix, value, strlen(value) + 1);
        return true;
    }
    if (row->kind == CONF_PRINT_HOW) /* HAKMEM prints also what the value leaves out */
        return strchr(value, 'J') == NULL || options_set(row->option, "json");
    return options_set(row->option, strcmp(value, "default") == 0 ? "auto" : value);
}

static bool conf_apply(const struct conf_row *row, const char *value)
{
    switch (row->kind) {
    case CONF_DELAY:
    case CONF_LG:
        return conf_number(row, value);
    case CONF_THREAD:
    case CONF_SWITCH:
    case CONF_FLAG:
    case CONF_PRINT:
        return conf_truth(row, value);
    default:
        return conf_text(row, value);
    }
}

/* ---- Names ---- */

static const struct conf_row *conf_find(const char *name)
{
    for (size_t i = 0; i < sizeof conf_rows / sizeof *conf_rows; i++)
        if (strcmp(conf_rows[i].name, name) == 0)
            return &conf_rows[i];
    return NULL;
}

static bool conf_is_unused(const char *name)
{
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        size_t length = strlen(unused[i]);
        if (unused[i][length - 1] == '*' ? strncmp(unused[i], name, length - 1) == 0 : strcmp(unused[i], name) == 0)
            return true;
    }
    return false;
}

static void conf_pair(struct reading *reading, const char *name, const char *value)
{
    const struct conf_row *row = conf_find(name);

    if (row == NULL && conf_is_unused(name)) {
        if (reading->length + strlen(name) + 2 < sizeof reading->names)
            reading->length +=
                base_format(reading->names + reading->length, sizeof reading->names - reading->length, " %s", name);
    } else if (row == NULL) {
        base_message("%s: %s:%s: jemalloc has no such name; ignored", reading->source, name, value);
        reading->wrong = true;
    } else if (!conf_apply(row, value)) {
        base_message("%s: %s:%s: not a value of that name; ignored", reading->source, name, value);
        reading->wrong = true;
    }
}

/* Copies the text up to a separator. False: the text does not fit, and its beginning was copied. */
static bool copy_until(char *out, size_t capacity, const char **text, char separator)
{
    size_t length = 0;

    while (**text && **text != separator && **text != ',' && length < capacity)
        out[length++] = *(*text)++;
    out[base_min(length, capacity - 1)] = '\0';
    return length < capacity;
}

static void conf_read(const char *text, const char *source, bool told)
{
    struct reading reading = { .source = source, .told = told };
    char name[64], value[VALUE_MOST];

    while (*text) {
        if (!copy_until(name, sizeof name, &text, ':') || *text != ':') {
            base_message("%s: %s: expected a name, a colon and a value; the rest is ignored", source,
                         name[0] ? name : text);
            reading.wrong = true;
            break;
        }
        text++;
        if (!copy_until(value, sizeof value, &text, ',')) {
            base_message("%s: %s: the value is longer than %d characters; the rest is ignored", source, name,
                         VALUE_MOST - 1);
            reading.wrong = true;
            break;
        }
        conf_pair(&reading, name, value);
        text += *text == ',';
    }
    if (reading.length && (reading.told || hak_options.verbose))
        base_message("%s: these have no meaning in HAKMEM:%s (docs/jemalloc.md)", source, reading.names);
    if (reading.wrong && malloc_conf_said.abort_conf) {
        base_message("%s: abort_conf:true ends the program", source);
        abort();
    }
}

/* ---- All of it ---- */

static const char *variable(const char *name)
{
    size_t length = strlen(name);

    for (char *const *entry = os_environment(); *entry; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

/* jemalloc writes its profile if prof_final or lg_prof_interval asks for it; HAKMEM writes it if a path is set. */
static void conf_profile(void)
{
    char path[MALLOC_CONF_PREFIX_MOST + 16];

    if (!malloc_conf_said.prof)
        return;
    if (malloc_conf_said.prof_leak)
        options_set("HAKMEM_LEAK_REPORT", "1");
    if (malloc_conf_said.prof_final || hak_options.heap_profile_interval) {
        base_format(path, sizeof path, "%s.%%p.%%n.heap", malloc_conf_said.prof_prefix);
        options_set("HAKMEM_HEAP_PROFILE", path);
    }
}

/* Without MALLOC_CONF, conf_profile runs before hakmem_options is read, whose settings of the profile then win. */
static void conf_read_from(enum options_source source)
{
    const char *own = malloc_conf ? malloc_conf : je_malloc_conf, *typed = variable("MALLOC_CONF");

    if (source == OPTIONS_COMPILED && own) {
        malloc_conf_said.program_text = own;
        conf_read(own, "malloc_conf", false);
    }
    if (source == OPTIONS_ENVIRONMENT && typed)
        conf_read(typed, "MALLOC_CONF", true);
    if (source == (typed ? OPTIONS_ENVIRONMENT : OPTIONS_COMPILED))
        conf_profile();
}

void (*options_foreign)(enum options_source source) = conf_read_from;
