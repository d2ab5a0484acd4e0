/*
 * C++'s operators. libstdc++'s operators call malloc, but an allocator's own do not. So each call is noted here and
 * passed to the next operator. Calls of malloc and free that the next one makes are not noted again. The mangled names
 * are those of 64-bit Linux.
 *
 * Compiled with -fexceptions: operator new may throw through these functions. Such a call is not noted.
 */
#define _GNU_SOURCE
#include "record.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*any_function)(void);

/* The next function of that name, or else the next function named `instead`, unless that is NULL. */
static any_function find_next(_Atomic(any_function) *known, const char *name, const char *instead)
{
    any_function function = atomic_load_explicit(known, memory_order_relaxed);
    if (function != NULL)
        return function;
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL && instead != NULL)
        found = dlsym(RTLD_NEXT, instead);
    if (found == NULL) {
        static const char line[] = "hakmem trace: this program calls an operator that its C++ library does not have\n";
        (void)!write(STDERR_FILENO, line, sizeof line - 1);
        _exit(127);
    }
    memcpy(&function, &found, sizeof function);
    atomic_store_explicit(known, function, memory_order_relaxed);
    return function;
}

static uint32_t *enter(void)
{
    record_thread.inside++;
    return &record_thread.inside;
}

static void leave(uint32_t **inside)
{
    --**inside;
}

/* Calls of the next operator, with `inside` raised until they return or throw. A nothrow_t is an empty object, passed
 * by its address. A function that takes fewer arguments ignores the registers of the others. */

static void *call_new(any_function next, size_t size, uintptr_t second, uintptr_t third, uintptr_t fourth)
{
    __attribute__((cleanup(leave), unused)) uint32_t *inside = enter();
    return ((void *(*)(size_t, uintptr_t, uintptr_t, uintptr_t))next)(size, second, third, fourth);
}

/* LLVM's __sized_ptr_t. */
struct sized_block {
    void *block;
    size_t size;
};

static struct sized_block call_sized_new(any_function next, size_t size, uintptr_t second, uintptr_t third)
{
    __attribute__((cleanup(leave), unused)) uint32_t *inside = enter();
    return ((struct sized_block(*)(size_t, uintptr_t, uintptr_t))next)(size, second, third);
}

static void note_delete(void *block)
{
    record_note(TRACE_FREE, (uintptr_t)block, 0, 0);
}

static void *note_new(void *block, size_t size)
{
    record_note(TRACE_MALLOC, (uintptr_t)block, size, 0);
    return block;
}

static void *note_aligned_new(void *block, size_t size, size_t alignment)
{
    record_note(TRACE_ALIGNED_ALLOC, (uintptr_t)block, size, (unsigned)__builtin_ctzll(alignment));
    return block;
}

#define NEXT_OR(name, instead)                                                                                         \
    static _Atomic(any_function) known;                                                                                \
    any_function next = find_next(&known, #name, instead)
#define NEXT(name) NEXT_OR(name, NULL)

#define PUBLIC(result, name, ...)                                                                                      \
    __attribute__((visibility("default"))) result name(__VA_ARGS__);                                                   \
    __attribute__((visibility("default"))) result name(__VA_ARGS__)

/* ---- new: further arguments are words, as above ---- */

#define PLAIN_NEW(name)                                                                                                \
    PUBLIC(void *, name, size_t size, uintptr_t second)                                                                \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        return note_new(call_new(next, size, second, 0, 0), size);                                                     \
    }
#define ALIGNED_NEW(name)                                                                                              \
    PUBLIC(void *, name, size_t size, size_t alignment, uintptr_t third)                                               \
    {                                                                                                                  \
        NEXT(name);                                                                                                    \
        return note_aligned_new(call_new(next, size, alignment, third, 0), size, alignment);                           \
    }

PLAIN_NEW(_Znwm)
PLAIN_NEW(_Znam)
PLAIN_NEW(_ZnwmRKSt9nothrow_t)
PLAIN_NEW(_ZnamRKSt9nothrow_t)
ALIGNED_NEW(_ZnwmSt11align_val_t)
ALIGNED_NEW(_ZnamSt11align_val_t)
ALIGNED_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t)
ALIGNED_NEW(_ZnamSt11align_val_tRKSt9nothrow_t)

/*
 * What LLVM calls in place of new: functions with a hint after the other arguments, or that also return the block's
 * size. A program may test for them with weak references, and these definitions make it believe they exist. If the
 * allocator has none, the operator without the hint serves the call and the returned size is the requested one.
 */

