/* See replay_ops.h. */
#define _GNU_SOURCE
#include "replay_ops.h"

#include "../../bench/drivers/common.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE_STEP = 4096, SPINS = 200 };
#define WORD sizeof(uint64_t)

struct replay_slot *replay_slots;
bool replay_touches;
_Atomic uint64_t replay_waits;

/* ---- Order ---- */

void replay_sleep(_Atomic uint32_t *word, uint32_t value)
{
    struct timespec most = {0, 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &most, NULL, 0);
}

void replay_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#elif defined(__riscv)
    __asm__ volatile(".4byte 0x0100000f"); /* pause */
#endif
}

static void wait_for(struct replay_slot *slot, uint32_t version)
{
    if (atomic_load_explicit(&slot->version, memory_order_acquire) == version)
        return;
    atomic_fetch_add_explicit(&replay_waits, 1, memory_order_relaxed);
    for (int i = 0; i < SPINS; i++) {
        pause_briefly();
        if (atomic_load_explicit(&slot->version, memory_order_acquire) == version)
            return;
    }
    atomic_fetch_add(&slot->sleepers, 1);
    uint32_t now;
    while ((now = atomic_load(&slot->version)) != version)
        replay_sleep(&slot->version, now);
    atomic_fetch_sub(&slot->sleepers, 1);
}

static void pass_on(struct replay_slot *slot, const struct trace_op *op)
{
    uint32_t version = op->version + 1;
    if ((op->packed & TRACE_SIGNALS) == 0) {
        atomic_store_explicit(&slot->version, version, memory_order_relaxed);
        return;
    }
    atomic_store(&slot->version, version);
    if (atomic_load(&slot->sleepers) != 0)
        replay_wake(&slot->version);
}

/* ---- Contents ---- */

static inline uint64_t word_at(uint64_t key, size_t offset)
{
    return (key ^ offset) * UINT64_C(0x9E3779B97F4A7C15);
}

static inline uint64_t key_of(uint32_t slot, uint32_t stamp)
{
    return (uint64_t)slot << 32 | stamp;
}

/* A block has words at its first bytes, at each page's offset below words_end, and at its last bytes, but none that the
 * last word would overlap. A block smaller than a word has as many of the word's bytes as fit. */
static inline size_t words_end(size_t size)
{
    if (size >= 2 * WORD)
        return size - 2 * WORD + 1;
    return size >= WORD ? 1 : 0;
}

static void write_words(char *block, size_t size, uint64_t key)
{
    uint64_t word = word_at(key, 0);
    if (size < WORD) {
        memcpy(block, &word, size);
        return;
    }
    for (size_t at = 0; at < words_end(size); at += PAGE_STEP) {
        word = word_at(key, at);
        memcpy(block + at, &word, WORD);
    }
    if (size >= 2 * WORD) {
        word = word_at(key, size);
        memcpy(block + size - WORD, &word, WORD);
    }
}

/* Whether the words that a block of `size` bytes got are still in its first `kept` bytes. */
static bool has_words(const char *block, size_t size, size_t kept, uint64_t key)
{
    uint64_t word = word_at(key, 0);
    if (size < WORD || kept < WORD)
        return memcmp(block, &word, size < kept ? size : kept) == 0;
    for (size_t at = 0; at < words_end(size); at += PAGE_STEP) {
        if (at + WORD > kept)
            return true;
        word = word_at(key, at);
        if (memcmp(block + at, &word, WORD) != 0)
            return false;
    }
    word = word_at(key, size);
    return size < 2 * WORD || kept < size || memcmp(block + size - WORD, &word, WORD) == 0;
}

/* Checks that calloc's memory is zero at the places of the words. */
static bool is_zero(const char *block, size_t size)
{
    static const char zeros[WORD];
    if (size < WORD)
        return memcmp(block, zeros, size) == 0;
    for (size_t at = 0; at < words_end(size); at += PAGE_STEP) {
        if (memcmp(block + at, zeros, WORD) != 0)
            return false;
    }
    return memcmp(block + size - WORD, zeros, WORD) == 0;
}

