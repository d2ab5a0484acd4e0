/*
 * Clang's -fsanitize=alloc-token calls these functions in place of malloc's family. A token for the allocated type is
 * the last argument, or part of the name (-fsanitize-alloc-token-fast-abi). In libhakmem-secure alone.
 *
 * By default types that hold pointers have tokens of the upper half, others of the lower (mode typehashpointersplit,
 * https://clang.llvm.org/docs/AllocToken.html). Blocks without pointers overflow most. They lie in a heap of their own,
 * so that none lies beside a block with pointers. Token 0 can also mean an unknown type, and is served as by malloc. In
 * the fast interface, with -falloc-token-max=2, all types without pointers have token 0.
 */
#include <errno.h>

#include "api/interposed.h"
#include "api/names.h"
#include "front/front.h"
#include "front/sealed.h"
#include "front/process.h"
#include "os/os.h"

/* The plain functions. */
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *block, size_t size);
void *reallocarray(void *block, size_t count, size_t size);
void *aligned_alloc(size_t alignment, size_t size);
int posix_memalign(void **block, size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size);
void *valloc(size_t size);
void *pvalloc(size_t size);

#define FAST_DATA ((size_t)1)     /* for the fast interface's token 0 */
#define FAST_POINTERS SIZE_MAX    /* for its token 1 */

/* The heap of blocks without pointers; NULL: memory is out. */
static struct heap *data_heap(void)
{
    static struct heap *_Atomic heap; /* Order: release by its maker, acquire: the heap's fields */
    struct heap *found = atomic_load_explicit(&heap, memory_order_acquire), *fresh;

    if (HAK_LIKELY(found != NULL))
        return found;
    fresh = front_heap_new();
    if (fresh == NULL || atomic_compare_exchange_strong(&heap, &found, fresh))
        return fresh;
    front_heap_destroy(fresh);
    return found;
}

/* A block for a type without pointers. NULL: the plain function serves the call. */
static void *data_place(size_t token, size_t alignment, size_t size, bool zeroed)
{
    struct heap *heap;
    int before = errno;
    void *block;

    if (token == 0 || token > SIZE_MAX / 2 || size == 0 || size > REQUEST_MAX || !base_is_pow2(alignment) ||
        !process_init())
        return NULL;
    heap = data_heap();
    block = heap ? front_heap_aligned_alloc(heap, base_max(alignment, BLOCK_ALIGN), size, zeroed) : NULL;
    errno = before;
    return block;
}

static void *data_allocate(size_t token, size_t alignment, size_t size)
{
    return data_place(token, alignment, size, false);
}

/* As data_place, for an operator. NULL also where the program's own operators come first. */
static void *data_new(size_t token, size_t alignment, size_t size, enum seal_kind kind)
{
    void *block = interposed_is(INTERPOSED_OPERATORS) ? NULL : data_allocate(token, alignment, size);

    sealed_mark(block, kind);
    return block;
}

/* Defines NAME with a token as last parameter. first: gives `data`, the block without pointers, or NULL. second: the
 * result with `data`. plain: the call without. */
#define TOKEN_FUNCTION(name, returns, parameters, first, second, plain)                                              \
    returns __alloc_token_##name(TOKEN_UNPACK parameters, size_t token);                                             \
    returns __alloc_token_0_##name parameters;                                                                       \
    returns __alloc_token_1_##name parameters;                                                                       \
    static returns token_##name(TOKEN_UNPACK parameters, size_t token)                                               \
    {                                                                                                                \
        void *data = first;                                                                                          \
        return data ? (second) : (plain);                                                                            \
    }                                                                                                                \
    API_EXPORT returns __alloc_token_##name(TOKEN_UNPACK parameters, size_t token) { return token_##name \
        TOKEN_PASS_##name(token); } \
    API_EXPORT returns __alloc_token_0_##name parameters { return token_##name TOKEN_PASS_##name(FAST_DATA); }        \
    API_EXPORT returns __alloc_token_1_##name parameters { return token_##name TOKEN_PASS_##name(FAST_POINTERS); }
#define TOKEN_UNPACK(...) __VA_ARGS__

