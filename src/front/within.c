#include "front/within.h"

#include <errno.h>

#include "pool/registry.h"
#include "superslab/metadata.h"

/* A thread's record, from its first entry to its end: hak_cache_scope leads to it. A signal handler may run between any
 * two statements here. It leaves what it enters, and then this is as before. */
struct within {
    struct cache_scope in_force; /* the first member */
    struct entry {
        struct scope *entered, *around; /* around: what was in force before */
    } entries[WITHIN_MOST];
    unsigned depth;
    struct within *next_unused;
};
static struct within *spare_records; /* of threads that ended; under registry.lock */

/* The calling thread's record, or NULL. */
static struct within *own_record(void) { return (struct within *)hak_cache_scope; }

static struct within *within_make(void)
{
    struct within *record;

    lock_acquire(&registry.lock);
    record = spare_records;
    if (record)
        spare_records = record->next_unused;
    else
        record = metadata_allocate(sizeof *record, _Alignof(struct within));
    lock_release(&registry.lock);
    if (record) {
        record->in_force = (struct cache_scope){ NULL, hak_cache_offset };
        record->depth = 0;
    }
    return record;
}

static void within_give_back(struct within *record)
{
    lock_acquire(&registry.lock);
    record->next_unused = spare_records;
    spare_records = record;
    lock_release(&registry.lock);
}

/* Makes sure that the thread has a record. False: memory is out. */
static bool has_record(void)
{
    struct within *made;

    if (own_record())
        return true;
    made = within_make();
    if (made && own_record())
        within_give_back(made); /* a signal handler made one */
    else if (made)
        hak_cache_scope = &made->in_force; /* if a handler makes one right now, that is lost, and empty */
    return own_record() != NULL;
}

int within_enter(struct scope *scope)
{
    struct within *within;
    struct entry *entry;

    if (!has_record())
        return ENOMEM;
    within = own_record();
    if (within->depth == WITHIN_MOST)
        return E2BIG;
    if (scope)
        atomic_fetch_add(&scope->threads, 1);
    entry = &within->entries[within->depth++];
    atomic_signal_fence(memory_order_seq_cst); /* Release: a signal handler uses the places behind it */
    *entry = (struct entry){ scope, cache_scope() };
    cache_set_scope(scope);
    return 0;
}

static void leave_innermost(struct within *within)
{
    struct entry left = within->entries[within->depth - 1];

    atomic_signal_fence(memory_order_seq_cst); /* Acquire: before a signal handler uses the place */
    within->depth--;
    cache_set_scope(left.around);
    if (left.entered)
        atomic_fetch_sub(&left.entered->threads, 1);
}

bool within_leave(struct scope *scope)
{
    struct within *within = own_record();
    unsigned depth = within ? within->depth : 0;

    while (depth > 0 && within->entries[depth - 1].entered != scope)
        depth--;
    if (depth == 0)
        return false;
    while (within->depth >= depth)
        leave_innermost(within);
    return true;
}

void within_end(void)
{
    struct within *within = own_record();

    if (within == NULL)
        return;
    while (within->depth)
        leave_innermost(within);
    hak_cache_scope = NULL;
    within_give_back(within);
}

void within_reset_in_child(void)
{
    struct within *within = own_record();

    scope_reset_in_child();
    for (unsigned i = 0; within && i < within->depth; i++)
        if (within->entries[i].entered)
            atomic_fetch_add(&within->entries[i].entered->threads, 1);
}
