/*
 * Fork: a process with a heap of MIB MiB forks CHILDREN children, one after another. A child replaces CHANGES of the
 * blocks that it inherited, frees some, checks some, and exits. Meanwhile the parent replaces as many of its own. The
 * figures cover fork itself and the faults that copy pages. The number of these pages depends on the allocator.
 *
 * CPU time and page faults are those of parent and children together. child_us and child_faults are for each child.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "children.h"

enum { SLOTS_MOST = 1 << 22, SIZE_LEAST = 16, SIZE_OCTAVES = 8, DROPPED = 64 };

static void *slots[SLOTS_MOST];
static uint32_t slots_used;

static void *block_new(uint64_t *state, uint64_t serial, size_t *sum)
{
    uint64_t random = bench_random(state);
    uint32_t from = (uint32_t)SIZE_LEAST << bench_scale((uint32_t)random, SIZE_OCTAVES);
    size_t size = from + bench_scale((uint32_t)(random >> 32), from);
    *sum += size;
    return bench_block_new(size, serial);
}

static void replace(uint64_t *state, uint64_t changes)
{
    size_t sum = 0;
    for (uint64_t i = 0; i < changes && slots_used > 0; i++) {
        uint32_t slot = bench_scale((uint32_t)(bench_random(state) >> 32), slots_used);
        bench_block_free(slots[slot]);
        slots[slot] = block_new(state, i, &sum);
    }
}

static _Noreturn void child_main(uint64_t state, uint64_t changes)
{
    replace(&state, changes);
    for (unsigned i = 0; i < DROPPED && i < slots_used; i++)
        bench_block_free(slots[i]);
    _exit(0);
}

/* Waits for the child. Returns its soft page faults. */
static uint64_t wait_for(pid_t child)
{
    struct rusage usage;
    int status;
    while (wait4(child, &status, 0, &usage) < 0)
        if (errno != EINTR)
            bench_fail("wait4: %s", strerror(errno));
    if (WIFSIGNALED(status))
        bench_fail("child ended by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        bench_fail("child ended with status %d", WEXITSTATUS(status));
    return (uint64_t)usage.ru_minflt;
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 4,
                "[MIB] [CHILDREN] [CHANGES] [SEED]\n"
                "  forks CHILDREN children from a heap of MIB MiB of blocks of 16-4095 B; each and its parent replace "
                "CHANGES\n  blocks (default 64 40 500 42)");
    size_t bytes = bench_argument(argc, argv, 1, "MIB", 64, 0, 2048) << 20;
    uint64_t children = bench_argument(argc, argv, 2, "CHILDREN", 40, 0, UINT64_C(1) << 32);
    uint64_t changes = bench_argument(argc, argv, 3, "CHANGES", 500, 0, UINT64_C(1) << 32);
    uint64_t seed = bench_argument(argc, argv, 4, "SEED", 42, 0, UINT64_MAX);
    uint64_t state = bench_seed(seed, 0), faults = 0;
    size_t held = 0;
    struct bench_run bench;

    while (held < bytes && slots_used < SLOTS_MOST) {
        slots[slots_used] = block_new(&state, slots_used, &held);
        slots_used++;
    }

    bench_begin(&bench, "fork");
    for (uint64_t i = 0; i < children; i++) {
        pid_t child = fork();
        if (child < 0)
            bench_fail("fork: %s", strerror(errno));
        if (child == 0)
            child_main(bench_seed(seed, i + 1), changes);
        replace(&state, changes);
        faults += wait_for(child);
    }
    uint64_t replaced = slots_used == 0 ? 0 : changes, dropped = slots_used < DROPPED ? slots_used : DROPPED;
    bench_end(&bench, children * (4 * replaced + dropped));
    children_add(&bench);

    for (uint32_t slot = 0; slot < slots_used; slot++)
        bench_block_free(slots[slot]);
    if (children > 0) {
        bench_extra(&bench, "child_us", (bench.ended_ns - bench.started_ns) / 1000 / children);
        bench_extra(&bench, "child_faults", faults / children);
    }
    bench_report(&bench);
    return 0;
}
