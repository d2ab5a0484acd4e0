/*
 * The C++ operators, by the names the Itanium C++ ABI gives them (C++17 21.6.2). Written in C so that the library
 * needs no C++ run-time, and compiled with -fexceptions because a new-handler's exceptions pass through here.
 *
 * When memory is out, a throwing new calls the new-handler until there is none. Then it throws std::bad_alloc by the
 * process's C++ run-time, or without one prints a message and aborts. A nothrow new calls the handler, too, and
 * returns NULL when the handler throws.
 *
 * Where another object's operators or malloc come before ours, each operator does what the run-time's would
 * (api/interposed.h, I1): new[] calls new, sized delete calls delete, new calls malloc. In such a process
 * hak_operator_offset stays 0, so every call ends in the operator's slow function.
 *
 * The definitions are weak, because a program may replace operators (C++17 20.5.4.6) and be linked with the override
 * archive.
 *
 * Sized delete ignores the size: programs that delete through a base class pass a wrong one and work with other
 * allocators. The hardened library checks the size and the operator that gave the block.
 *
 * LLVM calls two further families in place of operator new, which no standard names. A MemProf build passes a
 * __hot_cold_t, a guess how often the block is used. HAKMEM ignores it, and keeps no hot blocks apart. The
 * size-returning forms also return the usable size (WG21 P0901). Plain delete frees the blocks of both families.
 */
#include "api/contracts.h"
#include "api/interposed.h"
#include "api/names.h"
#include "api/runtime.h"
#include "front/fast.h"
#include "front/front.h"
#include "front/sealed.h"
#include "os/cycles.h"

/* Which operators of another object an operator tries before malloc or free: those that it is built on (I2). */
enum level {
    LEVEL_C,     /* none: the operator is itself new or delete */
    LEVEL_ONE,   /* new, delete */
    LEVEL_ARRAY, /* new[], delete[], then those of LEVEL_ONE */
};

/* Whether the operators are HAKMEM's own. If so, the thread's operators find its cache from now on. */
static HAK_COLD bool find_whether_own(void)
{
    if (interposed_is(INTERPOSED_OPERATORS))
        return false;
    hak_operator_offset = hak_cache_offset;
    return true;
}

HAK_INLINE bool is_own(void)
{
    return HAK_LIKELY(hak_operator_offset != 0) || find_whether_own();
}

/* ---- Memory is out ---- */

/* Allocates by the C functions that come first. alignment 0: that of malloc. */
static void *allocate_by_c(size_t size, size_t alignment)
{
    if (alignment != 0)
        return interposed_aligned(alignment, base_max(size, 1));
    return interposed.malloc != NULL ? interposed.malloc(base_max(size, 1)) : front_malloc(size);
}

/* Calls the new-handler and tries again, until there is a block. NULL: there is no handler any more. */
static HAK_COLD void *retry(size_t size, size_t alignment)
{
    void *block = NULL;

    while (block == NULL) {
        runtime_new_handler handler = runtime_handler_in_force();
        if (handler == NULL)
            return NULL;
        handler();
        block = allocate_by_c(size, alignment);
    }
    return block;
}

static HAK_COLD void *new_after_failure(size_t size, size_t alignment)
{
    void *block = retry(size, alignment);

    if (block == NULL)
        runtime_throw_bad_alloc(size);
    return block;
}

static HAK_COLD void *nothrow_after_failure(size_t size, size_t alignment)
{
    return runtime_catch(retry, size, alignment);
}

/* ---- Forwarding to another object's functions ---- */

static void *(*other_new(enum level level))(size_t)
{
    if (level >= LEVEL_ARRAY && interposed.new_array != NULL)
        return interposed.new_array;
    return level >= LEVEL_ONE ? interposed.new_one : NULL;
}

static void *(*other_new_aligned(enum level level))(size_t, size_t)
{
    if (level >= LEVEL_ARRAY && interposed.new_aligned_array != NULL)
        return interposed.new_aligned_array;
    return level >= LEVEL_ONE ? interposed.new_aligned : NULL;
}