#define HINTED_NEW(name)                                                                                               \
    PUBLIC(void *, name##12__hot_cold_t, size_t size, uintptr_t second, uintptr_t third)                               \
    {                                                                                                                  \
        NEXT_OR(name##12__hot_cold_t, #name);                                                                          \
        return note_new(call_new(next, size, second, third, 0), size);                                                 \
    }
#define HINTED_ALIGNED_NEW(name)                                                                                       \
    PUBLIC(void *, name##12__hot_cold_t, size_t size, size_t alignment, uintptr_t third, uintptr_t fourth)             \
    {                                                                                                                  \
        NEXT_OR(name##12__hot_cold_t, #name);                                                                          \
        return note_aligned_new(call_new(next, size, alignment, third, fourth), size, alignment);                      \
    }

HINTED_NEW(_Znwm)
HINTED_NEW(_Znam)
HINTED_NEW(_ZnwmRKSt9nothrow_t)
HINTED_NEW(_ZnamRKSt9nothrow_t)
HINTED_ALIGNED_NEW(_ZnwmSt11align_val_t)
HINTED_ALIGNED_NEW(_ZnamSt11align_val_t)
HINTED_ALIGNED_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t)
HINTED_ALIGNED_NEW(_ZnamSt11align_val_tRKSt9nothrow_t)

#define SIZED_NEW(name, instead, note, ...)                                                                            \
    {                                                                                                                  \
        static _Atomic int has; /* 1: the allocator has the function; -1: not; 0: not known yet */                     \
        NEXT_OR(name, instead);                                                                                        \
        if (atomic_load_explicit(&has, memory_order_relaxed) == 0)                                                     \
            atomic_store_explicit(&has, dlsym(RTLD_NEXT, #name) != NULL ? 1 : -1, memory_order_relaxed);               \
        struct sized_block got = { NULL, size };                                                                       \
        if (atomic_load_explicit(&has, memory_order_relaxed) == 1)                                                     \
            got = call_sized_new(next, size, __VA_ARGS__);                                                             \
        else                                                                                                           \
            got.block = call_new(next, size, __VA_ARGS__, 0);                                                          \
        note;                                                                                                          \
        return got;                                                                                                    \
    }

PUBLIC(struct sized_block, __size_returning_new, size_t size)
SIZED_NEW(__size_returning_new, "_Znwm", note_new(got.block, size), 0, 0)

PUBLIC(struct sized_block, __size_returning_new_hot_cold, size_t size, uintptr_t hint)
SIZED_NEW(__size_returning_new_hot_cold, "_Znwm", note_new(got.block, size), hint, 0)

PUBLIC(struct sized_block, __size_returning_new_aligned, size_t size, size_t alignment)
SIZED_NEW(__size_returning_new_aligned, "_ZnwmSt11align_val_t", note_aligned_new(got.block, size, alignment),
          alignment, 0)

PUBLIC(struct sized_block, __size_returning_new_aligned_hot_cold, size_t size, size_t alignment, uintptr_t hint)
SIZED_NEW(__size_returning_new_aligned_hot_cold, "_ZnwmSt11align_val_t", note_aligned_new(got.block, size, alignment),
          alignment, hint)

/* ---- delete: further arguments are words; a function that takes fewer ignores them ---- */

static void call_delete(any_function next, void *block, uintptr_t second, uintptr_t third)
{
    __attribute__((cleanup(leave), unused)) uint32_t *inside = enter();
    ((void (*)(void *, uintptr_t, uintptr_t))next)(block, second, third);
}

PUBLIC(void, _ZdlPv, void *block)
{
    NEXT(_ZdlPv);
    note_delete(block);
    call_delete(next, block, 0, 0);
}

PUBLIC(void, _ZdaPv, void *block)
{
    NEXT(_ZdaPv);
    note_delete(block);
    call_delete(next, block, 0, 0);
}

PUBLIC(void, _ZdlPvm, void *block, uintptr_t second)
{
    NEXT(_ZdlPvm);
    note_delete(block);
    call_delete(next, block, second, 0);
}

PUBLIC(void, _ZdaPvm, void *block, uintptr_t second)
{
    NEXT(_ZdaPvm);
    note_delete(block);
    call_delete(next, block, second, 0);
}

PUBLIC(void, _ZdlPvRKSt9nothrow_t, void *block, uintptr_t second)
{
    NEXT(_ZdlPvRKSt9nothrow_t);
    note_delete(block);
    call_delete(next, block, second, 0);
}

PUBLIC(void, _ZdaPvRKSt9nothrow_t, void *block, uintptr_t second)
{
    NEXT(_ZdaPvRKSt9nothrow_t);
    note_delete(block);
    call_delete(next, block, second, 0);
}

PUBLIC(void, _ZdlPvSt11align_val_t, void *block, uintptr_t second)
{
    NEXT(_ZdlPvSt11align_val_t);
    note_delete(block);
    call_delete(next, block, second, 0);
}

PUBLIC(void, _ZdaPvSt11align_val_t, void *block, uintptr_t second)
{
    NEXT(_ZdaPvSt11align_val_t);
    note_delete(block);
    call_delete(next, block, second, 0);
}

PUBLIC(void, _ZdlPvmSt11align_val_t, void *block, uintptr_t second, uintptr_t third)
{
    NEXT(_ZdlPvmSt11align_val_t);
    note_delete(block);
    call_delete(next, block, second, third);
}

PUBLIC(void, _ZdaPvmSt11align_val_t, void *block, uintptr_t second, uintptr_t third)
{
    NEXT(_ZdaPvmSt11align_val_t);
    note_delete(block);
    call_delete(next, block, second, third);
}

PUBLIC(void, _ZdlPvSt11align_val_tRKSt9nothrow_t, void *block, uintptr_t second, uintptr_t third)
{
    NEXT(_ZdlPvSt11align_val_tRKSt9nothrow_t);
    note_delete(block);
    call_delete(next, block, second, third);
}

PUBLIC(void, _ZdaPvSt11align_val_tRKSt9nothrow_t, void *block, uintptr_t second, uintptr_t third)
{
    NEXT(_ZdaPvSt11align_val_tRKSt9nothrow_t);
    note_delete(block);
    call_delete(next, block, second, third);
}
