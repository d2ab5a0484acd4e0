/*
 * The stacks that samples are taken at.
 *
 * Unwinding by tables costs microseconds, so a thread keeps the stacks it saw last: of each frame the stack slot that held its return
 * address, and the value. A stack is the same when the walk begins at the same place and every slot still holds its value: what
 * is at an address of code fixes where the next slot lies, so by induction the whole chain is the same. A few loads take the
 * place of an unwind.
 */
#ifndef HAK_PROFILE_STACK_H
#define HAK_PROFILE_STACK_H

#include "profile/table.h"

struct stack_memory;

/* The site of the calling thread's stack, `leaf` (may be NULL) in front. memory: the thread's, made when first needed; NULL: none is
 * kept. NULL when memory is out. Holding no lock. */
HAK_HIDDEN struct site *stack_site(const void *leaf, struct stack_memory **memory);

/* The thread ends: its stacks' memory is for the next thread. */
HAK_HIDDEN void stack_leave(struct stack_memory **memory);

#endif
