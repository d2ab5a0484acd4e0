/* The profile in pprof's format (github.com/google/pprof, proto/profile.proto). */
#ifndef HAK_PROFILE_PPROF_H
#define HAK_PROFILE_PPROF_H

#include "profile/table.h"

/* A site's sums at one moment. */
struct site_view {
    const struct site *site;
    struct site_sums in_use;
    struct site_sums lifetimes[LIFETIME_BUCKETS];
    uint64_t own_freed[OWN_BUCKETS];
};

/* The sums of one of a site's sizes. */
struct size_view {
    const struct site_size *size;
    struct site_sums allocated, in_use, peak;
};

/* All sums of one moment, in memory from the system. `sites` is NULL: there are none, or (count not 0) no memory. */
struct profile_view {
    struct site_view *sites;
    struct size_view *sizes;
    size_t count, size_count;
    struct table_peak peak;
};
HAK_HIDDEN struct profile_view pprof_view(void);
HAK_HIDDEN void pprof_view_end(const struct profile_view *view);

/* Bytes by samples; with 95 % confidence the truth is no further away than `error`. */
struct estimate {
    uint64_t bytes, error;
};
/* Of what is in use, or of all that was allocated. */
HAK_HIDDEN struct estimate pprof_estimate(const struct profile_view *view, bool allocated);

/* Writes the profile to an open file. process: the calling one's number. Returns 0 or an errno. Under
 * profile_control. */
HAK_HIDDEN int pprof_write(int file, uint64_t started_ns, uint32_t process);

#endif
