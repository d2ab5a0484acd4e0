#include "usage_check.h"

#include "hakmem/hakmem.h"

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

/* Hardened blocks report the requested size, but whole blocks count as live. */
static bool live_is(size_t live)
{
    return hak_good_size(1) == 1 /* hardened */ ? live >= block_live_bytes() : live == block_live_bytes();
}

void usage_check(const char *when, size_t live_at_start)
{
    bool purging = support_has_thread("hakmem-purge");
    struct usage usage = usage_read(when);

    /* The purge thread may be moving blocks from a dead thread's cache to a slab. Otherwise none are on the way. */
    for (unsigned i = 0; purging && i < 2000 && !live_is(usage.live - live_at_start); i++) {
        support_sleep_ms(1);
        purging = support_has_thread("hakmem-purge");
        usage = usage_read(when);
    }
    CHECK(live_is(usage.live - live_at_start), "%s: live is %zu, the record has %zu in %zu blocks", when,
          usage.live - live_at_start, block_live_bytes(), block_live_count());
}
