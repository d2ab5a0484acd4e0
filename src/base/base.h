/* The words every layer speaks: attributes, bit and size arithmetic, assertions. Depends on the compiler only. */
#ifndef HAK_BASE_BASE_H
#define HAK_BASE_BASE_H

#include <limits.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAK_LIKELY(x) __builtin_expect(!!(x), 1)
#define HAK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HAK_NOINLINE __attribute__((noinline))
#define HAK_COLD __attribute__((cold, noinline))
#define HAK_PRINTF(string, first) __attribute__((format(printf, string, first)))

/* Names that several files use, of functions and of data. A header declares a function with HAK_HIDDEN, and data with HAK_DATA; the
 * one file that defines the data says HAK_DATA_HERE. In the one-file source (tools/amalgamate.py) they are static, so that they meet
 * no name of the program that it is part of. */
#if defined(HAK_ONE_FILE)
#define HAK_INLINE static inline __attribute__((always_inline, unused)) /* the override or the cycle profile alone use some */
#define HAK_HIDDEN static __attribute__((unused))
#define HAK_DATA static __attribute__((unused))
#define HAK_DATA_HERE static
#else
#define HAK_INLINE static inline __attribute__((always_inline))
#define HAK_HIDDEN __attribute__((visibility("hidden")))
#define HAK_DATA HAK_HIDDEN extern
#define HAK_DATA_HERE
#endif
/* The same of names that assembly uses or defines, which are global in every build. */
#define HAK_IN_ASSEMBLY extern __attribute__((visibility("hidden")))

/* Alignment that keeps two threads' words on two lines; 128 because adjacent lines are fetched in pairs. */
#define HAK_CACHE_LINE 64
#define HAK_LINE_PAIR 128

#define HAK_KIB ((size_t)1024)
#define HAK_MIB (1024 * HAK_KIB)
#define HAK_GIB (1024 * HAK_MIB)

/* Debug builds check the numbered invariants; release builds carry none of it (HAKMEM_BUILD_* as the source
 * documents name them). A constant rather than #if, so that every build type-checks every check. */
#if defined(HAKMEM_BUILD_DEBUG) && HAKMEM_BUILD_DEBUG
enum { HAK_DEBUG = 1 };
#else
enum { HAK_DEBUG = 0 };
#endif

/* ThreadSanitizer lets a program map only some stretches of addresses, and ends it elsewhere. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAK_WITH_THREAD_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(HAK_WITH_THREAD_SANITIZER)
enum { HAK_THREAD_SANITIZER = 1 };
#else
enum { HAK_THREAD_SANITIZER = 0 };
#endif

/* Reports a broken invariant of HAKMEM's own and aborts; never allocates. Any thread. */
HAK_HIDDEN _Noreturn void base_assert_fail(const char *expression, const char *file, int line);

/* Checked in every build: where going on would corrupt a user's memory. */
#define HAK_CHECK(expression) \
    (HAK_LIKELY(expression) ? (void)0 : base_assert_fail(#expression, __FILE__, __LINE__))
/* Checked in debug builds. */
#define HAK_ASSERT(expression) (HAK_DEBUG ? HAK_CHECK(expression) : (void)0)

/* ---- Sizes and alignments (bytes; alignments are powers of two) ---- */

HAK_INLINE bool base_is_pow2(size_t n) { return n != 0 && (n & (n - 1)) == 0; }
HAK_INLINE size_t base_align_down(size_t n, size_t alignment) { return n & ~(alignment - 1); }
HAK_INLINE size_t base_align_up(size_t n, size_t alignment) { return (n + alignment - 1) & ~(alignment - 1); }
HAK_INLINE size_t base_min(size_t a, size_t b) { return a < b ? a : b; }
HAK_INLINE size_t base_max(size_t a, size_t b) { return a > b ? a : b; }

/* ---- Bits ---- */

/* Index of the lowest and of the highest set bit; the word is not 0. */
HAK_INLINE unsigned base_low_bit(uint64_t word) { return (unsigned)__builtin_ctzll(word); }
HAK_INLINE unsigned base_high_bit(uint64_t word) { return 63u - (unsigned)__builtin_clzll(word); }
/* Sums of neighbouring bits, pairs and fours, then of all bytes: the compiler's own is a call where the processor may lack the
 * instruction. */
HAK_INLINE unsigned base_count_bits(uint64_t word)
{
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (unsigned)(word * UINT64_C(0x0101010101010101) >> 56);
}
/* The `count` lowest bits set; count 0..64. */
HAK_INLINE uint64_t base_low_mask(unsigned count) { return count >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1; }

#endif
