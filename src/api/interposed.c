#include "api/interposed.h"

#include <errno.h>
#include <stdlib.h>

#include "api/contracts.h"
#include "config/limits.h"
#include "front/fork.h"
#include "front/front.h"
#include "front/process.h"
#include "os/symbols.h"

HAK_DATA_HERE struct interposed interposed;
HAK_DATA_HERE _Atomic uint32_t interposed_names = UINT32_MAX;

/* ---- The look ---- */

/* The definitions of all files: the linker lays the section's entries in a row. */
extern const struct interposed_definition __start_hakmem_names[] __attribute__((visibility("hidden")));
extern const struct interposed_definition __stop_hakmem_names[] __attribute__((visibility("hidden")));

/* Where look_once stores the functions that come before ours. */
static const struct {
    unsigned at;
    void *place;
} kept_places[] = {
    { AT_malloc, &interposed.malloc },
    { AT_free, &interposed.free },
    { AT_realloc, &interposed.realloc },
    { AT_memalign, &interposed.memalign },
    { AT_posix_memalign, &interposed.posix_memalign },
    { AT_aligned_alloc, &interposed.aligned_alloc },
    { AT_new_one, &interposed.new_one },
    { AT_new_array, &interposed.new_array },
    { AT_new_aligned, &interposed.new_aligned },
    { AT_new_aligned_array, &interposed.new_aligned_array },
    { AT_delete_one, &interposed.delete_one },
    { AT_delete_array, &interposed.delete_array },
    { AT_delete_aligned, &interposed.delete_aligned },
    { AT_delete_aligned_array, &interposed.delete_aligned_array },
};

static _Atomic bool known; /* Order: release behind look_once, acquire: `interposed` */

static uint32_t names_of(const struct os_symbol *symbols)
{
    uint32_t names = 0;
    const struct {
        unsigned at;
        uint32_t name;
        const void *goes_to;
    } rows[] = {
        { AT_reallocarray, INTERPOSED_REALLOCARRAY, symbols[AT_realloc].before },
        { AT_cfree, INTERPOSED_CFREE, symbols[AT_free].before },
        { AT_free_sized, INTERPOSED_FREE_SIZED, symbols[AT_free].before },
        { AT_free_aligned_sized, INTERPOSED_FREE_ALIGNED_SIZED, symbols[AT_free].before },
        { AT_sdallocx, INTERPOSED_SDALLOCX, symbols[AT_free].before },
        { AT_aligned_alloc, INTERPOSED_ALIGNED_ALLOC, symbols[AT_free].before },
        { AT_memalign, INTERPOSED_MEMALIGN, symbols[AT_free].before },
        { AT_posix_memalign, INTERPOSED_POSIX_MEMALIGN, symbols[AT_free].before },
        { AT_valloc, INTERPOSED_VALLOC, symbols[AT_free].before },
        { AT_pvalloc, INTERPOSED_PVALLOC, symbols[AT_free].before },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].goes_to != NULL && symbols[rows[i].at].before == NULL)
            names |= rows[i].name;
    if (symbols[AT_malloc].before != NULL || symbols[AT_realloc].before != NULL || symbols[AT_free].before != NULL)
        names |= INTERPOSED_SIZES | INTERPOSED_OPERATORS;
    for (size_t i = AT_aligned_alloc; i <= AT_delete_aligned_array; i++)
        if (symbols[i].before != NULL)
            names |= INTERPOSED_SIZES | INTERPOSED_OPERATORS;
    return names;
}

/* Whether a library behind this one defines operators because it contains the C++ run-time, such as rustc's libLLVM.
 * Such a library is often linked to call its own operators, while its callers call ours. Then ours may free its blocks,
 * and the reverse; that is no misuse where all operators are built on malloc. A C++ run-time by itself calls its
 * operators only through the linker's lookup. */
static bool operators_are_behind(const struct os_symbol *symbol)
{
    static const char *const run_times[] = { "libstdc++.so", "libc++.so", "libc++abi.so", "libcxxrt.so", NULL };

    return symbol->own != NULL && os_symbol_is_behind(symbol->name, symbol->own, run_times);
}

