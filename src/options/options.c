/* Reads the options from the program and its environment once, and prints them on request. */
#include "options/options.h"

#include <string.h>

#include "base/format.h"
#include "base/version.h"
#include "os/os.h"

enum option_kind {
    OPTION_BOOL,
    OPTION_COUNT,
    OPTION_SIZE,
    OPTION_TIME,
    OPTION_MICROS,
    OPTION_LIMIT,
    OPTION_CHOICE,
    OPTION_FORMAT,
    OPTION_PATH
};

struct option_row {
    const char *name;
    enum option_kind kind;
    uint64_t default_value, lowest, highest; /* LIMIT and PATH have no range */
    const char *unit;
    size_t offset; /* of the value in struct options */
};

static const struct option_row rows[] = {
#define OPTION_ROW(field, name, kind, default_, lowest, highest, unit, doc) \
    { name, OPTION_##kind, default_, lowest, highest, unit, offsetof(struct options, field) },
    OPTION_TABLE(OPTION_ROW)
#undef OPTION_ROW
};

static const struct accepted_row {
    const char *name, *served_by;
} accepted[] = {
#define ACCEPTED_ROW(name, served_by) { name, served_by },
    ACCEPTED_TABLE(ACCEPTED_ROW)
#undef ACCEPTED_ROW
};

enum {
    ACCEPTED_COUNT = sizeof accepted / sizeof accepted[0],
    ROW_COUNT = sizeof rows / sizeof rows[0],
    NAME_MOST = 40,        /* characters of the longest name, and some more */
    SHOWN_MOST = 64,       /* characters of a bad name or value that a message repeats */
    VALUE_CAPACITY = 32,   /* of a value as text, except a path */
    PATHS_CAPACITY = 4096, /* of all paths together, each with its NUL */
    COMPILED_MOST = 512,   /* of a setting in hakmem_options, with its NUL */
};

#define OPTION_NAME_FITS(field, name, kind, default_, lowest, highest, unit, doc) \
    _Static_assert(sizeof(name) <= NAME_MOST, "NAME_MOST holds every name");
OPTION_TABLE(OPTION_NAME_FITS)
#undef OPTION_NAME_FITS

HAK_DATA_UNLESS void (*options_foreign)(enum options_source source) = NULL;
HAK_DATA_HERE struct options hak_options = {
#define OPTION_DEFAULT(field, name, kind, default_, lowest, highest, unit, doc) .field = (default_),
    OPTION_TABLE(OPTION_DEFAULT)
#undef OPTION_DEFAULT
};

static const char prefix[] = "HAKMEM_";

/* The program's own settings (hakmem.h). Weak: most programs define none, and then its address is NULL. */
extern __attribute__((weak, visibility("default"))) const char hakmem_options[];

static const char *const choices[] = { [OPTION_AUTO] = "auto", [OPTION_NEVER] = "never", [OPTION_ALWAYS] = "always" };

static const char *const formats[] = { [OPTION_NONE] = "0", [OPTION_TEXT] = "text", [OPTION_JSON] = "json",
                                       [OPTION_PROMETHEUS] = "prometheus" };

static uint64_t *value_of(const struct option_row *row)
{
    return (uint64_t *)((char *)&hak_options + row->offset);
}

/* ---- Text to value ---- */

static char lower(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return c;
}

static bool same_word(const char *a, const char *b)
{
    while (*a != '\0' && lower(*a) == lower(*b)) {
        a++;
        b++;
    }
    return lower(*a) == lower(*b);
}

/* A number and one of: nothing or B; K, M, G or T, each alone or with B or iB behind it. All are powers of 1024. */
static bool parse_size(const char *text, uint64_t *value)
{
    static const char units[] = "kmgt";
    const char *unit, *at;
    if (!base_number(&text, value))
        return false;
    for (at = units; *at != '\0' && lower(*text) != *at; at++)
        continue;
    unit = text;
    if (*at != '\0') {
        if (__builtin_mul_overflow(*value, UINT64_C(1) << (10 * (at - units + 1)), value))
            return false;
        unit++;
        if (lower(unit[0]) == 'i' && lower(unit[1]) == 'b')
            unit++;
    }
    if (lower(*unit) == 'b')
        unit++;
    return *unit == '\0';
}

static bool parse_bool(const char *text, uint64_t *value)
{
    static const char *const words[][2] = { { "0", "1" }, { "off", "on" }, { "no", "yes" }, { "false", "true" } };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        for (unsigned truth = 0; truth <= 1; truth++) {
            if (same_word(text, words[i][truth])) {
                *value = truth;
                return true;
            }
        }
    }
    return false;
}

