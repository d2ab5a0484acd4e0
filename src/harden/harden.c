#include "harden/harden.h"

#include "base/format.h"
#include "harden/bins.h"
#include "options/options.h"
#include "os/os.h"

HAK_DATA_HERE struct harden harden;
HAK_DATA_HERE _Atomic size_t harden_detours;

static void share_quarantine(unsigned class)
{
    size_t blocks = (size_t)hak_options.harden_quarantine / class_size(class);

    if (hak_options.harden_quarantine != 0)
        harden.keep_most[class] = (uint8_t)base_max(base_min(blocks, UINT8_MAX), 1);
}

/* Names what an option turned off, and what the system refused. */
static void say_what_is_off(bool sealed)
{
    const struct {
        const char *name;
        bool on;
    } mechanisms[] = {
        { "HAKMEM_HARDEN_CANARY", harden.canary },
        { "HAKMEM_HARDEN_ZERO", harden.zero },
        { "HAKMEM_HARDEN_QUARANTINE", hak_options.harden_quarantine != 0 },
        { "HAKMEM_HARDEN_RANDOM", harden.random },
        { "HAKMEM_HARDEN_NEIGHBOURS", harden.neighbours },
        { "HAKMEM_HARDEN_PATROL", harden.patrol != 0 },
        { "HAKMEM_HARDEN_NOTHING", harden.nothing },
        { "HAKMEM_HARDEN_PROTECT", harden.protect },
        { "HAKMEM_HARDEN_GUARDS", hak_options.harden_guards != 0 },
        { "HAKMEM_HARDEN_OPERATORS", harden.operators },
    };

    for (size_t i = 0; i < sizeof mechanisms / sizeof mechanisms[0]; i++)
        if (!mechanisms[i].on)
            base_message("hardened without %s: it is off, or another one that it needs", mechanisms[i].name);
    if (!sealed)
        base_message("hardened, but the settings stay writable: the system refused to make them read only");
}

HAK_AT_START void harden_begin(void)
{
    uint32_t state = HAK_SECURE || hak_options.hardened ? HARDEN_ON : HARDEN_OFF;
    bool sealed;

    if (state == HARDEN_ON) {
        harden.canary = hak_options.harden_canary != 0;
        harden.zero = hak_options.harden_zero != 0;
        harden.random = hak_options.harden_random != 0;
        harden.neighbours = harden.zero && hak_options.harden_neighbours != 0; /* V7: free blocks have no tail word */
        harden.patrol = harden.neighbours ? (uint8_t)hak_options.harden_patrol : 0;
        harden.nothing = hak_options.harden_nothing != 0;
        harden.protect = hak_options.harden_protect != 0;
        harden.protect_time = (uint8_t)hak_options.harden_protect_time;
        harden.operators = hak_options.harden_operators != 0;
        if (!harden.canary || !harden.zero || !harden.operators)
            harden_detour(true);
        harden.secret[0] = os_random();
        harden.secret[1] = os_random() | 1;
        for (unsigned class = 1; class < CLASS_COUNT; class++)
            share_quarantine(class);
    }
    atomic_store_explicit(&harden.state, state, memory_order_release);
    if (state != HARDEN_ON)
        return;
    sealed = os_page_size() <= HAK_SEALED_PAGE && os_seal(&harden, sizeof harden) && options_seal(); /* V3 */
    say_what_is_off(sealed);
}

bool harden_close(void *address, size_t size)
{
    static _Atomic bool said; /* Order: relaxed; one thread says it */

    if (HAK_LIKELY(os_protect(address, size, false)))
        return true;
    if (!atomic_exchange_explicit(&said, true, memory_order_relaxed))
        base_message("the kernel refused to make %zu bytes at %p inaccessible: freed blocks and the ends of huge ones "
                     "stay readable and writable from here on; raise vm.max_map_count, or let the sandbox allow "
                     "mprotect (docs/hardening.md)",
                     size, address);
    return false;
}
