#include "usage_check.h"

#include "block.h"

struct usage usage_read(const char *when)
{
    struct usage usage;

    observe_usage(&usage);
    CHECK(usage.mapped == usage.live + usage.cached + usage.free_in_slab + usage.retained + usage.metadata,
          "%s: U1: mapped %zu is not live %zu + cached %zu + free in slab %zu + retained %zu + metadata %zu", when,
          usage.mapped, usage.live, usage.cached, usage.free_in_slab, usage.retained, usage.metadata);
    CHECK(usage.purged <= usage.mapped, "%s: purged %zu of %zu mapped", when, usage.purged, usage.mapped);
    CHECK(usage.huge_live <= usage.live, "%s: huge %zu of %zu live", when, usage.huge_live, usage.live);
    return usage;
}

void usage_check(const char *when, size_t live_at_start)
{
    bool purging = support_has_thread("hakmem-purge");
    struct usage usage = usage_read(when);

    /* The purge thread may have blocks on their way from a dead thread's cache to another heap's slab. Without it nothing may be. */
    for (unsigned i = 0; purging && i < 2000 && usage.live - live_at_start != block_live_bytes(); i++) {
        support_sleep_ms(1);
        purging = support_has_thread("hakmem-purge");
        usage = usage_read(when);
    }
    CHECK(usage.live - live_at_start == block_live_bytes(), "%s: live is %zu, the record has %zu in %zu blocks", when,
          usage.live - live_at_start, block_live_bytes(), block_live_count());
}