/* For runtime_catch, whose second argument carries the level. */
static void *call_other_new(size_t size, size_t level)
{
    return other_new((enum level)level)(size);
}

static void *new_elsewhere(size_t size, enum level level)
{
    void *block;

    if (other_new(level) != NULL)
        return other_new(level)(size);
    block = allocate_by_c(size, 0);
    return block != NULL ? block : new_after_failure(size, 0);
}

static void *new_nothrow_elsewhere(size_t size, enum level level)
{
    void *block;

    if (other_new(level) != NULL)
        return runtime_catch(call_other_new, size, level);
    block = allocate_by_c(size, 0);
    return block != NULL ? block : nothrow_after_failure(size, 0);
}

static HAK_COLD void *new_aligned_elsewhere(size_t size, size_t alignment, enum level level)
{
    void *block;

    (void)interposed_look(INTERPOSED_OPERATORS);
    if (other_new_aligned(level) != NULL)
        return other_new_aligned(level)(size, alignment);
    block = base_is_pow2(alignment) ? allocate_by_c(size, alignment) : NULL;
    return block != NULL ? block : new_after_failure(size, alignment);
}

static HAK_COLD void *new_aligned_nothrow_elsewhere(size_t size, size_t alignment, enum level level)
{
    void *block;

    (void)interposed_look(INTERPOSED_OPERATORS);
    if (other_new_aligned(level) != NULL)
        return runtime_catch(other_new_aligned(level), size, alignment);
    block = base_is_pow2(alignment) ? allocate_by_c(size, alignment) : NULL;
    return block != NULL ? block : nothrow_after_failure(size, alignment);
}

static HAK_COLD void delete_elsewhere(void *block, enum level level)
{
    if (level >= LEVEL_ARRAY && interposed.delete_array != NULL)
        interposed.delete_array(block);
    else if (level >= LEVEL_ONE && interposed.delete_one != NULL)
        interposed.delete_one(block);
    else
        interposed_free(block, false, "operator delete");
}

static HAK_COLD void delete_aligned_elsewhere(void *block, size_t alignment, enum level level)
{
    if (level >= LEVEL_ARRAY && interposed.delete_aligned_array != NULL)
        interposed.delete_aligned_array(block, alignment);
    else if (level >= LEVEL_ONE && interposed.delete_aligned != NULL)
        interposed.delete_aligned(block, alignment);
    else
        interposed_free(block, true, "operator delete");
}

/* ---- Which operator gave a block, and which frees it ---- */

/* The kind of an operator by its mangled name: _Zna and _Zda are those of arrays. */
#define CXX_KIND(name) ((#name)[3] == 'a' ? SEAL_NEW_ARRAY : SEAL_NEW)

/* Marks the block, unless another object's operators may have given it or may take it. */
HAK_INLINE void *cxx_mark(void *block, enum seal_kind kind)
{
    if (HAK_SECURE && is_own())
        sealed_mark(block, kind);
    return block;
}

static HAK_COLD bool cxx_delete_sealed(void *block, size_t size, enum seal_kind kind)
{
    if (!is_own())
        return false;
    sealed_free(block, (struct sealed_claim){ size, 1, kind },
                  kind == SEAL_NEW ? "operator delete" : "operator delete[]");
    return true;
}

/* True: the block is freed. */
HAK_INLINE bool cxx_delete(void *block, size_t size, enum seal_kind kind)
{
    return HAK_SECURE && cxx_delete_sealed(block, size, kind);
}

/* The fast path of delete. In the hardened library it checks the kind and the size. */
HAK_INLINE bool cxx_delete_hit(void *block, size_t size, enum seal_kind kind)
{
    return front_free_told(&hak_operator_offset, block, size, kind);
}

/* ---- new ---- */

/* Serves calls that the fast path cannot. The fast path of HAKMEM's own operators is malloc's, so malloc's slow
 * functions continue from there. A thread whose hak_operator_offset is 0 goes through NAME_first. */
