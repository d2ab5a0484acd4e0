#include "front/unwinder.h"

#include <string.h>

#include "base/format.h"
#include "options/options.h"
#include "os/unwind.h"
#include "profile/python.h"

static enum unwind_kind unwind_kind(void)
{
    static const char *const kinds[] = { [UNWIND_AUTO] = "auto", [UNWIND_TABLES] = "eh", [UNWIND_POINTERS] = "fp" };
    static _Atomic bool said; /* Order: any; one thread says it */
    const char *text = option_path(hak_options.heap_profile_unwind);

    for (unsigned kind = 0; text && kind < sizeof kinds / sizeof kinds[0]; kind++)
        if (strcmp(text, kinds[kind]) == 0)
            return (enum unwind_kind)kind;
    if (text && !atomic_exchange(&said, true))
        base_message("HAKMEM_HEAP_PROFILE_UNWIND=%s is not auto, eh or fp; using auto", text);
    return UNWIND_AUTO;
}

/* If samples are nearer than this, libgcc's unwinder is loaded at the start. HAKMEM's own walk finds each as fast, but
 * reads /proc/self/maps once for each thread's stack. */
#define RARE_MEAN (64 * HAK_KIB)

static _Atomic bool in_child; /* Order: any; set before a thread is made */

void unwinder_reset_in_child(void) { atomic_store(&in_child, true); }

/* Each start looks for an interpreter anew, but not in a child: a gone thread may hold the linker's lock. */
static void look_for_python(void)
{
    static _Atomic bool looking; /* Order: acquire and release, as a lock */

    if (atomic_load(&in_child) || atomic_exchange(&looking, true))
        return;
    python_prepare();
    atomic_store(&looking, false);
}

/* What was prepared: what the program has, or also what could be loaded. */
enum { NOT_PREPARED, PREPARED_INSIDE, PREPARED };
static _Atomic uint32_t prepared; /* Order: any; chooses one thread. os/unwind.c publishes what it finds */

void unwinder_prepare_inside(void)
{
    uint32_t none = NOT_PREPARED;

    if (atomic_compare_exchange_strong(&prepared, &none, PREPARED_INSIDE))
        (void)os_unwind_prepare(unwind_kind(), false);
    look_for_python();
}

void unwinder_prepare_at_start(uint64_t mean)
{
    enum unwind_kind kind = unwind_kind();

    if (mean >= RARE_MEAN && os_unwind_prepare(kind, false) && (kind != UNWIND_AUTO || os_unwind_by_tables())) {
        atomic_store(&prepared, PREPARED_INSIDE);
        look_for_python();
    } else {
        unwinder_prepare();
    }
}

void unwinder_prepare(void)
{
    if (atomic_exchange(&prepared, PREPARED) != PREPARED && !os_unwind_prepare(unwind_kind(), true))
        base_message("HAKMEM_HEAP_PROFILE_UNWIND=eh: libgcc_s.so.1 is not to be had; using frame pointers");
    look_for_python();
}
