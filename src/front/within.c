#include "front/within.h"

#include <errno.h>

#include "pool/registry.h"
#include "superslab/metadata.h"

/* A thread's record, from its first entry to its end. It is no thread-local storage, which is short for a library that
 * dlopen loads. A signal handler may run between any two statements here. It leaves what it enters, and then this is
 * as before. */
struct within {
    struct scope *entered[WITHIN_MOST];
    unsigned depth;
    struct within *next_unused;
};
static _Thread_local struct within *within __attribute__((tls_model("initial-exec")));
static struct within *unused; /* of threads that ended; under registry.lock */

static struct within *take_record(void)
{
    struct within *record;

    lock_acquire(&registry.lock);
    record = unused;
    if (record)
        unused = record->next_unused;
    else
        record = metadata_allocate(sizeof *record, _Alignof(struct within));
    lock_release(&registry.lock);
    if (record)
        record->depth = 0;
    return record;
}

static void give_back(struct within *record)
{
    lock_acquire(&registry.lock);
    record->next_unused = unused;
    unused = record;
    lock_release(&registry.lock);
}

/* Makes sure that the thread has a record. False: memory is out. */
static bool has_record(void)
{
    struct within *none = NULL, *made;

    if (within)
        return true;
    made = take_record();
    if (made && !__atomic_compare_exchange_n(&within, &none, made, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        give_back(made); /* a signal handler made one */
    return within != NULL;
}

static void set_innermost(void) { cache_set_scope(within->depth ? within->entered[within->depth - 1] : NULL); }

int within_enter(struct scope *scope)
{
    if (!has_record())
        return ENOMEM;
    if (within->depth == WITHIN_MOST)
        return E2BIG;
    if (scope)
        atomic_fetch_add(&scope->threads, 1);
    within->entered[within->depth] = scope;
    atomic_signal_fence(memory_order_seq_cst); /* Release: to a signal handler */
    within->depth++;
    set_innermost();
    return 0;
}

static void leave_innermost(void)
{
    struct scope *scope = within->entered[--within->depth];

    set_innermost();
    if (scope)
        atomic_fetch_sub(&scope->threads, 1);
}

bool within_leave(struct scope *scope)
{
    unsigned depth = within ? within->depth : 0;

    while (depth > 0 && within->entered[depth - 1] != scope)
        depth--;
    if (depth == 0)
        return false;
    while (within->depth >= depth)
        leave_innermost();
    return true;
}

void within_end(void)
{
    struct within *record = within;

    if (record == NULL)
        return;
    while (record->depth)
        leave_innermost();
    within = NULL;
    give_back(record);
}

void within_reset_in_child(void)
{
    scope_reset_in_child();
    for (unsigned i = 0; within && i < within->depth; i++)
        if (within->entered[i])
            atomic_fetch_add(&within->entered[i]->threads, 1);
}
