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

/* If the samples' mean distance is below this, libgcc's unwinder is loaded at the start. HAKMEM's own walk is as fast,
 * but reads /proc/self/maps once for each thread's stack. */
#define RARE_MEAN (64 * HAK_KIB)

static _Atomic bool in_child; /* Order: any; set before a thread is made */
static _Atomic bool looking;  /* a thread looks for an interpreter. Order: acquire and release, as a lock */

void unwinder_reset_in_child(void)
{
    atomic_store(&in_child, true);
    atomic_store(&looking, false);
}

/* Each start looks for an interpreter anew. */
static void look_for_python(void)
{
    if (atomic_exchange(&looking, true))
        return;
    python_prepare(atomic_load(&in_child));
    atomic_store(&looking, false);
}

/* PREPARED_INSIDE: only the unwinder that the program has was looked for. PREPARED: also one to load. */
enum { NOT_PREPARED, PREPARED_INSIDE, PREPARED };
static _Atomic uint32_t prepared; /* Order: any; chooses one thread. os/unwind.c publishes what it finds */

void unwinder_prepare_inside(void)
{
    uint32_t none = NOT_PREPARED;

    if (atomic_compare_exchange_strong(&prepared, &none, PREPARED_INSIDE))
        (void)os_unwind_prepare(unwind_kind(), atomic_load(&in_child) ? UNWIND_NO_LOCK : UNWIND_NO_LOAD);
    look_for_python();
}

void unwinder_prepare_at_start(uint64_t mean)
{
    enum unwind_kind kind = unwind_kind();

    if (mean >= RARE_MEAN && os_unwind_prepare(kind, UNWIND_NO_LOAD) &&
        (kind != UNWIND_AUTO || os_unwind_by_tables())) {
        atomic_store(&prepared, PREPARED_INSIDE);
        look_for_python();
    } else {
        unwinder_prepare();
    }
}

void unwinder_prepare(void)
{
    if (atomic_load(&in_child)) {
        unwinder_prepare_inside();
        return;
    }
    if (atomic_exchange(&prepared, PREPARED) != PREPARED && !os_unwind_prepare(unwind_kind(), UNWIND_MAY_LOAD))
        base_message("HAKMEM_HEAP_PROFILE_UNWIND=eh: libgcc_s.so.1 is missing; using frame pointers");
    look_for_python();
}
