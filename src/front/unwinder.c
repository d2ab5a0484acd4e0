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

static _Atomic bool prepared; /* Order: any; chooses one thread */

void unwinder_prepare(void)
{
    if (!atomic_exchange(&prepared, true) && !os_unwind_prepare(unwind_kind(), atomic_load(&in_child)))
        base_message("HAKMEM_HEAP_PROFILE_UNWIND=eh: no unwind tables can be read; using frame pointers");
    look_for_python();
}
