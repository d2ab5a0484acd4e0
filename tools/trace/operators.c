/*
 * C++'s operators. libstdc++'s call malloc, but those of an allocator that brings its own do not, so each is noted here
 * and handed on to the next; what that calls of malloc and free is not noted again. The mangled names are those of
 * 64-bit Linux.
 *
 * Compiled with -fexceptions: operator new may throw through these, and is then not noted.
 */
#define _GNU_SOURCE
#include "record.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*any_function)(void);

static any_function find_next(_Atomic(any_function) *known, const char *name)
{
    any_function function = atomic_load_explicit(known, memory_order_relaxed);
    if (function != NULL)
        return function;
    void *found = dlsym(RTLD_NEXT, name);
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

/* The calls to the next operator, with `inside` raised until they return or throw. A nothrow_t is an object without
 * contents, handed on by its address; a function that does not take one ignores the register it is in. */

static void *call_new(any_function next, size_t size, const void *nothrow)
{
    __attribute__((cleanup(leave), unused)) uint32_t *inside = enter();
    return ((void *(*)(size_t, const void *))next)(size, nothrow);
}

static void *call_aligned_new(any_function next, size_t size, size_t alignment, const void *nothrow)
{
    __attribute__((cleanup(leave), unused)) uint32_t *inside = enter();
    return ((void *(*)(size_t, size_t, const void *))next)(size, alignment, nothrow);
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

#define NEXT(name)                                                                                                     \
    static _Atomic(any_function) known;                                                                                \
    any_function next = find_next(&known, #name)

#define PUBLIC(result, name, ...)                                                                                      \
    __attribute__((visibility("default"))) result name(__VA_ARGS__);                                                   \
    __attribute__((visibility("default"))) result name(__VA_ARGS__)

/* ---- new ---- */

PUBLIC(void *, _Znwm, size_t size)
{
    NEXT(_Znwm);
    return note_new(call_new(next, size, NULL), size);
}

PUBLIC(void *, _Znam, size_t size)
{
    NEXT(_Znam);
    return note_new(call_new(next, size, NULL), size);
}

PUBLIC(void *, _ZnwmRKSt9nothrow_t, size_t size, const void *nothrow)
{
    NEXT(_ZnwmRKSt9nothrow_t);
    return note_new(call_new(next, size, nothrow), size);
}

PUBLIC(void *, _ZnamRKSt9nothrow_t, size_t size, const void *nothrow)
{
    NEXT(_ZnamRKSt9nothrow_t);
    return note_new(call_new(next, size, nothrow), size);
}

PUBLIC(void *, _ZnwmSt11align_val_t, size_t size, size_t alignment)
{
    NEXT(_ZnwmSt11align_val_t);
    return note_aligned_new(call_aligned_new(next, size, alignment, NULL), size, alignment);
}

PUBLIC(void *, _ZnamSt11align_val_t, size_t size, size_t alignment)
{
    NEXT(_ZnamSt11align_val_t);
    return note_aligned_new(call_aligned_new(next, size, alignment, NULL), size, alignment);
}

PUBLIC(void *, _ZnwmSt11align_val_tRKSt9nothrow_t, size_t size, size_t alignment, const void *nothrow)
{
    NEXT(_ZnwmSt11align_val_tRKSt9nothrow_t);
    return note_aligned_new(call_aligned_new(next, size, alignment, nothrow), size, alignment);
}

PUBLIC(void *, _ZnamSt11align_val_tRKSt9nothrow_t, size_t size, size_t alignment, const void *nothrow)
{
    NEXT(_ZnamSt11align_val_tRKSt9nothrow_t);
    return note_aligned_new(call_aligned_new(next, size, alignment, nothrow), size, alignment);
}

/* ---- delete: the further arguments are words that a function which takes fewer ignores ---- */

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
