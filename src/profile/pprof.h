/* The profile in pprof's format (github.com/google/pprof, proto/profile.proto). */
#ifndef HAK_PROFILE_PPROF_H
#define HAK_PROFILE_PPROF_H

#include "profile/table.h"

/* A site's sums at one moment. */
struct site_view {
    const struct site *site;
    struct site_sums allocated, in_use, peak;
    struct site_sums lifetimes[LIFETIME_BUCKETS];
};

/* Copies all sites' sums of one moment into memory from the system. NULL: no sites, or (*count not 0) no memory. */
HAK_HIDDEN struct site_view *pprof_view(size_t *count);
HAK_HIDDEN void pprof_view_end(struct site_view *views, size_t count);

/* A sum of weights as a number of blocks or bytes. */
HAK_INLINE uint64_t weight_round(uint64_t sum) { return (sum + WEIGHT_ONE / 2) / WEIGHT_ONE; }

/* Writes the profile to an open file. process: the calling one's number. Returns 0 or an errno. Under
 * profile_control. */
HAK_HIDDEN int pprof_write(int file, uint64_t started_ns, uint32_t process);

#endif
