/* Protects the resident memory of programs with known needs: each case's figures stay below its bounds.
 *
 * bounds CASE [--seed N]
 *
 * Prints the case's figures. Exits with 1 when a figure is above its bound.
 */
#define _GNU_SOURCE
#include "bounds.h"

#include <fcntl.h>
#include <hakmem/hakmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const option_names[] = { "seed", NULL };

static const struct {
    const char *name;
    void (*run)(void);
    const char *setting; /* NAME=value for this case's process, or NULL */
} cases[] = {
    { "only_frees_window", case_only_frees_window, NULL },
    { "only_frees_window_shifting", case_only_frees_window_shifting, "HAKMEM_THP=never" },
    { "only_frees_rounds", case_only_frees_rounds, NULL },
    { "only_frees_rounds_shifting", case_only_frees_rounds_shifting, "HAKMEM_THP=never" },
    { "threads_die", case_threads_die, NULL },
    { "threads_die_remote", case_threads_die_remote, NULL },
    { "gigabyte", case_gigabyte, NULL },
    { "spans", case_spans, NULL },
    { "huge", case_huge, NULL },
    { "sleepers", case_sleepers, NULL },
    { "sleepers_remote", case_sleepers_remote, NULL },
    { "sleepers_idle", case_sleepers_idle, NULL },
    { "quiet", case_quiet, NULL },
    { "purge_thread", case_purge_thread, "HAKMEM_PURGE_THREAD=always" },
    { "heap_destroy", case_heap_destroy, NULL },
    { "shifting_sizes", case_shifting_sizes, NULL },
    { "shifting_survivors", case_shifting_survivors, NULL },
    { "change_sizes", case_change_sizes, NULL },
    { "change_sizes_hard", case_change_sizes_limited, "HAKMEM_MEMORY_LIMIT=80M" },
    { "change_sizes_soft", case_change_sizes_limited, "HAKMEM_MEMORY_LIMIT_SOFT=80M" },
    { "change_half", case_change_half, NULL },
    { "given_back", case_given_back, NULL },
    { "sites", case_sites, NULL },
    { "sites_threads", case_sites_threads, NULL },
    { "sites_fork", case_sites_fork, NULL },
    { "sites_turn", case_sites_turn, NULL },
    { "scopes_tenants", case_scopes_tenants, NULL },
    { "scopes_resident", case_scopes_resident, "HAKMEM_THP=never" }, /* no page is resident that nobody wrote to */
    { "scopes_many", case_scopes_many, NULL },
    { "scopes_free", case_scopes_free, NULL },
};

static unsigned figures;
static unsigned failures;

/* ---- Figures ---- */

static double mib(size_t bytes)
{
    return (double)bytes / (double)MIB;
}

void bounds_figure(const char *what, size_t bytes, size_t bound)
{
    bool holds = bytes <= bound;

    figures++;
    failures += !holds;
    printf("  %-66s %9.2f MiB, bound %9.2f MiB%s\n", what, mib(bytes), mib(bound), holds ? "" : "  ABOVE");
    fflush(stdout);
}

void bounds_note(const char *what, size_t bytes)
{
    printf("  %-66s %9.2f MiB\n", what, mib(bytes));
    fflush(stdout);
}

size_t bounds_above(size_t a, size_t b)
{
    return a > b ? a - b : 0;
}

static void write_clear_refs(void)
{
    int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

    CHECK(file >= 0 && write(file, "5", 1) == 1, "reset of the peak by /proc/self/clear_refs");
    close(file);
}

void bounds_peak_reset(void)
{
    write_clear_refs();
}

size_t bounds_peak(void)
{
    char text[8192];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t length;
    const char *line;

    CHECK(file >= 0, "open /proc/self/status");
    length = read(file, text, sizeof text - 1);
    CHECK(length > 0, "read /proc/self/status");
    close(file);
    text[length] = 0;
    line = strstr(text, "VmHWM:");
    CHECK(line != NULL, "no VmHWM");
    return (size_t)strtoull(line + 6, NULL, 10) * KIB;
}

size_t bounds_start(void)
{
    bounds_handful();
    hak_collect(true);
    support_rss();
    return support_rss();
}

/* ---- Work ---- */

void bounds_idle(void)
{
    support_sleep_ms(2 * PURGE_DELAY_MS);
}

void bounds_handful(void)
{
    static const size_t sizes[] = { 24, 200, 1500, 9000, 30000, 60000, 600000 };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        hak_free(hak_malloc(sizes[i]));
}

void *bounds_malloc(void *unused, size_t size)
{
    (void)unused;
    return hak_malloc(size);
}

void chains_fill(struct chains *chains, struct chance *chance, size_t total, size_t low, size_t high,
                 bounds_allocate allocate, void *context)
{
    while (chains->usable < total) {
        size_t size = chance_log(chance, low < sizeof(void *) ? sizeof(void *) : low, high);
        void **block = allocate(context, size);
        void **head = &chains->head[chance_below(chance, CHAINS)];

        CHECK(block != NULL, "no block of %zu bytes", size);
        memset(block, 0x5a, size);
        *block = *head;
        *head = block;
        chains->usable += hak_usable_size(block);
        chains->asked += size;
    }
}

static void chain_free(struct chains *chains, size_t chain)
{
    while (chains->head[chain] != NULL) {
        void **block = chains->head[chain];
        chains->head[chain] = *block;
        hak_free(block);
    }
}

void chains_free_but_one(struct chains *chains)
{
    for (size_t i = 1; i < CHAINS; i++)
        chain_free(chains, i);
}

void chains_free(struct chains *chains)
{
    for (size_t i = 0; i < CHAINS; i++)
        chain_free(chains, i);
    chains->usable = 0;
    chains->asked = 0;
}

int main(int argc, char **argv)
{
    support_options_known(argc, argv, option_names);
    support_seed = support_option(argc, argv, "seed", 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(argv[1], cases[i].name) != 0)
            continue;
        /* The allocator read its settings before main, so the process starts again with the case's own. */
        if (cases[i].setting != NULL) {
            const char *value = strchr(cases[i].setting, '=') + 1;
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)(value - 1 - cases[i].setting), cases[i].setting);
            if (getenv(name) == NULL || strcmp(getenv(name), value) != 0) {
                CHECK(setenv(name, value, 1) == 0, "setenv");
                execv("/proc/self/exe", argv);
                CHECK(false, "exec of this program again");
            }
        }
        printf("%s, seed %llu\n", cases[i].name, (unsigned long long)support_seed);
        cases[i].run();
        CHECK(figures > 0, "the case has no figure");
        return failures == 0 ? 0 : 1;
    }
    CHECK(false, "no such case: %s", argc > 1 ? argv[1] : "none given");
    return 2;
}