static void look_once(void)
{
    struct os_symbol symbols[AT_COUNT] = { 0 };
    const struct interposed_definition *definition;
    uint32_t names;

    for (definition = __start_hakmem_names; definition != __stop_hakmem_names; definition++)
        symbols[definition->at] =
            (struct os_symbol){ definition->name, (const void *)(uintptr_t)definition->own, 0, NULL };
    os_symbols_before(symbols, AT_COUNT);
    /* A program linked with the override archive may have replaced our weak definition under the public name. */
    for (definition = __start_hakmem_names; definition != __stop_hakmem_names; definition++)
        if (definition->visible != definition->own)
            symbols[definition->at].before = (void *)(uintptr_t)definition->visible;
    /* ISO C cannot convert a pointer to an object to one to a function. POSIX gives both one representation. */
    for (size_t i = 0; i < sizeof kept_places / sizeof kept_places[0]; i++)
        __builtin_memcpy(kept_places[i].place, &symbols[kept_places[i].at].before, sizeof(void *));
    names = names_of(symbols);
    if (HAK_SECURE && process_init() && operators_are_behind(&symbols[AT_new_one]))
        names |= INTERPOSED_OPERATORS;
    atomic_store_explicit(&interposed_names, names, memory_order_release);
}

/* Threads that look at the same time find the same. None waits for another, which fork or a signal may have stopped. */
bool interposed_look(enum interposed_name name)
{
    if (!atomic_load_explicit(&known, memory_order_acquire)) {
        look_once();
        atomic_store_explicit(&known, true, memory_order_release);
    }
    return (atomic_load_explicit(&interposed_names, memory_order_relaxed) & name) != 0;
}

/* At the start, while nobody can change the dynamic linker's list. It may run before at_start and initialises the
 * process, so it registers the handlers of fork first: a fork waits for a thread that initialises the process. */
__attribute__((constructor(101))) static void look_at_start(void)
{
    fork_register();
    (void)interposed_look(INTERPOSED_OPERATORS);
}

/* ---- Aligned blocks ---- */

/* The thread is inside another object's aligned function, which may call one of ours. */
static _Thread_local bool forwarding;

/* A block from the object whose free comes first. *tried false: it has no function that gives an aligned block. */
static void *aligned_of_other(size_t alignment, size_t size, bool *tried)
{
    void *block = NULL;

    *tried = true;
    if (interposed.aligned_alloc != NULL) /* C17 demands a size that is a multiple of the alignment */
        return size > SIZE_MAX - alignment ? NULL : interposed.aligned_alloc(alignment, base_align_up(size, alignment));
    if (interposed.memalign != NULL)
        return interposed.memalign(alignment, size);
    if (interposed.posix_memalign != NULL)
        return interposed.posix_memalign(&block, base_max(alignment, sizeof(void *)), size) == 0 ? block : NULL;
    if (interposed.malloc != NULL && alignment <= BLOCK_ALIGN) {
        block = interposed.malloc(size);
        if (((uintptr_t)block & (alignment - 1)) == 0)
            return block;
        interposed_free(block, false, "free");
    }
    *tried = false;
    return NULL;
}

void *interposed_aligned(size_t alignment, size_t size)
{
    void *block = NULL;
    bool tried = false;

    if ((interposed.free != NULL || interposed.aligned_alloc != NULL) && !forwarding) {
        forwarding = true;
        block = aligned_of_other(alignment, size, &tried);
        forwarding = false;
        if (tried && block == NULL)
            errno = ENOMEM;
    }
    return tried ? block : contract_aligned(alignment, size);
}

void *interposed_aligned_by(enum interposed_name name, size_t alignment, size_t size)
{
    return interposed_look(name) ? interposed_aligned(alignment, size) : contract_aligned(alignment, size);
}

/* An aligned block can be ours only if the other object has no aligned function. */
static bool is_ours(const void *block)
{
    return interposed.aligned_alloc == NULL && interposed.memalign == NULL && interposed.posix_memalign == NULL &&
           block != NULL && front_block_size(block) != 0;
}

void interposed_free(void *block, bool aligned, const char *function)
{
    if (interposed.free == NULL || (aligned && is_ours(block)))
        front_free_named(block, function);
    else
        interposed.free(block);
}
