/* The figures of scopes (hakmem/scope.h). Any thread that holds no lock. */
#ifndef HAK_OBSERVE_SCOPES_H
#define HAK_OBSERVE_SCOPES_H

#include <hakmem/scope.h>

#include "pool/scope.h"

/* The first scope in use from `scope` on, in the list of all. NULL: there is none. */
HAK_HIDDEN struct scope *scopes_from(struct scope *scope);
HAK_INLINE struct scope *scopes_first(void) { return scopes_from(atomic_load_explicit(&scopes, memory_order_acquire)); }

/* The row of a scope; NULL: of the process. False: there is no memory to count the process. */
HAK_HIDDEN bool scopes_row(struct hak_scope_stats *row, struct scope *scope);

/* Resident bytes of the scope's slabs and mappings, and of all scopes below it. 0: the kernel refuses to tell. */
HAK_HIDDEN size_t scopes_resident(const struct scope *scope);

#endif
