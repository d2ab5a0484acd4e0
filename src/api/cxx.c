/*
 * The C++ operators, by the names the Itanium C++ ABI gives them (C++17 21.6.2). Written in C so that the library needs no
 * C++ run-time, and compiled with -fexceptions because what a new-handler throws passes through here.
 *
 * When memory is out, a throwing new calls the new-handler until there is none, then throws std::bad_alloc through the
 * program's own C++ run-time; where the process has none it says so and aborts. A nothrow new with a handler is left to the
 * run-time's own nothrow new, which catches what the handler throws and in turn calls the throwing one here; where it
 * cannot be found (static programs) what the handler throws passes through.
 *
 * Sized delete does not look at the size: programs that delete through a base class pass a wrong one and work elsewhere.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "api/contracts.h"
#include "base/format.h"
#include "front/fast.h"
#include "front/front.h"
#include "os/cycles.h"

typedef void (*new_handler)(void);
typedef void *(*nothrow_new)(size_t size, const void *nothrow);
typedef void *(*aligned_nothrow_new)(size_t size, size_t alignment, const void *nothrow);

/* std::__throw_bad_alloc and std::get_new_handler of whichever C++ run-time is there. What the dynamic
 * loader brings is weak too, so that static programs do not get it for this alone. */
extern void _ZSt17__throw_bad_allocv(void) __attribute__((weak, visibility("default")));
extern new_handler _ZSt15get_new_handlerv(void) __attribute__((weak, visibility("default")));
extern __typeof__(_r_debug) _r_debug __attribute__((weak));
extern __typeof__(dlsym) dlsym __attribute__((weak));

/* ISO C has no conversion between what dlsym returns and a function. */
union symbol {
    void *address;
    void (*throw_bad_alloc)(void);
    new_handler (*get_handler)(void);
    nothrow_new new_nothrow;
    aligned_nothrow_new new_aligned_nothrow;
};

static bool is_runtime(const char *path)
{
    static const char *const runtimes[] = { "libstdc++.so.6", "libc++.so.1" };
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    for (size_t i = 0; i < sizeof runtimes / sizeof runtimes[0]; i++)
        if (strcmp(name, runtimes[i]) == 0)
            return true;
    return false;
}

/* A run-time that was loaded by dlopen is not what the weak names were bound to at the start, and may not be visible to
 * all. It is found in the loader's list, whose entries are glibc's handles too: no dlopen, which would allocate and which
 * linkers warn of in static programs. */
static void *find_symbol(const char *name)
{
    if (dlsym == NULL)
        return NULL;
    void *address = dlsym(RTLD_DEFAULT, name);
    if (address != NULL || &_r_debug == NULL)
        return address;
    for (struct link_map *map = _r_debug.r_map; map != NULL && address == NULL; map = map->l_next)
        if (is_runtime(map->l_name))
            address = dlsym(map, name);
    return address;
}

static new_handler handler_in_force(void)
{
    union symbol get = { .get_handler = _ZSt15get_new_handlerv };
    if (get.get_handler == NULL)
        get.address = find_symbol("_ZSt15get_new_handlerv");
    return get.address == NULL ? NULL : get.get_handler();
}

_Noreturn static void throw_bad_alloc(size_t size)
{
    union symbol thrower = { .throw_bad_alloc = _ZSt17__throw_bad_allocv };
    if (thrower.throw_bad_alloc == NULL)
        thrower.address = find_symbol("_ZSt17__throw_bad_allocv");
    if (thrower.address != NULL)
        thrower.throw_bad_alloc();
    base_message("operator new(%zu): out of memory, and there is no C++ run-time to throw std::bad_alloc", size);
    abort();
}

/* ---- What happens off the fast path ---- */

/* alignment 0: that of malloc. */
static void *allocate(size_t size, size_t alignment)
{
    return alignment == 0 ? front_malloc(size) : contract_aligned(alignment, size);
}

static HAK_COLD void *new_after_failure(size_t size, size_t alignment)
{
    for (;;) {
        new_handler handler = handler_in_force();
        if (handler == NULL)
            throw_bad_alloc(size);
        handler();
        void *block = allocate(size, alignment);
        if (block != NULL)
            return block;
    }
}

/* `name` is the operator's own, to find the run-time's. */
static HAK_COLD void *nothrow_after_failure(size_t size, size_t alignment, const char *name)
{
    static const char nothrow = 0; /* stands for std::nothrow, which has no state */
    new_handler handler = handler_in_force();
    if (handler == NULL)
        return NULL;
    union symbol next = { .address = dlsym == NULL ? NULL : dlsym(RTLD_NEXT, name) };
    if (next.address != NULL)
        return alignment == 0 ? next.new_nothrow(size, &nothrow) : next.new_aligned_nothrow(size, alignment, &nothrow);
    for (; handler != NULL; handler = handler_in_force()) {
        handler();
        void *block = allocate(size, alignment);
        if (block != NULL)
            return block;
    }
    return NULL;
}

/* Functions of their own, so that the operators' fast paths have no frame. */

