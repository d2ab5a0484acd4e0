#include "front/within.h"

/* A signal handler may run between any two statements here. It leaves what it enters, and then this is as before. */
static _Thread_local struct {
    struct scope *entered[WITHIN_MOST];
    unsigned depth;
} within __attribute__((tls_model("initial-exec")));

static void set_innermost(void) { cache_set_scope(within.depth ? within.entered[within.depth - 1] : NULL); }

bool within_enter(struct scope *scope)
{
    if (within.depth == WITHIN_MOST)
        return false;
    if (scope)
        atomic_fetch_add(&scope->threads, 1);
    within.entered[within.depth] = scope;
    atomic_signal_fence(memory_order_seq_cst); /* Release: to a signal handler */
    within.depth++;
    set_innermost();
    return true;
}

static void leave_innermost(void)
{
    struct scope *scope = within.entered[--within.depth];

    set_innermost();
    if (scope)
        atomic_fetch_sub(&scope->threads, 1);
}

bool within_leave(struct scope *scope)
{
    unsigned depth = within.depth;

    while (depth > 0 && within.entered[depth - 1] != scope)
        depth--;
    if (depth == 0)
        return false;
    while (within.depth >= depth)
        leave_innermost();
    return true;
}

void within_end(void)
{
    while (within.depth)
        leave_innermost();
}

void within_reset_in_child(void)
{
    scope_reset_in_child();
    for (unsigned i = 0; i < within.depth; i++)
        if (within.entered[i])
            atomic_fetch_add(&within.entered[i]->threads, 1);
}
