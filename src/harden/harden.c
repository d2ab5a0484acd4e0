#include "harden/harden.h"

#include "base/format.h"
#include "options/options.h"
#include "os/os.h"

HAK_DATA_HERE struct harden harden;

HAK_AT_START void harden_begin(void)
{
    harden.secret[0] = os_random();
    harden.secret[1] = os_random() | 1;
    if (os_page_size() > HAK_PAGE_MOST || !os_seal(&harden, sizeof harden) || !options_seal()) /* V3 */
        base_message("hardened, but the settings stay writable: the system refused to make them read only");
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