static HAK_NOINLINE void *new_slow(size_t size)
{
    void *block = front_malloc(size);
    return HAK_LIKELY(block != NULL) ? block : new_after_failure(size, 0);
}

static HAK_NOINLINE void *new_nothrow_slow(size_t size)
{
    void *block = front_malloc(size);
    return HAK_LIKELY(block != NULL) ? block : nothrow_after_failure(size, 0, "_ZnwmRKSt9nothrow_t");
}

HAK_INLINE void *new_block(size_t size)
{
    CYCLES_CALL(CYCLES_MALLOC_HIT, return front_malloc_or(size, new_slow, new_slow))
    return front_malloc_or(size, new_slow, new_slow);
}

HAK_INLINE void *new_nothrow_block(size_t size)
{
    CYCLES_CALL(CYCLES_MALLOC_HIT, return front_malloc_or(size, new_nothrow_slow, new_nothrow_slow))
    return front_malloc_or(size, new_nothrow_slow, new_nothrow_slow);
}

HAK_INLINE void *new_aligned_block(size_t size, size_t alignment)
{
    if (HAK_UNLIKELY(!base_is_pow2(alignment)))
        throw_bad_alloc(size);
    void *block = contract_aligned(alignment, size);
    return HAK_LIKELY(block != NULL) ? block : new_after_failure(size, alignment);
}

HAK_INLINE void *new_aligned_nothrow_block(size_t size, size_t alignment)
{
    if (HAK_UNLIKELY(!base_is_pow2(alignment)))
        return NULL;
    void *block = contract_aligned(alignment, size);
    return HAK_LIKELY(block != NULL) ? block : nothrow_after_failure(size, alignment, "_ZnwmSt11align_val_tRKSt9nothrow_t");
}

/* ---- The operators: each declared and defined by its mangled name ---- */

#define UNUSED __attribute__((unused))
#define CXX_NEW(name, parameters, expression) \
    API_EXPORT void *name parameters;         \
    void *name parameters                     \
    {                                         \
        return expression;                    \
    }

CXX_NEW(_Znwm, (size_t size), new_block(size))
CXX_NEW(_Znam, (size_t size), new_block(size))
CXX_NEW(_ZnwmRKSt9nothrow_t, (size_t size, UNUSED const void *nothrow), new_nothrow_block(size))
CXX_NEW(_ZnamRKSt9nothrow_t, (size_t size, UNUSED const void *nothrow), new_nothrow_block(size))
CXX_NEW(_ZnwmSt11align_val_t, (size_t size, size_t alignment), new_aligned_block(size, alignment))
CXX_NEW(_ZnamSt11align_val_t, (size_t size, size_t alignment), new_aligned_block(size, alignment))
CXX_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t size, size_t alignment, UNUSED const void *nothrow),
        new_aligned_nothrow_block(size, alignment))
CXX_NEW(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t size, size_t alignment, UNUSED const void *nothrow),
        new_aligned_nothrow_block(size, alignment))

static void delete_slow(void *block)
{
    front_free_named(block, "operator delete");
}

HAK_INLINE void delete_block(void *block)
{
    CYCLES_CALL(CYCLES_FREE_HIT, front_free_or(block, delete_slow); return)
    front_free_or(block, delete_slow);
}

#define CXX_DELETE(name)                                          \
    API_EXPORT void name(void *block);                            \
    void name(void *block)                                        \
    {                                                             \
        delete_block(block);                                      \
    }
#define CXX_DELETE_WITH(name, ...)                                \
    API_EXPORT void name(void *block, __VA_ARGS__);               \
    void name(void *block, __VA_ARGS__)                           \
    {                                                             \
        delete_block(block);                                      \
    }

CXX_DELETE(_ZdlPv)
CXX_DELETE(_ZdaPv)
CXX_DELETE_WITH(_ZdlPvRKSt9nothrow_t, UNUSED const void *nothrow)
CXX_DELETE_WITH(_ZdaPvRKSt9nothrow_t, UNUSED const void *nothrow)
CXX_DELETE_WITH(_ZdlPvm, UNUSED size_t size)
CXX_DELETE_WITH(_ZdaPvm, UNUSED size_t size)
CXX_DELETE_WITH(_ZdlPvSt11align_val_t, UNUSED size_t alignment)
CXX_DELETE_WITH(_ZdaPvSt11align_val_t, UNUSED size_t alignment)
CXX_DELETE_WITH(_ZdlPvmSt11align_val_t, UNUSED size_t size, UNUSED size_t alignment)
CXX_DELETE_WITH(_ZdaPvmSt11align_val_t, UNUSED size_t size, UNUSED size_t alignment)
CXX_DELETE_WITH(_ZdlPvSt11align_val_tRKSt9nothrow_t, UNUSED size_t alignment, UNUSED const void *nothrow)
CXX_DELETE_WITH(_ZdaPvSt11align_val_tRKSt9nothrow_t, UNUSED size_t alignment, UNUSED const void *nothrow)