#define NEW_SLOW(name, after_failure)                                                  \
    HAK_CODE static HAK_COLD void *name##_first(size_t size, enum level level)         \
    {                                                                                  \
        void *block;                                                                   \
        if (!find_whether_own())                                                               \
            return name##_elsewhere(size, level);                                      \
        block = front_malloc(size);                                                    \
        return block != NULL ? block : after_failure(size, 0);                         \
    }                                                                                  \
    HAK_INLINE void *name##_after_miss(size_t size, enum level level, void *(*slow)(size_t)) \
    {                                                                                  \
        void *block;                                                                   \
        if (HAK_UNLIKELY(hak_operator_offset == 0))                                    \
            return name##_first(size, level);                                          \
        block = slow(size);                                                            \
        return HAK_LIKELY(block != NULL) ? block : after_failure(size, 0);             \
    }
NEW_SLOW(new, new_after_failure)
NEW_SLOW(new_nothrow, nothrow_after_failure)

HAK_INLINE void *new_aligned_block(size_t size, size_t alignment, enum level level)
{
    void *block;

    if (interposed_may_be(INTERPOSED_OPERATORS))
        return new_aligned_elsewhere(size, alignment, level);
    if (HAK_UNLIKELY(!base_is_pow2(alignment)))
        runtime_throw_bad_alloc(size);
    block = contract_aligned(alignment, size);
    return HAK_LIKELY(block != NULL) ? block : new_after_failure(size, alignment);
}

HAK_INLINE void *new_aligned_nothrow_block(size_t size, size_t alignment, enum level level)
{
    void *block;

    if (interposed_may_be(INTERPOSED_OPERATORS))
        return new_aligned_nothrow_elsewhere(size, alignment, level);
    if (HAK_UNLIKELY(!base_is_pow2(alignment)))
        return NULL;
    block = contract_aligned(alignment, size);
    return HAK_LIKELY(block != NULL) ? block : nothrow_after_failure(size, alignment);
}

/* A program's replacement takes the public name. own_NAME stays ours (api/interposed.c). */
#define CXX_OWN(name) HAK_HIDDEN __typeof__(name) own_##name __attribute__((alias(#name)));