static bool parse_choice(const char *text, uint64_t *value)
{
    uint64_t on;

    if (parse_bool(text, &on)) {
        *value = on ? OPTION_ALWAYS : OPTION_NEVER;
        return true;
    }
    for (*value = 0; *value < sizeof choices / sizeof choices[0]; ++*value)
        if (same_word(text, choices[*value]))
            return true;
    return false;
}

/* 1 means text, so that the variable also works as a switch. */
static bool parse_format(const char *text, uint64_t *value)
{
    if (parse_bool(text, value))
        return true;
    for (*value = OPTION_TEXT; *value < sizeof formats / sizeof formats[0]; ++*value)
        if (same_word(text, formats[*value]))
            return true;
    return false;
}

/* Copies the path, because programs overwrite their environment. */
static bool parse_path(const char *text, uint64_t *value)
{
    static char paths[PATHS_CAPACITY];
    static size_t used;
    size_t size = strlen(text) + 1;

    if (size == 1 || size > sizeof paths - used)
        return false;
    *value = (uintptr_t)memcpy(paths + used, text, size);
    used += size;
    return true;
}

static bool parse_value(const struct option_row *row, const char *text, uint64_t *value)
{
    bool good = false;
    switch (row->kind) {
    case OPTION_BOOL:
        return parse_bool(text, value);
    case OPTION_CHOICE:
        return parse_choice(text, value);
    case OPTION_FORMAT:
        return parse_format(text, value);
    case OPTION_PATH:
        return parse_path(text, value);
    case OPTION_LIMIT:
        if (!same_word(text, "auto"))
            return parse_size(text, value);
        *value = LIMIT_AUTO;
        return true;
    case OPTION_SIZE:
        good = parse_size(text, value);
        break;
    case OPTION_COUNT:
    case OPTION_TIME:
    case OPTION_MICROS:
        good = base_number(&text, value) && *text == '\0';
        break;
    }
    return good && *value >= row->lowest && *value <= row->highest;
}

/* ---- Value to text ---- */

/* Sizes as the largest unit that divides them. */
static void format_size(char *text, uint64_t value)
{
    static const char *const units[] = { "", "K", "M", "G", "T" };
    unsigned unit = 0;
    while (value != 0 && value % 1024 == 0 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    base_format(text, VALUE_CAPACITY, "%llu%s", (unsigned long long)value, units[unit]);
}

static void format_value(char *text, const struct option_row *row, uint64_t value)
{
    if (row->kind == OPTION_CHOICE)
        base_format(text, VALUE_CAPACITY, "%s", choices[value]);
    else if (row->kind == OPTION_FORMAT)
        base_format(text, VALUE_CAPACITY, "%s", formats[value]);
    else if (row->kind == OPTION_LIMIT && value >= LIMIT_DEFAULT)
        base_format(text, VALUE_CAPACITY, "auto");
    else if (row->kind == OPTION_SIZE || row->kind == OPTION_LIMIT)
        format_size(text, value);
    else
        base_format(text, VALUE_CAPACITY, "%llu", (unsigned long long)value);
}

/* ---- Messages to the user ---- */

static void say_bad_value(const struct option_row *row, const char *text)
{
    char using[SHOWN_MOST], lowest[VALUE_CAPACITY], highest[VALUE_CAPACITY], wanted[4 * VALUE_CAPACITY];
    format_value(using, row, *value_of(row));
    switch (row->kind) {
    case OPTION_BOOL:
        base_format(wanted, sizeof wanted, "0 or 1");
        break;
    case OPTION_CHOICE:
        base_format(wanted, sizeof wanted, "auto, never or always");
        break;
    case OPTION_FORMAT:
        base_format(wanted, sizeof wanted, "0, 1, text, json or prometheus");
        break;
    case OPTION_PATH:
        base_format(using, sizeof using, "%s", *value_of(row) == 0 ? "none" : option_path(*value_of(row)));
        base_format(wanted, sizeof wanted, "a %s of 1 to some %u characters", row->unit[0] ? row->unit : "path",
                    PATHS_CAPACITY);
        break;
    case OPTION_LIMIT:
        base_format(wanted, sizeof wanted, "a size such as 512M, 0 or auto");
        break;
    default:
        format_value(lowest, row, row->lowest);
        format_value(highest, row, row->highest);
        base_format(wanted, sizeof wanted, "a %s from %s to %s", row->kind == OPTION_SIZE ? "size" : "number", lowest,
                    highest);
    }
    base_message("%s=%.*s%s is not %s; using %s", row->name, SHOWN_MOST, text, strlen(text) > SHOWN_MOST ? "..." : "",
                 wanted, using);
}

/* How many letters to change, add or remove to turn one name into the other (Levenshtein). Both have at most NAME_MOST
 * letters. */
static unsigned name_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    uint8_t costs[NAME_MOST + 1]; /* of the first i letters of a to the first j of b, by j */
    for (size_t j = 0; j <= b_length; j++)
        costs[j] = (uint8_t)j;
    for (size_t i = 1; i <= a_length; i++) {
        unsigned diagonal = costs[0];
        costs[0] = (uint8_t)i;
        for (size_t j = 1; j <= b_length; j++) {
            unsigned changed = diagonal + (a[i - 1] != b[j - 1]);
            unsigned added = (unsigned)(costs[j] < costs[j - 1] ? costs[j] : costs[j - 1]) + 1;
            diagonal = costs[j];
            costs[j] = (uint8_t)(changed < added ? changed : added);
        }
    }
    return costs[b_length];
}

