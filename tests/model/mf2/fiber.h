/* Tells the sanitizers about a change of stack. MF2_ASAN and MF2_TSAN say which sanitizer the build has. */
#ifndef HAK_TESTS_MF2_FIBER_H
#define HAK_TESTS_MF2_FIBER_H

#include <stddef.h>

struct fiber {
    const void *stack;
    size_t stack_bytes;
    void *fake_stack; /* AddressSanitizer's, while the fiber does not run */
    void *handle;     /* ThreadSanitizer's */
};

#if defined(MF2_ASAN)
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
#elif defined(MF2_TSAN)
#include <sanitizer/tsan_interface.h>

/* What `from` did does not happen before what `to` does next, unless their own code orders it. */
static inline void fiber_leave(struct fiber *from, struct fiber *to)
{
    (void)from;
    __tsan_switch_to_fiber(to->handle, __tsan_switch_to_fiber_no_sync);
}

static inline void fiber_arrive(struct fiber *self)
{
    (void)self;
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

/* What happened before fiber_post(place) happens before what follows fiber_await(place). */
static inline void fiber_post(void *place)
{
    (void)place;
#if defined(MF2_TSAN)
    __tsan_release(place);
#endif
}

static inline void fiber_await(void *place)
{
    (void)place;
#if defined(MF2_TSAN)
    __tsan_acquire(place);
#endif
}

/* Takes over the fiber that runs already. */
static inline void fiber_adopt(struct fiber *self)
{
    *self = (struct fiber){ 0 };
#if defined(MF2_TSAN)
    self->handle = __tsan_get_current_fiber();
#endif
}

static inline void fiber_create(struct fiber *self, const void *stack, size_t stack_bytes)
{
    *self = (struct fiber){ .stack = stack, .stack_bytes = stack_bytes };
#if defined(MF2_TSAN)
    self->handle = __tsan_create_fiber(0);
#endif
}

#endif