/* Each operator has its own slow functions, so that its fast path has no frame and its slow path knows the operator. */
#define CXX_MISSES(name, kind, level)                                                      \
    HAK_CODE static HAK_NOINLINE void *name##_slow(size_t size)                            \
    {                                                                                      \
        return cxx_mark(kind##_after_miss(size, level, front_malloc_slow), CXX_KIND(name)); \
    }                                                                                      \
    HAK_CODE static HAK_NOINLINE void *name##_medium(size_t size)                          \
    {                                                                                      \
        return cxx_mark(kind##_after_miss(size, level, front_malloc_medium), CXX_KIND(name)); \
    }

#define CXX_NEW(name, parameters, kind, level)                                             \
    CXX_MISSES(name, kind, level)                                                          \
    CXX_WEAK(void *) name parameters                                                        \
    {                                                                                      \
        CYCLES_CALL(CYCLES_MALLOC_HIT,                                                     \
                    return front_malloc_from(&hak_operator_offset, size, CXX_KIND(name), name##_medium, name##_slow)); \
    }                                                                                      \
    CXX_OWN(name)

#define CXX_NEW_ALIGNED(name, parameters, expression)                                      \
    CXX_WEAK(void *) name parameters                                                        \
    {                                                                                      \
        return cxx_mark(expression, CXX_KIND(name));                                       \
    }                                                                                      \
    CXX_OWN(name)

#define CXX_WEAK(type) HAK_CODE __attribute__((weak)) type
#define UNUSED __attribute__((unused))
#define NOTHROW UNUSED const void *nothrow
#define HINT UNUSED unsigned char hint

CXX_NEW(_Znwm, (size_t size), new, LEVEL_C)
CXX_NEW(_Znam, (size_t size), new, LEVEL_ONE)
CXX_NEW(_ZnwmRKSt9nothrow_t, (size_t size, NOTHROW), new_nothrow, LEVEL_ONE)
CXX_NEW(_ZnamRKSt9nothrow_t, (size_t size, NOTHROW), new_nothrow, LEVEL_ARRAY)

CXX_NEW_ALIGNED(_ZnwmSt11align_val_t, (size_t size, size_t alignment), new_aligned_block(size, alignment, LEVEL_C))
CXX_NEW_ALIGNED(_ZnamSt11align_val_t, (size_t size, size_t alignment), new_aligned_block(size, alignment, LEVEL_ONE))
CXX_NEW_ALIGNED(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t size, size_t alignment, NOTHROW),
                new_aligned_nothrow_block(size, alignment, LEVEL_ONE))
CXX_NEW_ALIGNED(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t size, size_t alignment, NOTHROW),
                new_aligned_nothrow_block(size, alignment, LEVEL_ARRAY))

/* ---- new with a hint how hot the block is: each is built on the operator without the hint ---- */

CXX_NEW(_Znwm12__hot_cold_t, (size_t size, HINT), new, LEVEL_ONE)
CXX_NEW(_Znam12__hot_cold_t, (size_t size, HINT), new, LEVEL_ARRAY)
CXX_NEW(_ZnwmRKSt9nothrow_t12__hot_cold_t, (size_t size, NOTHROW, HINT), new_nothrow, LEVEL_ONE)
CXX_NEW(_ZnamRKSt9nothrow_t12__hot_cold_t, (size_t size, NOTHROW, HINT), new_nothrow, LEVEL_ARRAY)

CXX_NEW_ALIGNED(_ZnwmSt11align_val_t12__hot_cold_t, (size_t size, size_t alignment, HINT),
                new_aligned_block(size, alignment, LEVEL_ONE))
CXX_NEW_ALIGNED(_ZnamSt11align_val_t12__hot_cold_t, (size_t size, size_t alignment, HINT),
                new_aligned_block(size, alignment, LEVEL_ARRAY))
CXX_NEW_ALIGNED(_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t, (size_t size, size_t alignment, NOTHROW, HINT),
                new_aligned_nothrow_block(size, alignment, LEVEL_ONE))
CXX_NEW_ALIGNED(_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t, (size_t size, size_t alignment, NOTHROW, HINT),
                new_aligned_nothrow_block(size, alignment, LEVEL_ARRAY))

/* ---- new that returns the block's size, too ---- */

/* Another object's operator is taken to give no more than was requested. */
HAK_INLINE struct sized_block sized_block(void *block, size_t size, bool aligned)
{
    if (!interposed_is(INTERPOSED_OPERATORS))
        size = aligned ? front_usable_size(block, "operator new") : front_good_size(size);
    return (struct sized_block){ block, size };
}

/* Requests the whole usable size, because a guarded block has no more than was requested (profile/guard.h). */
static HAK_NOINLINE void *size_returning_slow(size_t size)
{
    return cxx_mark(new_after_miss(front_good_size(size), LEVEL_ONE, front_malloc_slow), SEAL_NEW);
}

static HAK_NOINLINE void *size_returning_medium(size_t size)
{
    return cxx_mark(new_after_miss(front_good_size(size), LEVEL_ONE, front_malloc_medium), SEAL_NEW);
}

HAK_INLINE struct sized_block new_sized(size_t size)
{
    CYCLES_CALL(CYCLES_MALLOC_HIT, void *block = front_malloc_from(&hak_operator_offset, size, SEAL_NEW,
                                                                   size_returning_medium, size_returning_slow);
                return sized_block(block, size, false));
}

HAK_INLINE struct sized_block new_sized_aligned(size_t size, size_t alignment)
{
    return sized_block(cxx_mark(new_aligned_block(size, alignment, LEVEL_ONE), SEAL_NEW), size, true);
}

CXX_WEAK(struct sized_block) __size_returning_new(size_t size)
{
    return new_sized(size);
}

CXX_WEAK(struct sized_block) __size_returning_new_hot_cold(size_t size, HINT)
{
    return new_sized(size);
}

CXX_WEAK(struct sized_block) __size_returning_new_aligned(size_t size, size_t alignment)
{
    return new_sized_aligned(size, alignment);
}

CXX_WEAK(struct sized_block) __size_returning_new_aligned_hot_cold(size_t size, size_t alignment, HINT)
{
    return new_sized_aligned(size, alignment);
}

/* ---- delete ---- */

static HAK_NOINLINE void delete_slow(void *block, enum level level)
{
    if (HAK_UNLIKELY(!is_own()))
        delete_elsewhere(block, level);
    else
        front_free_named(block, "operator delete");
}

static HAK_NOINLINE void delete_aligned_slow(void *block, size_t alignment, enum level level)
{
    if (HAK_UNLIKELY(!is_own()))
        delete_aligned_elsewhere(block, alignment, level);
    else
        front_free_named(block, "operator delete");
}

/* told: the size that the program passes, or SIZE_MAX. slow: the call for blocks that the fast path cannot take. */
#define CXX_DELETE(name, parameters, told, slow)                                                                \
    CXX_WEAK(void) name parameters                                                                        \
    {                                                                                                     \
        CYCLES_CALL(CYCLES_FREE_HIT, if (!cxx_delete_hit(block, told, CXX_KIND(name)) &&                  \
                                         !cxx_delete(block, told, CXX_KIND(name))) (slow); return);       \
    }                                                                                                     \
    CXX_OWN(name)

CXX_DELETE(_ZdlPv, (void *block), SIZE_MAX, delete_slow(block, LEVEL_C))
CXX_DELETE(_ZdaPv, (void *block), SIZE_MAX, delete_slow(block, LEVEL_ONE))
CXX_DELETE(_ZdlPvRKSt9nothrow_t, (void *block, NOTHROW), SIZE_MAX, delete_slow(block, LEVEL_ONE))
CXX_DELETE(_ZdaPvRKSt9nothrow_t, (void *block, NOTHROW), SIZE_MAX, delete_slow(block, LEVEL_ARRAY))
CXX_DELETE(_ZdlPvm, (void *block, size_t size), size, delete_slow(block, LEVEL_ONE))
CXX_DELETE(_ZdaPvm, (void *block, size_t size), size, delete_slow(block, LEVEL_ARRAY))
CXX_DELETE(_ZdlPvSt11align_val_t, (void *block, size_t alignment), SIZE_MAX,
           delete_aligned_slow(block, alignment, LEVEL_C))
CXX_DELETE(_ZdaPvSt11align_val_t, (void *block, size_t alignment), SIZE_MAX,
           delete_aligned_slow(block, alignment, LEVEL_ONE))
CXX_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, (void *block, size_t alignment, NOTHROW), SIZE_MAX,
           delete_aligned_slow(block, alignment, LEVEL_ONE))
CXX_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, (void *block, size_t alignment, NOTHROW), SIZE_MAX,
           delete_aligned_slow(block, alignment, LEVEL_ARRAY))
