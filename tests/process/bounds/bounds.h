/*
 * Bounds on the memory of a process, measured on the real system with the default settings. Each case has its own
 * process. bounds.c starts it and judges its figures.
 */
#ifndef TESTS_BOUNDS_BOUNDS_H
#define TESTS_BOUNDS_BOUNDS_H

#include "support.h"

/* The defaults that the bounds refer to (src/options/table.h). */
enum { PURGE_DELAY_MS = 500 };
#define CACHE_BYTES MIB

/* ---- Figures ---- */

/* Resident bytes now, after a warm-up of the allocator and of the reading, and a purge of everything. */
size_t bounds_start(void);
/* Prints the figure. A figure above the bound fails the case. */
void bounds_figure(const char *what, size_t bytes, size_t bound);
/* Prints a figure that has no bound. */
void bounds_note(const char *what, size_t bytes);
/* Highest resident bytes since bounds_peak_reset. */
size_t bounds_peak(void);
void bounds_peak_reset(void);

/* a - b, or 0. */
size_t bounds_above(size_t a, size_t b);

/* ---- Work ---- */

/* Idles for twice the purge delay. */
void bounds_idle(void);
/* Allocates and frees one block of each of some sizes. Some sizes miss the thread's cache. */
void bounds_handful(void);

/* Chains of blocks: each block's first word points to the next, so the test needs no memory of its own. A block goes to
 * a random chain, so freeing chain by chain frees in scattered order. */
enum { CHAINS = 64 };
struct chains {
    void *head[CHAINS];
    size_t usable; /* bytes in all blocks */
    size_t asked;
};
typedef void *(*bounds_allocate)(void *context, size_t size);
void *bounds_malloc(void *unused, size_t size);
/* Allocates blocks of log-uniform sizes, written in full, until the chains hold `total` usable bytes. */
void chains_fill(struct chains *chains, struct chance *chance, size_t total, size_t low, size_t high,
                 bounds_allocate allocate, void *context);
void chains_free(struct chains *chains);
/* Frees all chains but one. */
void chains_free_but_one(struct chains *chains);

/* ---- Cases ---- */

void case_only_frees_window(void); /* bounds_threads.c */
void case_only_frees_window_shifting(void);
void case_only_frees_rounds(void);
void case_only_frees_rounds_shifting(void);
void case_threads_die(void);
void case_threads_die_remote(void);
void case_sleepers(void);
void case_sleepers_remote(void);
void case_sleepers_idle(void);
void case_quiet(void);
void case_purge_thread(void);
void case_gigabyte(void); /* bounds_sizes.c */
void case_spans(void);
void case_huge(void);
void case_heap_destroy(void);
void case_shifting_sizes(void);
void case_shifting_survivors(void);
void case_change_sizes(void); /* bounds_change.c */
void case_change_sizes_limited(void);
void case_change_half(void);
void case_given_back(void); /* bounds_huge_pages.c */
void case_sites(void); /* bounds_sites.c */
void case_sites_threads(void);
void case_sites_fork(void);
void case_sites_turn(void);
void case_scopes_tenants(void); /* bounds_scopes.c */
void case_scopes_resident(void);
void case_scopes_many(void);
void case_scopes_free(void);

#endif
