/*
 * The stacks that samples are taken at.
 *
 * Unwinding by tables takes microseconds, so a thread keeps its recent stacks: each frame's return address, and the
 * stack slot that held it. A stack is the same if the walk begins at the same place and every slot holds its address:
 * the code there fixes where the next slot lies, so by induction the chain is the same. A few loads replace an unwind.
 */
#ifndef HAK_PROFILE_STACK_H
#define HAK_PROFILE_STACK_H

#include "profile/table.h"

struct stack_memory;

/* The site of the calling thread's stack, behind `leaf` if there is one, with the labels (or NULL). NULL: memory is
 * out. memory: the thread's, made when first needed; NULL: keep no stack. often: every block is a sample (steps.h).
 * Holding no lock. */
HAK_HIDDEN struct site *stack_site(const void *leaf, const struct label_set *labels, struct stack_memory **memory,
                                   bool often);

/* The thread ends: another thread may use its memory for stacks. */
HAK_HIDDEN void stack_leave(struct stack_memory **memory);

#endif
