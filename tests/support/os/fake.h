/*
 * Controls fake.c, the os.h of tests, and reads its state. Memory is real, so that tests can use it, but every call is
 * counted and can be made to fail. A call that breaks os.h's contract (purge or unmap of memory that is not mapped, a
 * size of 0 or of half a page) aborts with a line that says which. Time stands still until it is advanced.
 *
 * Every function may be called from any thread. fake_reset and the setters belong before the code under test runs.
 */
#ifndef HAK_OS_FAKE_H
#define HAK_OS_FAKE_H

#include "os/os.h"

enum fake_kind {
    FAKE_MAP,
    FAKE_MAP_AT,
    FAKE_HOLE, /* os_find_hole */
    FAKE_REMAP,
    FAKE_PURGE, /* os_purge, os_decommit */
    FAKE_POPULATE,
    FAKE_THREAD, /* os_thread_start */
    FAKE_GUARD,   /* os_guard */
    FAKE_PROTECT, /* os_protect */
    FAKE_FALLIBLE_COUNT,
    FAKE_UNMAP = FAKE_FALLIBLE_COUNT, /* from here on kinds that cannot fail */
    FAKE_ADVISE_HUGE,
    FAKE_ADVISE_SMALL, /* of those, the calls that refuse huge pages */
    FAKE_NAME,
    FAKE_KIND_COUNT,
    FAKE_ANY = FAKE_KIND_COUNT /* every kind that can fail */
};

/* Unmaps all that is mapped, forgets counts, failures, limits and environment, and sets time back to its start. */
HAK_HIDDEN void fake_reset(void);

/* ---- Counting and failing ---- */

/* Calls of one kind since fake_reset, the failed ones too; with FAKE_ANY of all kinds that can fail. */
HAK_HIDDEN uint64_t fake_calls(enum fake_kind kind);

/* Call number n of the kind (or of FAKE_ANY), counted from 1 and from now, fails; or it and all after it. One rule is
 * in force at a time. */
HAK_HIDDEN void fake_fail_nth(enum fake_kind kind, uint64_t n);
HAK_HIDDEN void fake_fail_from(enum fake_kind kind, uint64_t n);
HAK_HIDDEN void fake_fail_nothing(void);

/* Calls that failed by such a rule since fake_reset. */
HAK_HIDDEN uint64_t fake_failures(void);

/* ---- Memory ---- */

HAK_HIDDEN size_t fake_bytes_mapped(void);   /* by os_map and os_map_at */
HAK_HIDDEN size_t fake_bytes_resident(void); /* of those: touched and not purged since (asks mincore) */

/* Whether all of [address, address + size) is mapped. */
HAK_HIDDEN bool fake_is_mapped(const void *address, size_t size);

/* ---- Settings ---- */

/* A multiple of the machine's own page size. */
HAK_HIDDEN void fake_set_page_size(size_t size);
/* Calls that map or find a hole fail above it. */
HAK_HIDDEN void fake_set_address_space_limit(size_t size);
HAK_HIDDEN void fake_set_physical_memory(size_t size);
HAK_HIDDEN void fake_set_memory_locked(bool locked);
/* What os_memory_bounds tells: no limit and no stall at first. */
HAK_HIDDEN void fake_set_memory_bounds(size_t max, size_t high, unsigned stall_percent);
/* Calls of os_memory_bounds since fake_reset. */
HAK_HIDDEN uint64_t fake_memory_bounds_read(void);
HAK_HIDDEN void fake_set_cpu_count(unsigned count);
/* NULL-terminated, "NAME=value"; kept by reference. */
HAK_HIDDEN void fake_set_environment(char *const *environment);

/* Moves both clocks. */
HAK_HIDDEN void fake_advance(uint64_t nanoseconds);
/* Each os_now moves both clocks by so much, as if the code between two calls took that long. */
HAK_HIDDEN void fake_advance_reading(uint64_t nanoseconds);

#endif
