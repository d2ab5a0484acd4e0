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
/* HAK_AT_START: code that every process runs at its start. The linker puts it with other such code, so that the rest of
 * its file need not be mapped.
 *
 * HAK_CODE: tools/amalgamate.py puts it before each function of the one-file source. A macro that defines a function
 * has it already. HAK_CODE_SECTION: for functions in assembly. So all of HAKMEM's code is in one section, however the
 * compiler moves functions (-flto, -ffunction-sections), and HAKMEM tells its frames from the program's by it
 * (os/unwind.c). In the archives, objcopy renames the compiler's sections (cmake/HakmemLibraries.cmake). */
#if defined(HAK_ONE_FILE)
#define HAK_CODE_SECTION "hakmem_text"
#define HAK_CODE __attribute__((section(HAK_CODE_SECTION)))
#define HAK_AT_START
#else
#define HAK_CODE_SECTION ".text"
#define HAK_CODE
#define HAK_AT_START __attribute__((section(".text.startup")))
#endif
#define HAK_COLD __attribute__((cold, noinline))
#define HAK_PRINTF(string, first) __attribute__((format(printf, string, first)))

/* Functions and data that several files share. A header declares a function with HAK_HIDDEN and data with HAK_DATA. The
 * file that defines the data says HAK_DATA_HERE. It says HAK_DATA_UNLESS if another file, where it is linked, may
 * replace the definition. In the one-file source (tools/amalgamate.py) all of them are static, so that they clash with
 * no name of the program that includes it. */
#if defined(HAK_ONE_FILE)
/* only the override or the cycle profile use some of these functions */
#define HAK_INLINE static inline __attribute__((always_inline, unused))
#define HAK_HIDDEN static __attribute__((unused))
#define HAK_DATA static __attribute__((unused))
#define HAK_DATA_HERE static
#define HAK_DATA_UNLESS static
#else
#define HAK_INLINE static inline __attribute__((always_inline))
#define HAK_HIDDEN __attribute__((visibility("hidden")))
#define HAK_DATA HAK_HIDDEN extern
#define HAK_DATA_HERE
/* not a weak declaration: gold does not make a hidden one's address NULL */
#define HAK_DATA_UNLESS __attribute__((weak))
#endif
/* As HAK_HIDDEN, for names that assembly uses or defines: they are global in every build. HAK_FOR_ASSEMBLY: a function
 * that only assembly calls. Without `used` the optimiser drops it at link time (-flto), where it sees no caller. */
#define HAK_IN_ASSEMBLY extern __attribute__((visibility("hidden")))
#define HAK_FOR_ASSEMBLY HAK_IN_ASSEMBLY __attribute__((used))

/* Alignments that keep two threads' words on two lines. HAK_LINE_PAIR: also where lines are fetched in pairs. */
#define HAK_CACHE_LINE 64
#define HAK_LINE_PAIR 128

#define HAK_KIB ((size_t)1024)
#define HAK_MIB (1024 * HAK_KIB)
#define HAK_GIB (1024 * HAK_MIB)

/* Debug builds check the numbered invariants; release builds contain no such check. HAK_DEBUG is a constant rather
 * than an #if, so that every build type-checks every check. */
#if defined(HAKMEM_BUILD_DEBUG) && HAKMEM_BUILD_DEBUG
enum { HAK_DEBUG = 1 };
#else
enum { HAK_DEBUG = 0 };
#endif

/* Debug builds carry the debug counters (observe/counters.h). -DHAKMEM_DEBUG_COUNTERS=1 adds them to another build, and
 * =0 takes them out of a debug build. */
#if defined(HAKMEM_DEBUG_COUNTERS)
enum { HAK_DEBUG_COUNTERS = HAKMEM_DEBUG_COUNTERS };
#else
enum { HAK_DEBUG_COUNTERS = HAK_DEBUG };
#endif

/* The hardened library, libhakmem-secure, has the same sources. Every call checks blocks there (front/seal.h,
 * front/sealed.h). A macro: ccache then compiles a source that does not use it once for both libraries. */
#if defined(HAKMEM_BUILD_SECURE) && HAKMEM_BUILD_SECURE
#define HAK_SECURE 1
#else
#define HAK_SECURE 0
#endif

/* The largest pages that a system for the processor may have. */
#if defined(__aarch64__)
#define HAK_PAGE_MOST 65536
#else
#define HAK_PAGE_MOST 4096
#endif
/* For data that the hardened library makes read-only: it fills whole pages of the system. */
#define HAK_SEALED __attribute__((aligned(HAK_SECURE ? HAK_PAGE_MOST : 8)))

/* ThreadSanitizer ends a program that maps memory outside the address ranges it allows. */
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

/* Reports a broken invariant of HAKMEM and aborts. Never allocates. Any thread. */
HAK_HIDDEN _Noreturn void base_assert_fail(const char *expression, const char *file, int line);

/* Every build checks this. For conditions whose failure would corrupt the program's memory. */
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

/* Milliseconds from `then` to `now`, by clocks that wrap. 0 if `then` is ahead by up to a minute: another thread read
 * the clock later. */
HAK_INLINE uint32_t base_elapsed(uint32_t now, uint32_t then)
{
    uint32_t passed = now - then;
    return passed > UINT32_MAX - 60000 ? 0 : passed;
}

/* ---- Bits ---- */

/* Index of the lowest and of the highest set bit; the word is not 0. */
HAK_INLINE unsigned base_low_bit(uint64_t word) { return (unsigned)__builtin_ctzll(word); }
HAK_INLINE unsigned base_high_bit(uint64_t word) { return 63u - (unsigned)__builtin_clzll(word); }
/* Adds neighbouring bits, then pairs, then groups of four, then all bytes. __builtin_popcountll would be a call where
 * the processor may lack the instruction. */
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