static void say_unknown(const char *name, size_t length)
{
    const struct option_row *nearest = NULL;
    /* A name that differs in more than a third of its letters, or in four, is another word. */
    size_t own_length = length - (sizeof prefix - 1);
    unsigned least = own_length >= 9 ? 4 : (unsigned)own_length / 3 + 1;
    for (size_t i = 0; i < ROW_COUNT && length <= NAME_MOST; i++) {
        unsigned distance = name_distance(name, length, rows[i].name, strlen(rows[i].name));
        if (distance < least) {
            least = distance;
            nearest = &rows[i];
        }
    }
    int shown = (int)base_min(length, SHOWN_MOST);
    if (nearest != NULL)
        base_message("unknown variable %.*s ignored; did you mean %s?", shown, name, nearest->name);
    else
        base_message("unknown variable %.*s%s ignored", shown, name, length > SHOWN_MOST ? "..." : "");
}

/* ---- The public part ---- */

static const struct option_row *find_row(const char *name, size_t length)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0)
            return &rows[i];
    return NULL;
}

/* Which of the accepted variables the program or its environment sets. */
static bool accepted_set[ACCEPTED_COUNT];

static bool accept(const char *name, size_t length)
{
    for (size_t i = 0; i < ACCEPTED_COUNT; i++) {
        if (strlen(accepted[i].name) == length && memcmp(accepted[i].name, name, length) == 0) {
            accepted_set[i] = true;
            return true;
        }
    }
    return false;
}

/* Whether the value would let a hardened process go on after misuse. */
static bool weakens(const struct option_row *row, uint64_t value)
{
    return HAK_SECURE && value < row->default_value && strcmp(row->name, "HAKMEM_ABORT_ON_MISUSE") == 0;
}

/* HAKMEM_HARDENED asks for another library, not for a setting of this one. */
static void say_hardened(const char *text)
{
    bool wanted = strcmp(text, "0") != 0;

    if (HAK_SECURE && !wanted)
        base_message("HAKMEM_HARDENED=0 ignored: libhakmem-secure is always hardened; load libhakmem.so in its place");
    else if (!HAK_SECURE && wanted)
        base_message("HAKMEM_HARDENED=%.*s ignored: this library is not hardened; load libhakmem-secure.so in its "
                     "place", SHOWN_MOST, text);
}

/* Reads one setting. If a source names an option twice, the first setting counts, as for getenv. */
static void read_setting(const char *name, size_t length, const char *text, bool *seen, bool from_environment)
{
    static const char hardened_name[] = "HAKMEM_HARDENED";
    const struct option_row *row = find_row(name, length);
    uint64_t value;

    if (row == NULL && length == sizeof hardened_name - 1 && memcmp(name, hardened_name, length) == 0) {
        say_hardened(text);
    } else if (row == NULL) {
        if (!accept(name, length))
            say_unknown(name, length);
    } else if (!seen[row - rows]) {
        seen[row - rows] = true;
        if (!parse_value(row, text, &value))
            say_bad_value(row, text);
        else if (from_environment && weakens(row, value))
            base_message("%s=%.*s ignored: libhakmem-secure cannot be weakened by the environment", row->name,
                         SHOWN_MOST, text);
        else
            *value_of(row) = value;
    }
}

