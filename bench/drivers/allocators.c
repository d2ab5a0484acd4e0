/* bench_allocators: runs one of several scenarios, chosen by name, cold: nothing runs before the clock starts. The
 * files scenario_*.c have the scenarios. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <unistd.h>

#include "scenario.h"

static const struct scenario *const scenarios[] = {
    &scenario_json, &scenario_mir, &scenario_mixed, &scenario_string_builder,
    &scenario_json_trees, &scenario_mir_arenas, &scenario_mixed_octaves, &scenario_string_parts,
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

static void print_usage(int file)
{
    dprintf(file, "usage: %s --scenario NAME [--iterations ITERATIONS] [--seed SEED]\n", program_invocation_short_name);
    for (unsigned i = 0; i < SCENARIOS; i++)
        dprintf(file, "  %-15s  %s (default %llu)\n", scenarios[i]->name, scenarios[i]->about,
                (unsigned long long)scenarios[i]->iterations);
    dprintf(file, "  SEED is 42 by default; the documents' scenarios have nothing random\n");
}

static const struct scenario *find_scenario(const char *name)
{
    for (unsigned i = 0; i < SCENARIOS; i++)
        if (strcmp(scenarios[i]->name, name) == 0)
            return scenarios[i];
    dprintf(STDERR_FILENO, "%s: --scenario: there is no '%s'\n", program_invocation_short_name, name);
    print_usage(STDERR_FILENO);
    exit(2);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "scenario", required_argument, NULL, 's' },
        { "iterations", required_argument, NULL, 'n' },
        { "seed", required_argument, NULL, 'r' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    const struct scenario *scenario = NULL;
    bool given = false;
    uint64_t iterations = 0, seed = 42;
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 's':
            scenario = find_scenario(optarg);
            break;
        case 'n':
            iterations = bench_argument(1, &optarg, 0, "--iterations", 0, 0, UINT64_MAX);
            given = true;
            break;
        case 'r':
            seed = bench_argument(1, &optarg, 0, "--seed", 0, 0, UINT64_MAX);
            break;
        case 'h':
            print_usage(STDOUT_FILENO);
            return 0;
        default:
            print_usage(STDERR_FILENO);
            return 2;
        }
    }
    if (scenario == NULL || optind < argc) {
        if (optind < argc)
            dprintf(STDERR_FILENO, "%s: what is '%s'?\n", program_invocation_short_name, argv[optind]);
        else
            dprintf(STDERR_FILENO, "%s: --scenario is missing\n", program_invocation_short_name);
        print_usage(STDERR_FILENO);
        return 2;
    }

    static struct pool_figures before, after;
    struct scenario_run run = { .random = bench_seed(seed, 0) };
    struct bench_run bench;
    if (!given)
        iterations = scenario->iterations;
    bool counted = scenario->allocated != NULL && pool_figures_read(&before);
    bench_begin(&bench, scenario->name);
    scenario->iterate(&run, iterations);
    bench_end(&bench, run.operations);
    if (counted)
        pool_figures_read(&after);
    /* The state of the random numbers, which is the same after the same work. */
    bench_extra(&bench, "checksum", run.random ^ run.serial);
    scenario->finish(&run);
    if (counted) {
        struct pool_allocated rows[SCENARIO_SIZES_MOST];
        unsigned sizes = scenario->allocated(iterations, rows);
        pool_report_classes(&bench, &before, &after, rows, sizes);
    }
    bench_report(&bench);
    return 0;
}
