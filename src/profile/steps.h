/*
 * Stack walks without the unwinder, for a profile of every allocation. The unwinder's walks teach the *step* of each
 * return address: the distance on the stack to its caller's return address. In a function whose frame has a fixed size,
 * the step is the same at every visit of a call. Later walks cost one table look-up a frame.
 *
 * - A step is used only if it leads to a word that is a known return address itself. A frame of changing size (alloca)
 *   leads elsewhere: the unwinder walks it again, and it is marked so that its step is not used.
 * - The unwinder makes every STEPS_CHECKED-th walk, and steps that differ are marked.
 * - If a frame is not known, the unwinder walks up to the next frame from which all are known: inner calls are new more
 *   often than outer ones.
 * - A walk reads only memory between its start and the highest slot that the unwinder found on the thread's stack.
 */
#ifndef HAK_PROFILE_STEPS_H
#define HAK_PROFILE_STEPS_H

#include "os/unwind.h"

#define STEPS_CHECKED 64u

/* What a thread knows of its own stack. */
struct steps_stack {
    const char *low, *top; /* the first and last slot of the unwinder's last walk; top NULL: none yet */
    unsigned walks;
};

/* Walks the stack from the frame whose return address lies at `slot`, innermost first. Returns the number of frames. 0:
 * the caller lets the unwinder walk and passes the result to steps_learn. *may_join: it may end that walk at the first
 * frame from which steps_follow knows the way. */
HAK_HIDDEN unsigned steps_walk(struct steps_stack *stack, const uintptr_t *slot, struct unwind_frame *frames,
                               unsigned capacity, bool *may_join);

/* The frames from the one whose return address lies at `slot`, a slot of the thread's stack; 0: one is not known. */
HAK_HIDDEN unsigned steps_follow(const struct steps_stack *stack, const uintptr_t *slot, struct unwind_frame *frames,
                                 unsigned capacity);

/* Learns from a walk by the unwinder. whole: the walk reached the end of the stack. */
HAK_HIDDEN void steps_learn(struct steps_stack *stack, const struct unwind_frame *frames, unsigned count, bool whole);

#endif
