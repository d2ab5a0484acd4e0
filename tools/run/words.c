#include "words.h"

#include <getopt.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(const char *format, va_list values)
{
    fputs("hakmem: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
}

void words_say(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(format, values);
    va_end(values);
}

void words_refuse(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(format, values);
    va_end(values);
    fputs("Try 'hakmem help'.\n", stderr);
    exit(WRONG);
}

void words_fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(format, values);
    va_end(values);
    exit(FAILED);
}

enum { STATS, PROFILE, SECURE, HEAP_PROFILE, BUDGET, MARKDOWN, SET };
static const struct option OPTIONS[] = {
    [STATS] = {"stats", optional_argument, NULL, STATS},
    [PROFILE] = {"profile", no_argument, NULL, PROFILE},
    [SECURE] = {"secure", no_argument, NULL, SECURE},
    [HEAP_PROFILE] = {"heap-profile", required_argument, NULL, HEAP_PROFILE},
    [BUDGET] = {"budget", required_argument, NULL, BUDGET},
    [MARKDOWN] = {"markdown", required_argument, NULL, MARKDOWN},
    [SET] = {"set", required_argument, NULL, SET},
    {NULL, 0, NULL, 0},
};

/* From how many letters on the beginning of an option stands for it. */
enum { BEGINNING = 3 };

static const char *stats_value(const char *format)
{
    if (!format || strcmp(format, "text") == 0)
        return "1";
    if (strcmp(format, "json") != 0)
        words_refuse("--stats is text or json, not '%s'", format);
    return "json";
}

void words_check_setting(const char *option, const char *value)
{
    if (!strchr(value, '='))
        words_refuse("%s %s: NAME=VALUE is wanted", option, value);
}

/* Takes one option. */
static void take(struct words *words, int option, const char *value, size_t *settings)
{
    switch (option) {
    case STATS:
        words->stats = stats_value(value);
        break;
    case PROFILE:
        words->profile = true;
        break;
    case SECURE:
        words->secure = true;
        break;
    case HEAP_PROFILE:
        words->heap_profile = value;
        break;
    case BUDGET:
        words->budget = value;
        break;
    case MARKDOWN:
        words->markdown = value;
        break;
    default:
        words_check_setting("--set", value);
        words->settings[(*settings)++] = value;
    }
}

size_t words_distance(const char *one, size_t length, const char *other, size_t most)
{
    size_t row[WORD_BYTES];
    size_t width = strlen(other);
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 0; i < length; i++) {
        size_t corner = row[0]++;
        for (size_t j = 0; j < width; j++) {
            size_t change = corner + (one[i] != other[j]);
            corner = row[j + 1];
            row[j + 1] = change;
            if (corner + 1 < row[j + 1])
                row[j + 1] = corner + 1;
            if (row[j] + 1 < row[j + 1])
                row[j + 1] = row[j] + 1;
        }
    }
    return row[width] < most ? row[width] : most;
}

/* Refuses an unknown option, and names the one that is spelled alike. */
static _Noreturn void refuse_option(const char *word)
{
    size_t length = strcspn(word, "="), least = ALIKE_FAR;
    const char *alike = NULL;
    for (const struct option *option = OPTIONS; option->name && strncmp(word, "--", 2) == 0; option++) {
        size_t far = words_distance(word + 2, length - 2, option->name, ALIKE_FAR);
        if (length - 2 >= BEGINNING && strncmp(word + 2, option->name, length - 2) == 0)
            far = 1;
        if (far < least) {
            least = far;
            alike = option->name;
        }
    }
    if (alike)
        words_refuse("unknown option '%.*s' of run; did you mean --%s?", (int)length, word, alike);
    words_refuse("unknown option '%s' of run", word);
}

struct words words_read(int count, char **list)
{
    struct words words = {.settings = calloc((size_t)count + 1, sizeof *words.settings)};
    size_t settings = 0;
    if (!words.settings)
        words_fail("there is no memory for %d words", count);
    opterr = 0;
    for (;;) {
        const char *word = optind < count ? list[optind] : "";
        /* "+": the first word that is no option ends them. ":": a missing value is told apart. */
        int option = getopt_long(count, list, "+:", OPTIONS, NULL);
        if (option < 0)
            break;
        /* getopt_long would take a name's beginning for the name. */
        if (option == '?' || (option != ':' && strncmp(word + 2, OPTIONS[option].name,
                                                       strlen(OPTIONS[option].name)) != 0))
            refuse_option(word);
        if (option == ':' || (OPTIONS[option].has_arg != no_argument && optarg && !*optarg))
            words_refuse("%.*s needs a value", (int)strcspn(word, "="), word);
        take(&words, option, optarg, &settings);
    }
    if (optind >= count)
        words_refuse("run needs a program");
    if (words.profile && words.secure)
        words_refuse("--profile and --secure exclude each other: the hardened library has no cycle profile");
    if (words.markdown && !words.budget)
        words_refuse("--markdown is for --budget");
    words.program = list + optind;
    return words;
}
