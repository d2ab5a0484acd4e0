/*
 * Scopes: tenants with a name and a cap in bytes. A scope has a first-class heap (heap.scope) that holds its blocks.
 * front/within.h tells which threads are in one.
 *
 * O10: `own` is what all blocks of the scope's heap have, and `live` is the sum of `own` over the scope and all scopes
 *     below it. Bytes are charged before a block leaves its slab and discharged after it is back, so `live` is never
 *     less than what the blocks have. In the child of a fork it may be more, by blocks that vanished threads were
 *     taking or freeing.
 * O11: a charge passes a cap in no scope, however many threads charge.
 * O12: the memory of a struct scope always stays a scope, as that of a heap (O3). A scope that was closed while it had
 *     blocks keeps its heap until the last one is freed, and its parent as long. So the heap of a live block never
 *     loses its scope.
 */
#ifndef HAK_POOL_SCOPE_H
#define HAK_POOL_SCOPE_H

#include "pool/heap.h"

#define SCOPE_NAME_MOST 47u /* bytes */

enum scope_state { SCOPE_UNUSED = 0, SCOPE_OPEN, SCOPE_CLOSED /* O12 */ };

/* What the soft cap's callback knows of the last crossing. */
enum scope_soft { SCOPE_BELOW = 0, SCOPE_DUE, SCOPE_TELLING /* a thread is in the callback */, SCOPE_TOLD };

typedef void (*scope_over)(struct scope *scope, size_t live, void *argument);

struct scope {
    struct scope *next;   /* in the list of all scopes, the newest first */
    struct scope *unused; /* in the list of unused ones; under registry.lock */
    struct scope *parent;
    struct heap *heap;
    uint64_t number;         /* from 1, never used twice */
    _Atomic uint8_t state;   /* enum scope_state. Order: seq_cst, with own and scopes (O12) */
    _Atomic uint8_t soft_is; /* enum scope_soft. Order: seq_cst, with live; one exchange tells who calls */
    _Atomic uint32_t threads; /* entered and not left. Order: any */
    _Atomic uint32_t open;    /* open scopes whose parent this is. Order: any */
    _Atomic uint32_t scopes;  /* all of those that are not unused. Order: seq_cst (O12) */
    _Atomic size_t own, live; /* bytes (O10). Order: seq_cst (O12) */
    _Atomic size_t cap;       /* bytes; 0: none. Order: any; a caller orders a change with its own calls */
    _Atomic size_t soft;      /* bytes; 0: none. Order: seq_cst as it is set, acquire: over and argument */
    _Atomic size_t peak;      /* of live; less while threads race. Order: any */
    _Atomic uint64_t refused; /* charges. Order: any */
    scope_over over;          /* set before a thread enters */
    void *argument;
    char name[SCOPE_NAME_MOST + 1];
};

/* All scopes ever made, linked by `next`. Order: release by scope_new, acquire: their fields. */
HAK_DATA struct scope *_Atomic scopes;

/* An open scope, with the name's first SCOPE_NAME_MOST bytes. NULL: memory is out. Any thread that holds no lock, as
 * for all functions here. */
HAK_HIDDEN struct scope *scope_new(const char *name, struct scope *parent, size_t cap);

/* Whether the scope may be closed: no thread is in it, and no open scope is below it. */
HAK_HIDDEN bool scope_is_free(struct scope *scope);

/* Closes the scope. It goes when its last block does (O12). */
HAK_HIDDEN void scope_close(struct scope *scope);

/* Adds the bytes to `own`, and to `live` of the scope and all above it. False: a cap refuses, and nothing changed. With
 * `any` no cap refuses. */
HAK_HIDDEN bool scope_charge(struct scope *scope, size_t bytes, bool any);

/* After charges whose block is there: notes how far `live` rose, here and above. */
HAK_HIDDEN void scope_note_live(struct scope *scope);

/* Takes them off. A closed scope goes with its last byte. */
HAK_HIDDEN void scope_discharge(struct scope *scope, size_t bytes);

/* After the free of a block of the heap, which had so many bytes. */
HAK_INLINE void scope_note_free(const struct heap *heap, size_t bytes)
{
    if (heap->scope)
        scope_discharge(heap->scope, bytes);
}

/* In the child of a fork: no thread is in a scope, or in a callback. */
HAK_HIDDEN void scope_reset_in_child(void);

#endif
