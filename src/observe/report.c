/* Prints what the options ask for at exit. report_text.c makes the text. */
#include "observe/report.h"

#include <errno.h>

#include "base/format.h"
#include "base/stderr.h"
#include "observe/cycle_report.h"
#include "observe/export.h"
#include "observe/faults.h"
#include "observe/report_tables.h"
#include "options/options.h"
#include "os/cycles.h"
#include "os/file.h"

/* Prints a report, and notes the page faults so far: the next report tells those since then. A shot is too large for a
 * stack, so there may be no memory for one. */
static int print_report(struct output *output, void (*print)(struct output *output, struct stats_shot *shot))
{
    struct stats_shot *shot = stats_take();

    if (shot)
        print(output, shot);
    else
        output_fail(output, ENOMEM);
    stats_give(shot);
    faults_note_report();
    return output_end(output);
}

int observe_print(enum hak_stats_format format, hak_stats_write write, void *argument)
{
    struct output output;

    if (format < HAK_STATS_TEXT || format > HAK_STATS_PROMETHEUS)
        return EINVAL;
    output_begin(&output, write, argument, "");
    return print_report(&output, format == HAK_STATS_TEXT   ? report_text
                                 : format == HAK_STATS_JSON ? export_json
                                                            : export_prometheus);
}

void observe_report(void)
{
    struct output output;

    output_begin(&output, NULL, NULL, "hakmem: ");
    (void)print_report(&output, report_text);
}

/* ---- The process's start and end ---- */

HAK_AT_START static bool wants_tables(void)
{
    return hak_options.front_stats || hak_options.warm_pool_stats || hak_options.ss_lru_debug ||
           hak_options.ss_prewarm_debug || hak_options.debug_counters;
}

/* Whether anything may be printed at exit, also by the profile and about files that cannot be written. */
static bool speaks_at_exit(void)
{
    return hak_options.show_stats || hak_options.tiny_profile || wants_tables() || hak_options.leak_report ||
           hak_options.heap_profile;
}

HAK_AT_START void observe_start(void)
{
    if (speaks_at_exit())
        base_stderr_keep();
    if (hak_options.show_stats)
        faults_begin();
}

static void print_to_file(enum hak_stats_format format, const char *pattern)
{
    char path[4096];
    int file, error, late;

    if (!os_file_path(path, sizeof path, pattern, 0, NULL)) {
        base_message("HAKMEM_STATS_FILE: with %s replaced, the path is longer than %zu characters", "%p",
                     sizeof path - 1);
        return;
    }
    file = os_file_create(path);
    if (file < 0) {
        base_message("HAKMEM_STATS_FILE: cannot make %.900s: %s (errno %d)", path, os_error_text(-file), -file);
        return;
    }
    error = observe_print(format, output_to_file, &file);
    late = os_file_close(file);
    if (error || late)
        base_message("HAKMEM_STATS_FILE: cannot write %.900s: %s (errno %d)", path, os_error_text(error ? error : late),
                     error ? error : late);
}

/* The tables that have options of their own, of one moment. */
static void print_tables(struct output *output, const struct stats_shot *shot)
{
    if (hak_options.front_stats)
        report_front_table(output, shot);
    if (hak_options.warm_pool_stats)
        report_warm_table(output, shot);
    if (hak_options.ss_lru_debug || hak_options.ss_prewarm_debug)
        report_lru_lines(output, &shot->totals);
    if (hak_options.debug_counters)
        report_debug_table(output);
}

static HAK_NOINLINE void report_at_exit(void)
{
    enum hak_stats_format format = (enum hak_stats_format)hak_options.show_stats;
    const char *pattern = option_path(hak_options.stats_file);
    struct stats_shot *shot;
    struct output output;

    if (format && pattern)
        print_to_file(format, pattern);
    else if (format == HAK_STATS_TEXT)
        observe_report();
    else if (format)
        observe_print(format, NULL, NULL);
    if (HAK_CYCLES && hak_options.tiny_profile)
        observe_cycles((enum option_format)hak_options.tiny_profile);
    else if (hak_options.tiny_profile)
        base_message("HAKMEM_TINY_PROFILE: this build carries no cycle profile; the flavor cycles does, such as "
                     "make larson_hakmem BUILD_FLAVOR=cycles, or hakmem run --profile");
    shot = wants_tables() ? stats_take() : NULL;
    if (shot == NULL)
        return;
    output_begin(&output, NULL, NULL, "hakmem: ");
    print_tables(&output, shot);
    stats_give(shot);
    output_end(&output);
}

HAK_AT_START void observe_exit_report(void)
{
    if (hak_options.show_stats || hak_options.tiny_profile || wants_tables())
        report_at_exit();
}

_Static_assert((int)HAK_STATS_TEXT == (int)OPTION_TEXT && (int)HAK_STATS_JSON == (int)OPTION_JSON &&
                   (int)HAK_STATS_PROMETHEUS == (int)OPTION_PROMETHEUS,
               "the option's values are the public formats");
