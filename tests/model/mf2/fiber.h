/* Tells AddressSanitizer about a change of stack. MF2_ASAN says that the build has it. */
#ifndef HAK_TESTS_MF2_FIBER_H
#define HAK_TESTS_MF2_FIBER_H

#include <stddef.h>

struct fiber {
    const void *stack;
    size_t stack_bytes;
    void *fake_stack; /* AddressSanitizer's, while the fiber does not run */
};

#ifdef MF2_ASAN
#include <sanitizer/common_interface_defs.h>
static struct fiber *fiber_left;

static inline void fiber_leave(struct fiber *from, struct fiber *to)
{
    fiber_left = from;
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
}

/* Stores where the stack of the fiber that was left lies. Nobody else knows it for the program's first stack. */
static inline void fiber_arrive(struct fiber *self)
{
    __sanitizer_finish_switch_fiber(self->fake_stack, &fiber_left->stack, &fiber_left->stack_bytes);
}
#else
static inline void fiber_leave(struct fiber *from, struct fiber *to)
{
    (void)from;
    (void)to;
}

static inline void fiber_arrive(struct fiber *self)
{
    (void)self;
}
#endif

/* Takes over the fiber that runs already. */
static inline void fiber_adopt(struct fiber *self)
{
    *self = (struct fiber){ 0 };
}

static inline void fiber_create(struct fiber *self, const void *stack, size_t stack_bytes)
{
    *self = (struct fiber){ .stack = stack, .stack_bytes = stack_bytes };
}

#endif