static _Noreturn void fail_contents(const struct trace_op *op, const void *block, size_t size)
{
    bench_fail("block %p of %zu bytes lost its contents (slot %u, operation %u on it)", block, size, op->slot,
               op->version);
}

/* ---- Operations ---- */

/* A block of 0 bytes may be NULL on one allocator and not on another. */
static void take_block(struct replay_slot *slot, const struct trace_op *op, void *block)
{
    size_t size = trace_size(op);
    if (block == NULL && size > 0)
        bench_fail("no memory for %zu bytes (slot %u, operation %u on it)", size, op->slot, op->version);
    slot->block = block;
    slot->size = size;
    slot->stamp = op->version;
    if (replay_touches && block != NULL)
        write_words(block, size, key_of(op->slot, op->version));
}

static void *allocate_zeros(const struct trace_op *op)
{
    size_t size = trace_size(op);
    void *block = calloc(1, size);
    if (replay_touches && block != NULL && !is_zero(block, size))
        bench_fail("calloc of %zu bytes gave memory that is not zero", size);
    return block;
}

/* Does all aligned kinds with posix_memalign, which every allocator has. */
static void *allocate_aligned(const struct trace_op *op)
{
    size_t alignment = (size_t)1 << trace_alignment(op);
    void *block = NULL;
    int error = posix_memalign(&block, alignment < sizeof(void *) ? sizeof(void *) : alignment, trace_size(op));
    if (error != 0)
        return NULL;
    if (((uintptr_t)block & (alignment - 1)) != 0)
        bench_fail("block %p is not aligned to %zu bytes", block, alignment);
    return block;
}

static void check_block(const struct replay_slot *slot, const struct trace_op *op)
{
    if (replay_touches && slot->block != NULL &&
        !has_words(slot->block, slot->size, slot->size, key_of(op->slot, slot->stamp)))
        fail_contents(op, slot->block, slot->size);
}

static void resize(struct replay_slot *slot, const struct trace_op *op)
{
    size_t size = trace_size(op), kept = size < slot->size ? size : slot->size;
    bool had_words = slot->block != NULL;
    check_block(slot, op);
    void *block = realloc(slot->block, size);
    if (replay_touches && had_words && block != NULL &&
        !has_words(block, slot->size, kept, key_of(op->slot, slot->stamp)))
        fail_contents(op, block, slot->size);
    take_block(slot, op, block);
}

static void release(struct replay_slot *slot, const struct trace_op *op)
{
    check_block(slot, op);
    free(slot->block);
    slot->block = NULL;
    slot->size = 0;
}

void replay_do(const struct trace_op *op)
{
    if (op->slot == TRACE_NO_SLOT) {
        free(NULL);
        return;
    }
    struct replay_slot *slot = &replay_slots[op->slot];
    if ((op->packed & TRACE_WAITS) != 0)
        wait_for(slot, op->version);
    switch (trace_kind(op)) {
    case TRACE_MALLOC:
        take_block(slot, op, malloc(trace_size(op)));
        break;
    case TRACE_CALLOC:
        take_block(slot, op, allocate_zeros(op));
        break;
    case TRACE_REALLOC:
    case TRACE_REALLOCARRAY:
        resize(slot, op);
        break;
    case TRACE_POSIX_MEMALIGN:
    case TRACE_ALIGNED_ALLOC:
    case TRACE_MEMALIGN:
    case TRACE_VALLOC:
    case TRACE_PVALLOC:
        take_block(slot, op, allocate_aligned(op));
        break;
    case TRACE_FREE:
    case TRACE_REALLOC_FREE:
        release(slot, op);
        break;
    case TRACE_THREAD:
    case TRACE_REALLOC_BEGIN:
    case TRACE_THREAD_END:
    case TRACE_THREAD_FAILED:
        bench_fail("slot %u: no operation of kind %d", op->slot, (int)trace_kind(op));
    }
    pass_on(slot, op);
}