CXX_DELETE(_ZdlPvmSt11align_val_t, (void *block, size_t size, size_t alignment), size,
           delete_aligned_slow(block, alignment, LEVEL_ONE))
CXX_DELETE(_ZdaPvmSt11align_val_t, (void *block, size_t size, size_t alignment), size,
           delete_aligned_slow(block, alignment, LEVEL_ARRAY))

/* ---- Names that api/interposed.c looks for ---- */

INTERPOSED_DEFINITION(AT_new_one, _Znwm, own__Znwm)
INTERPOSED_DEFINITION(AT_new_array, _Znam, own__Znam)
INTERPOSED_DEFINITION(AT_new_aligned, _ZnwmSt11align_val_t, own__ZnwmSt11align_val_t)
INTERPOSED_DEFINITION(AT_new_aligned_array, _ZnamSt11align_val_t, own__ZnamSt11align_val_t)
INTERPOSED_DEFINITION(AT_delete_one, _ZdlPv, own__ZdlPv)
INTERPOSED_DEFINITION(AT_delete_array, _ZdaPv, own__ZdaPv)
INTERPOSED_DEFINITION(AT_delete_aligned, _ZdlPvSt11align_val_t, own__ZdlPvSt11align_val_t)
INTERPOSED_DEFINITION(AT_delete_aligned_array, _ZdaPvSt11align_val_t, own__ZdaPvSt11align_val_t)