#define TOKEN_PASS_malloc(token) (size, token)
#define TOKEN_PASS_calloc(token) (count, size, token)
#define TOKEN_PASS_realloc(token) (block, size, token)
#define TOKEN_PASS_reallocarray(token) (block, count, size, token)
#define TOKEN_PASS_aligned_alloc(token) (alignment, size, token)
#define TOKEN_PASS_memalign(token) (alignment, size, token)
#define TOKEN_PASS_posix_memalign(token) (block, alignment, size, token)
#define TOKEN_PASS_valloc(token) (size, token)
#define TOKEN_PASS_pvalloc(token) (size, token)

/* 0: the product overflows, and the plain function serves the call. */
static size_t product(size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? 0 : bytes;
}

TOKEN_FUNCTION(malloc, void *, (size_t size), data_allocate(token, 1, size), data, malloc(size))
TOKEN_FUNCTION(calloc, void *, (size_t count, size_t size), data_place(token, 1, product(count, size), true), data,
               calloc(count, size))
/* A block stays in its heap. */
TOKEN_FUNCTION(realloc, void *, (void *block, size_t size), block ? NULL : data_allocate(token, 1, size), data,
               realloc(block, size))
TOKEN_FUNCTION(reallocarray, void *, (void *block, size_t count, size_t size),
               block ? NULL : data_allocate(token, 1, product(count, size)), data,
               reallocarray(block, count, size))
TOKEN_FUNCTION(aligned_alloc, void *, (size_t alignment, size_t size), data_allocate(token, alignment, size),
               data, aligned_alloc(alignment, size))
TOKEN_FUNCTION(memalign, void *, (size_t alignment, size_t size), data_allocate(token, alignment, size), data,
               memalign(alignment, size))
TOKEN_FUNCTION(posix_memalign, int, (void **block, size_t alignment, size_t size),
               alignment % sizeof(void *) ? NULL : data_allocate(token, alignment, size), (*block = data, 0),
               posix_memalign(block, alignment, size))
TOKEN_FUNCTION(valloc, void *, (size_t size), data_allocate(token, os_page_size(), size), data, valloc(size))
TOKEN_FUNCTION(pvalloc, void *, (size_t size),
               data_allocate(token, os_page_size(), size > REQUEST_MAX ? 0 : base_align_up(size, os_page_size())),
               data, pvalloc(size))

/* ---- The operators (api/cxx.c) ---- */

#define TOKEN_NEW(name, parameters, passed, alignment, kind)                                                         \
    void *name parameters;                                                                                           \
    void *__alloc_token_##name(TOKEN_UNPACK parameters, size_t token);                                               \
    void *__alloc_token_0_##name parameters;                                                                         \
    void *__alloc_token_1_##name parameters;                                                                         \
    API_EXPORT void *__alloc_token_##name(TOKEN_UNPACK parameters, size_t token)                                     \
    {                                                                                                                \
        void *data = data_new(token, alignment, size, kind);                                                         \
        return data ? data : name passed;                                                                            \
    }                                                                                                                \
    API_EXPORT void *__alloc_token_0_##name parameters                                                               \
    {                                                                                                                \
        void *data = data_new(FAST_DATA, alignment, size, kind);                                                     \
        return data ? data : name passed;                                                                            \
    }                                                                                                                \
    API_EXPORT void *__alloc_token_1_##name parameters { return name passed; }

TOKEN_NEW(_Znwm, (size_t size), (size), 1, SEAL_NEW)
TOKEN_NEW(_Znam, (size_t size), (size), 1, SEAL_NEW_ARRAY)
TOKEN_NEW(_ZnwmRKSt9nothrow_t, (size_t size, const void *nothrow), (size, nothrow), 1, SEAL_NEW)
TOKEN_NEW(_ZnamRKSt9nothrow_t, (size_t size, const void *nothrow), (size, nothrow), 1, SEAL_NEW_ARRAY)
TOKEN_NEW(_ZnwmSt11align_val_t, (size_t size, size_t aligned), (size, aligned), aligned, SEAL_NEW)
TOKEN_NEW(_ZnamSt11align_val_t, (size_t size, size_t aligned), (size, aligned), aligned, SEAL_NEW_ARRAY)
TOKEN_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t size, size_t aligned, const void *nothrow),
          (size, aligned, nothrow), aligned, SEAL_NEW)
TOKEN_NEW(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t size, size_t aligned, const void *nothrow),
          (size, aligned, nothrow), aligned, SEAL_NEW_ARRAY)
