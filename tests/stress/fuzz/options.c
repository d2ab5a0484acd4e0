/* Protects options/options.c from any environment: defaults or values by a second reading, and whole messages.
 *
 * The target `options`: the input's lines are an environment, which src/options/options.c reads on the fake system.
 * Each option must have its default, or the value of its first variable by this file's own reading of the table's
 * kinds. The messages on standard error must be whole lines.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include "../../unit/option_rows.h"
#include "os/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ENTRIES = 200, PATHS_ROOM = 4096 };
#define CGROUP_LIMIT ((size_t)300 << 20)

/* ---- The expected meaning of a text ---- */

/* The index of the first of `words` (separated by blanks) that equals the text in any case, or -1. */
static int word_of(const char *text, const char *words)
{
    for (int number = 0; *words != '\0'; number++) {
        size_t length = strcspn(words, " ");
        if (strlen(text) == length && strncasecmp(text, words, length) == 0)
            return number;
        words += length + (words[length] == ' ');
    }
    return -1;
}

static int truth_of(const char *text)
{
    int word = word_of(text, "0 1 off on no yes false true");

    return word < 0 ? -1 : word % 2;
}

/* Digits, and one of the suffixes or nothing. Returns false for any other text, or a number that is too large. */
static bool number_of(const char *text, bool sized, uint64_t *value)
{
    static const char units[] = "kmgt";
    char *rest;

    errno = 0;
    *value = strtoull(text, &rest, 10);
    if (*text < '0' || *text > '9' || errno == ERANGE)
        return false;
    if (!sized || *rest == '\0' || strcasecmp(rest, "b") == 0)
        return *rest == '\0' || sized;
    for (unsigned i = 0; i < 4; i++) {
        bool suffixed = rest[1] == '\0' || strcasecmp(rest + 1, "b") == 0 || strcasecmp(rest + 1, "ib") == 0;
        if ((*rest | 0x20) != units[i] || !suffixed)
            continue;
        if (*value > UINT64_MAX >> (10 * (i + 1)))
            return false;
        *value <<= 10 * (i + 1);
        return true;
    }
    return false;
}

static uint64_t meaning_of(const struct row *row, const char *text)
{
    uint64_t value = 0;
    int word;

    switch (row->kind) {
    case BOOL:
        return truth_of(text) < 0 ? row->default_value : (uint64_t)truth_of(text);
    case CHOICE:
        word = word_of(text, "auto never always");
        return word >= 0 ? (uint64_t)word : truth_of(text) >= 0 ? (uint64_t)truth_of(text) + 1 : row->default_value;
    case FORMAT:
        word = word_of(text, "text json prometheus");
        return word >= 0 ? (uint64_t)word + 1 : truth_of(text) >= 0 ? (uint64_t)truth_of(text) : row->default_value;
    case LIMIT:
        if (strcasecmp(text, "auto") == 0)
            return LIMIT_AUTO;
        return number_of(text, true, &value) ? value : row->default_value;
    default:
        if (number_of(text, row->kind == SIZE, &value) && value >= row->lowest && value <= row->highest)
            return value;
        return row->default_value;
    }
}

/* ---- Judging ---- */

static const char *first_value(char **environment, const char *name)
{
    for (; *environment != NULL; environment++)
        if (strncmp(*environment, name, strlen(name)) == 0 && (*environment)[strlen(name)] == '=')
            return *environment + strlen(name) + 1;
    return NULL;
}

static void check_rows(char **environment)
{
    size_t paths = 0;

    for (char **entry = environment; *entry != NULL; entry++)
        paths += strlen(*entry) + 1;
    for (const struct row *row = rows; row < rows + ROWS; row++) {
        const char *text = first_value(environment, row->name);
        uint64_t meant = text == NULL ? row->default_value : row->kind == PATH ? 0 : meaning_of(row, text);
        if (row->kind != PATH || text == NULL || *text == '\0') {
            FUZZ_CHECK(*row->value == meant, "%s=%s is %llu, not %llu", row->name, text ? text : "(unset)",
                       (unsigned long long)*row->value, (unsigned long long)meant);
            continue;
        }
        const char *kept = option_path(*row->value);
        FUZZ_CHECK(kept == NULL ? paths > PATHS_ROOM : strcmp(kept, text) == 0 && kept != text, "%s=%s is %s",
                   row->name, text, kept ? kept : "(none)");
    }
}

/* A line for each option, and more for names that are wrong. No line is cut. */
static void check_said(int said, size_t entries)
{
    static char text[1 << 20];
    ssize_t length = pread(said, text, sizeof text - 1, 0);
    size_t begun = 0;

    FUZZ_CHECK(length > 0 && text[length - 1] == '\n', "%zd bytes are said", length);
    for (char *at = text; (at = memmem(at, (size_t)(text + length - at), "hakmem: ", 8)) != NULL; at++)
        begun++;
    FUZZ_CHECK(begun >= ROWS + 1 && memcmp(text, "hakmem: ", 8) == 0, "%zu lines for %zu entries", begun, entries);
}

static void run(const uint8_t *data, size_t size)
{
    static char *environment[ENTRIES + 1];
    struct fuzz_input input = { data, data + size };
    size_t entries = 0;
    char path[64];
    int said = fuzz_file(path), real = dup(STDERR_FILENO);

    while (input.at < input.end && entries < ENTRIES) {
        struct fuzz_input line = fuzz_take_until(&input, '\n');
        environment[entries++] = strndup((const char *)line.at, (size_t)(line.end - line.at));
    }
    fake_set_environment(environment);
    fake_set_memory_bounds(CGROUP_LIMIT, SIZE_MAX, 0);
    FUZZ_CHECK(real >= 0 && dup2(said, STDERR_FILENO) == STDERR_FILENO, "dup: %s", strerror(errno));
    options_read();
    options_print();
    FUZZ_CHECK(dup2(real, STDERR_FILENO) == STDERR_FILENO, "dup2: %s", strerror(errno));
    check_rows(environment);
    check_said(said, entries);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in_child(run, data, size);
    return 0;
}