/* Copies the settings one by one, each with the prefix that its name has in the environment. hakmem_options may be in
 * read-only memory, and its names may have the prefix or not. */
static void read_compiled(const char *text)
{
    static char setting[sizeof prefix + COMPILED_MOST];
    bool seen[ROW_COUNT] = { false };

    while (*text != '\0') {
        size_t length = strcspn(text, ";"),
               start = strncmp(text, prefix, sizeof prefix - 1) == 0 ? 0 : sizeof prefix - 1;
        char *equals;

        if (length >= COMPILED_MOST) {
            base_message("hakmem_options: %.*s... is longer than %u characters; ignored", SHOWN_MOST, text,
                         COMPILED_MOST - 1);
        } else if (length != 0) {
            memcpy(setting, prefix, start);
            memcpy(setting + start, text, length);
            setting[start + length] = '\0';
            equals = strchr(setting, '=');
            if (equals != NULL)
                read_setting(setting, (size_t)(equals - setting), equals + 1, seen, false);
            else
                base_message("hakmem_options: %.*s has no value; ignored", SHOWN_MOST, setting);
        }
        text += length + (text[length] == ';');
    }
}

bool options_set(const char *name, const char *text)
{
    const struct option_row *row = find_row(name, strlen(name));
    uint64_t value;

    if (row == NULL || !parse_value(row, text, &value))
        return false;
    *value_of(row) = value;
    return true;
}

void options_read(void)
{
    bool seen[ROW_COUNT] = { false };

    memset(accepted_set, 0, sizeof accepted_set);
    if (options_foreign != NULL)
        options_foreign(OPTIONS_COMPILED);
    if (hakmem_options != NULL)
        read_compiled(hakmem_options);
    if (options_foreign != NULL)
        options_foreign(OPTIONS_ENVIRONMENT);
    for (char *const *entry = os_environment(); *entry != NULL; entry++) {
        const char *equals = strchr(*entry, '=');
        if (equals != NULL && strncmp(*entry, prefix, sizeof prefix - 1) == 0)
            read_setting(*entry, (size_t)(equals - *entry), equals + 1, seen, true);
    }
    /* A huge page is 32 MiB where pages are 16 KiB, and 512 MiB where they are 64 KiB: the first touch of a SuperSlab
     * would make its neighbours resident, and a purge could not undo that. */
    if (HAK_PAGE_MOST > 4096 && os_page_size() > 4096 && hak_options.thp == OPTION_AUTO)
        hak_options.thp = OPTION_NEVER;
}

bool options_seal(void)
{
    return !HAK_SECURE || (os_page_size() <= HAK_PAGE_MOST && os_seal(&hak_options, sizeof hak_options));
}

void options_print(void)
{
    base_message("version %s, %s build; settings (* = not the default):", BASE_VERSION_STRING,
                 HAK_DEBUG ? "debug" : "release");
    for (size_t i = 0; i < ROW_COUNT; i++) {
        char value[VALUE_CAPACITY];
        bool bytes = rows[i].kind == OPTION_SIZE || rows[i].kind == OPTION_LIMIT; /* whose unit is in the value */
        format_value(value, &rows[i], *value_of(&rows[i]));
        if (rows[i].kind == OPTION_PATH) {
            const char *path = option_path(*value_of(&rows[i]));
            base_message("%c %s=%s", path ? '*' : ' ', rows[i].name, path ? path : "");
            continue;
        }
        base_message("%c %s=%s%s%s", *value_of(&rows[i]) != rows[i].default_value ? '*' : ' ', rows[i].name, value,
                     bytes || rows[i].unit[0] == '\0' ? "" : " ", bytes ? "" : rows[i].unit);
    }
    for (size_t i = 0; i < ACCEPTED_COUNT; i++)
        if (accepted_set[i])
            base_message("%s is set and needs no setting: %s", accepted[i].name, accepted[i].served_by);
}
