/* Protects the C and C++ names that programs use (api/libc.c, api/cxx.c), at each contract's edges.
 *
 * The program is linked with libhakmem.so. tests/process/programs runs real programs. */
#define _GNU_SOURCE
#include "support.h"

/* The real functions, in place of cmocka's macros. */
#undef calloc
#undef free
#undef malloc
#undef realloc

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "hakmem/hakmem.h"

void cfree(void *block);
size_t malloc_good_size(size_t size);
void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t alignment, size_t size);
void *mallocx(size_t size, int flags);
size_t xallocx(void *block, size_t size, size_t extra, int flags);
size_t sallocx(const void *block, int flags);
void sdallocx(void *block, size_t size, int flags);
size_t nallocx(size_t size, int flags);
void *__libc_malloc(size_t size);
void __libc_free(void *block);
void __libc_cfree(void *block);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void *__libc_valloc(size_t size);
void *__libc_pvalloc(size_t size);
void *__libc_reallocarray(void *block, size_t count, size_t size);
int __posix_memalign(void **block, size_t alignment, size_t size);

/* Volatile: the compiler must not assume what malloc returns, or drop a malloc whose block is unused. */
static void *(*volatile call_malloc)(size_t) = malloc;
static void (*volatile call_free)(void *) = free;
static volatile size_t too_large = (size_t)PTRDIFF_MAX + 1;

/* Fails unless the block is HAKMEM's: hak_usable_size aborts on any other block. */
static void assert_ours(void *block, size_t size, size_t alignment)
{
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % alignment, 0);
    assert_true(hak_usable_size(block) >= size);
    memset(block, 1, hak_usable_size(block));
}

/* Stores the symbol that dlsym finds in a function pointer. */
static void find(void *function, const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    assert_non_null(address);
    memcpy(function, &address, sizeof address);
}

static void test_names_are_ours(void **state)
{
    (void)state;
    static const char *const names[] = {
        "malloc",
        "free",
        "calloc",
        "realloc",
        "reallocarray",
        "memalign",
        "posix_memalign",
        "aligned_alloc",
        "valloc",
        "pvalloc",
        "cfree",
        "malloc_usable_size",
        "malloc_good_size",
        "free_sized",
        "free_aligned_sized",
        "mallinfo",
        "mallinfo2",
        "mallopt",
        "malloc_trim",
        "malloc_stats",
        "malloc_info",
        "mallocx",
        "rallocx",
        "xallocx",
        "sallocx",
        "nallocx",
        "dallocx",
        "sdallocx",
        "_Znwm",
        "_Znam",
        "_ZnwmRKSt9nothrow_t",
        "_ZnamRKSt9nothrow_t",
        "_ZnwmSt11align_val_t",
        "_ZnamSt11align_val_t",
        "_ZnwmSt11align_val_tRKSt9nothrow_t",
        "_ZnamSt11align_val_tRKSt9nothrow_t",
        "_ZdlPv",
        "_ZdaPv",
        "_ZdlPvRKSt9nothrow_t",
        "_ZdaPvRKSt9nothrow_t",
        "_ZdlPvm",
        "_ZdaPvm",
        "_ZdlPvSt11align_val_t",
        "_ZdaPvSt11align_val_t",
        "_ZdlPvmSt11align_val_t",
        "_ZdaPvmSt11align_val_t",
        "_ZdlPvSt11align_val_tRKSt9nothrow_t",
        "_ZdaPvSt11align_val_tRKSt9nothrow_t",
        "_Znwm12__hot_cold_t",
        "_Znam12__hot_cold_t",
        "_ZnwmRKSt9nothrow_t12__hot_cold_t",
        "_ZnamRKSt9nothrow_t12__hot_cold_t",
        "_ZnwmSt11align_val_t12__hot_cold_t",
        "_ZnamSt11align_val_t12__hot_cold_t",
        "_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t",
        "_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t",
        "__size_returning_new",
        "__size_returning_new_hot_cold",
        "__size_returning_new_aligned",
        "__size_returning_new_aligned_hot_cold",
    };
    Dl_info ours, its;
    assert_true(dladdr((void *)(uintptr_t)hak_version, &ours) != 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *address = dlsym(RTLD_DEFAULT, names[i]);
        if (address == NULL || dladdr(address, &its) == 0 || its.dli_fbase != ours.dli_fbase)
            fail_msg("%s is not HAKMEM's", names[i]);
    }
}

static void test_blocks(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 16, 100, 1024, 5000, 40000, 300000, 3000000 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t size = sizes[i], page = (size_t)sysconf(_SC_PAGESIZE);
        void *blocks[] = { call_malloc(size),
                           calloc(size, 3),
                           realloc(NULL, size),
                           reallocarray(NULL, size, 2),
                           valloc(size),
                           pvalloc(size),
                           memalign(64, size),
                           aligned_alloc(256, size),
                           strdup("text"),
                           __libc_malloc(size),
                           __libc_calloc(2, size),
                           __libc_realloc(NULL, size),
                           __libc_valloc(size),
                           __libc_pvalloc(size),
                           __libc_memalign(128, size),
                           __libc_reallocarray(NULL, 1, size),
                           NULL };
        assert_ours(blocks[0], size, 16);
        assert_ours(blocks[1], 3 * size, 16);
        assert_ours(blocks[3], 2 * size, 16);
        assert_ours(blocks[4], size, page);
        assert_ours(blocks[5], base_align_up(size, page), page);
        assert_ours(blocks[6], size, 64);
        assert_ours(blocks[7], size, 256);
        assert_ours(blocks[8], 5, 16);
        assert_ours(blocks[12], size, page);
        assert_ours(blocks[13], base_align_up(size, page), page);
        assert_ours(blocks[14], size, 128);
        assert_int_equal(__posix_memalign(&blocks[16], 512, size), 0);
        assert_ours(blocks[16], size, 512);
        assert_int_equal(malloc_usable_size(blocks[0]), hak_usable_size(blocks[0]));
        assert_int_equal(malloc_good_size(size), hak_good_size(size));
        errno = 4711;
        for (size_t j = 0; j < sizeof blocks / sizeof blocks[0]; j++) {
            if (j % 4 == 0)
                cfree(blocks[j]);
            else if (j % 4 == 1)
                __libc_free(blocks[j]);
            else if (j % 4 == 2)
                __libc_cfree(blocks[j]);
            else
                call_free(blocks[j]);
        }
        assert_int_equal(errno, 4711);
    }
    assert_int_equal(malloc_usable_size(NULL), 0);
}

static void test_sized_free(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 100, 5000, 40000, 300000, 3000000 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        free_sized(call_malloc(sizes[i]), sizes[i]);
        free_aligned_sized(aligned_alloc(4096, sizes[i]), 4096, sizes[i]);
        sdallocx(call_malloc(sizes[i]), sizes[i], 0);
        sdallocx(aligned_alloc(1024, sizes[i]), sizes[i], 10);
        assert_int_equal(nallocx(sizes[i], 0), malloc_good_size(sizes[i]));
        void *block = aligned_alloc(1024, sizes[i]);
        assert_true(nallocx(sizes[i], 10) >= sizes[i]);
        call_free(block);
    }
    free_sized(NULL, 8);
    free_aligned_sized(NULL, 16, 8);
    assert_int_equal(nallocx(too_large, 0), 0);
    assert_int_equal(nallocx(PTRDIFF_MAX, 12), 0);
}

/* nallocx says what mallocx gives, for each alignment. */
static void test_sizes_by_flags(void **state)
{
    (void)state;
    for (int lg = 0; lg <= 24; lg++)
        for (size_t size = 1; size <= 8 << 20; size += size / 7 + 1) {
            void *block = mallocx(size, lg);
            assert_int_equal(nallocx(size, lg), sallocx(block, 0));
            sdallocx(block, size, lg);
        }
}

/* A block above 1 MiB gives up its end in place. If the system lets it grow again, the new bytes are zero. */
static void test_resized_in_place(void **state)
{
    enum { MIB = 1 << 20 };
    char *block = mallocx(8 * MIB, 0);
    size_t got;

    (void)state;
    assert_non_null(block);
    memset(block, 1, 8 * MIB);
    assert_int_equal(xallocx(block, 3 * MIB, MIB, 0), 4 * MIB);
    assert_int_equal(sallocx(block, 0), 4 * MIB);
    assert_int_equal(block[4 * MIB - 1], 1);
    got = xallocx(block, 8 * MIB, 0, 0x40); /* MALLOCX_ZERO */
    assert_int_equal(got, sallocx(block, 0));
    for (size_t at = 0; at < got; at++)
        assert_int_equal(block[at], at < 4 * MIB);
    sdallocx(block, got, 0);
}

static void test_errors(void **state)
{
    (void)state;
    void *block = &block;
#define ASSERT_FAILS(expression, error)   \
    do {                                  \
        errno = 0;                        \
        assert_null(expression);          \
        assert_int_equal(errno, error);   \
    } while (0)
    ASSERT_FAILS(call_malloc(too_large), ENOMEM);
    ASSERT_FAILS(calloc(too_large, 2), ENOMEM);
    ASSERT_FAILS(reallocarray(NULL, too_large, 2), ENOMEM);
    ASSERT_FAILS(realloc(NULL, too_large), ENOMEM);
    ASSERT_FAILS(aligned_alloc(16, too_large), ENOMEM);
    ASSERT_FAILS(memalign(64, too_large), ENOMEM);
    ASSERT_FAILS(valloc(too_large), ENOMEM);
    ASSERT_FAILS(pvalloc(too_large), ENOMEM);
    ASSERT_FAILS(pvalloc(too_large + (SIZE_MAX - too_large)), ENOMEM);
    size_t odd = too_large / too_large * 48; /* the compiler does not know its value */
    ASSERT_FAILS(aligned_alloc(odd, 64), EINVAL);
    ASSERT_FAILS(aligned_alloc(odd - 48, 64), EINVAL);
    ASSERT_FAILS(memalign(too_large + 1, 64), EINVAL);
    errno = 4711;
    assert_int_equal(posix_memalign(&block, odd, 64), EINVAL);
    assert_int_equal(posix_memalign(&block, odd / 12, 64), EINVAL);
    assert_int_equal(posix_memalign(&block, 64, too_large), ENOMEM);
    assert_ptr_equal(block, &block);
    assert_int_equal(errno, 4711);

    block = memalign(odd, 100); /* glibc's memalign rounds up to the next power of two */
    assert_int_equal((uintptr_t)block % 64, 0);
    call_free(block);
    block = memalign(odd - 48, 100);
    assert_non_null(block);
    assert_null(realloc(block, 0));
}

static void test_mallinfo(void **state)
{
    (void)state;
    struct mallinfo2 start = mallinfo2(), with, after;
    static void *small[1000];
    void *huge = call_malloc(20000000);
    for (size_t i = 0; i < 1000; i++)
        small[i] = call_malloc(10000);
    with = mallinfo2();
    assert_int_equal(with.arena, with.uordblks + with.fordblks);
    assert_int_equal(with.hblks, start.hblks + 1);
    assert_in_range(with.hblkhd - start.hblkhd, 20000000, 25000000);
    assert_in_range(with.uordblks - start.uordblks, 10000000, 13000000);
    struct mallinfo (*call_mallinfo)(void); /* glibc's header advises against it */
    find(&call_mallinfo, "mallinfo");
    struct mallinfo narrow = call_mallinfo();
    assert_int_equal(narrow.hblks, with.hblks);
    assert_int_equal(narrow.hblkhd, with.hblkhd);
    assert_int_equal(narrow.uordblks, with.uordblks);
    for (size_t i = 0; i < 1000; i++)
        call_free(small[i]);
    call_free(huge);
    after = mallinfo2();
    assert_int_equal(after.arena, after.uordblks + after.fordblks);
    assert_int_equal(after.hblks, start.hblks);
    assert_true(after.uordblks < with.uordblks - 9000000);
    assert_true(after.ordblks > 0);
}

static void test_mallopt_and_trim(void **state)
{
    (void)state;
    for (int parameter = M_ARENA_MAX; parameter <= M_MXFAST + 3; parameter++)
        assert_int_equal(mallopt(parameter, 1), parameter != 0);
    assert_int_equal(mallopt(99, 1), 0);
    char *block = call_malloc(500000);
    memset(block, 1, 500000);
    call_free(block);
    assert_int_equal(malloc_trim(0), 1);
    assert_int_equal(malloc_trim(0), 0); /* nothing is left to give back */
}

static void test_malloc_info(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    void *block = call_malloc(3000000);
    FILE *out = open_memstream(&text, &length);
    assert_int_equal(malloc_info(1, out), EINVAL);
    assert_int_equal(malloc_info(0, out), 0);
    fclose(out);
    assert_true(strncmp(text, "<malloc version=\"1\">\n", 21) == 0);
    assert_string_equal(text + length - 10, "</malloc>\n");
    assert_int_equal(count_of(text, "<heap nr=\"0\">"), 1);
    assert_int_equal(count_of(text, "</heap>"), 1);
    assert_int_equal(count_of(text, "<sizes>"), count_of(text, "</sizes>"));
    assert_int_equal(count_of(text, "<"), count_of(text, ">"));
    assert_has(text, "<total type=\"mmap\" count=\"1\"");
    assert_has_not(text, "mapped=\"0\"");
    call_free(text);
    call_free(block);
}

static void test_malloc_stats(void **state)
{
    (void)state;
    capture_begin();
    malloc_stats();
    const char *said = capture_end();
    assert_has(said, "hakmem: live ");
    assert_has(said, "size classes in use");
    assert_in_range(count_of(said, "\n"), 10, 60);
}

/* ---- At exit ---- */

/* What /bin/true prints on stderr with the library preloaded and the variable set. */
static const char *said_at_exit(const char *variable)
{
    static char text[16384];
    char command[1024];
    Dl_info ours;
    assert_true(dladdr((void *)(uintptr_t)hak_version, &ours) != 0);
    snprintf(command, sizeof command, "env LD_PRELOAD='%s' %s /bin/true 2>&1", ours.dli_fname, variable);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    size_t length = fread(text, 1, sizeof text - 1, output);
    assert_int_equal(pclose(output), 0);
    text[length] = '\0';
    return text;
}

__attribute__((unused)) static void test_exit_report(void **state)
{
    (void)state;
    assert_string_equal(said_at_exit(""), "");
    const char *all = said_at_exit("HAKMEM_SHOW_STATS=1");
    assert_has(all, "hakmem: memory in bytes");
    assert_has(all, "hakmem: slabs: ");
    assert_has(all, "hakmem: remote frees: ");
    assert_has(all, "hakmem: thread caches: ");
    assert_has(all, "hakmem: warm pool: ");
    assert_true(count_of(all, "\n") <= 60);
    const char *front = said_at_exit("HAKMEM_FRONT_STATS=1");
    assert_true(strncmp(front, "hakmem: thread caches: ", 23) == 0);
    assert_has(front, "hakmem: block size ");
    assert_has_not(front, "warm pool");
    const char *warm = said_at_exit("HAKMEM_WARM_POOL_STATS=1");
    assert_true(strncmp(warm, "hakmem: warm pool: ", 19) == 0);
    assert_has(warm, "hakmem: block size ");
    assert_has_not(warm, "thread caches");
}

/* ---- C++ operators ---- */

static struct {
    void *(*new_plain)(size_t), *(*new_array)(size_t), *(*new_nothrow)(size_t, const void *);
    void *(*new_aligned)(size_t, size_t), *(*new_aligned_nothrow)(size_t, size_t, const void *);
    void (*set_handler)(void (*)(void));
} cxx;

static void find_all(void)
{
    find(&cxx.new_plain, "_Znwm");
    find(&cxx.new_array, "_Znam");
    find(&cxx.new_nothrow, "_ZnwmRKSt9nothrow_t");
    find(&cxx.new_aligned, "_ZnwmSt11align_val_t");
    find(&cxx.new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t");
}

static void test_new_and_delete(void **state)
{
    (void)state;
    static const char *const plain[] = { "_ZdlPv", "_ZdaPv" };
    static const char *const more[] = { "_ZdlPvRKSt9nothrow_t", "_ZdlPvm", "_ZdaPvm", "_ZdlPvSt11align_val_t",
                                        "_ZdaPvmSt11align_val_t", "_ZdlPvSt11align_val_tRKSt9nothrow_t" };
    void (*delete_plain)(void *);
    void (*delete_more)(void *, size_t, size_t); /* an operator with fewer parameters ignores the extra arguments */
    find_all();
    for (size_t size = 0; size < 3000000; size = size * 3 + 7) {
        void *blocks[] = { cxx.new_plain(size),
                           cxx.new_array(size),
                           cxx.new_nothrow(size, ""),
                           cxx.new_aligned(size, 128),
                           cxx.new_aligned_nothrow(size, 4096, ""),
                           cxx.new_plain(size),
                           cxx.new_plain(size),
                           cxx.new_plain(size) };
        for (size_t i = 0; i < 8; i++)
            assert_ours(blocks[i], size, i == 3 ? 128 : i == 4 ? 4096 : 16);
        for (size_t i = 0; i < 2; i++) {
            find(&delete_plain, plain[i]);
            delete_plain(NULL);
            delete_plain(blocks[i]);
        }
        for (size_t i = 0; i < 6; i++) {
            find(&delete_more, more[i]);
            delete_more(blocks[2 + i], size, 16);
        }
    }
}

/* ---- What LLVM calls in place of operator new (api/names.h) ---- */

struct sized_block {
    void *block;
    size_t size;
};

static struct {
    void *(*new_hint[2])(size_t, unsigned char), *(*new_nothrow_hint[2])(size_t, const void *, unsigned char);
    void *(*new_aligned_hint[2])(size_t, size_t, unsigned char);
    void *(*new_aligned_nothrow_hint[2])(size_t, size_t, const void *, unsigned char);
    struct sized_block (*sized)(size_t), (*sized_hint)(size_t, unsigned char);
    struct sized_block (*sized_aligned)(size_t, size_t), (*sized_aligned_hint)(size_t, size_t, unsigned char);
} llvm;

static void find_llvm(void)
{
    find(&llvm.new_hint[0], "_Znwm12__hot_cold_t");
    find(&llvm.new_hint[1], "_Znam12__hot_cold_t");
    find(&llvm.new_nothrow_hint[0], "_ZnwmRKSt9nothrow_t12__hot_cold_t");
    find(&llvm.new_nothrow_hint[1], "_ZnamRKSt9nothrow_t12__hot_cold_t");
    find(&llvm.new_aligned_hint[0], "_ZnwmSt11align_val_t12__hot_cold_t");
    find(&llvm.new_aligned_hint[1], "_ZnamSt11align_val_t12__hot_cold_t");
    find(&llvm.new_aligned_nothrow_hint[0], "_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t");
    find(&llvm.new_aligned_nothrow_hint[1], "_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t");
    find(&llvm.sized, "__size_returning_new");
    find(&llvm.sized_hint, "__size_returning_new_hot_cold");
    find(&llvm.sized_aligned, "__size_returning_new_aligned");
    find(&llvm.sized_aligned_hint, "__size_returning_new_aligned_hot_cold");
}

static void test_new_with_hint(void **state)
{
    (void)state;
    find_llvm();
    for (size_t size = 0; size < 3000000; size = size * 3 + 7) {
        for (unsigned hint = 0; hint <= 255; hint += 85) {
            for (size_t i = 0; i < 2; i++) {
                unsigned char h = (unsigned char)hint;
                void *blocks[] = { llvm.new_hint[i](size, h), llvm.new_nothrow_hint[i](size, "", h),
                                   llvm.new_aligned_hint[i](size, 256, h),
                                   llvm.new_aligned_nothrow_hint[i](size, 256, "", h) };
                for (size_t j = 0; j < 4; j++) {
                    assert_ours(blocks[j], size, j < 2 ? 16 : 256);
                    call_free(blocks[j]);
                }
            }
        }
    }
}

/* The returned size is the usable size. The caller may write all of it, and pass it to a sized delete. */
static void assert_sized(struct sized_block got, size_t size, size_t alignment, const char *delete_name)
{
    void (*delete_sized)(void *, size_t, size_t); /* an operator with fewer parameters ignores the extra arguments */

    find(&delete_sized, delete_name);
    assert_ours(got.block, size, alignment);
    assert_int_equal(got.size, hak_usable_size(got.block));
    delete_sized(got.block, got.size, alignment);
}

static void test_new_that_returns_the_size(void **state)
{
    (void)state;
    find_llvm();
    for (size_t size = 0; size < 5000000; size = size * 5 / 4 + 1) {
        assert_sized(llvm.sized(size), size, 16, "_ZdlPvm");
        assert_sized(llvm.sized_hint(size, 1), size, 16, "_ZdlPvm");
        for (size_t alignment = 1; alignment <= 65536; alignment *= 16) {
            assert_sized(llvm.sized_aligned(size, alignment), size, alignment, "_ZdlPvmSt11align_val_t");
            assert_sized(llvm.sized_aligned_hint(size, alignment, 255), size, alignment, "_ZdlPvmSt11align_val_t");
        }
    }
}

/* ---- Memory is out ---- */

static void new_without_runtime(void)
{
    (void)cxx.new_plain(too_large);
}

static void sized_new_without_runtime(void)
{
    (void)llvm.sized(too_large);
}

static void new_with_hint_without_runtime(void)
{
    (void)llvm.new_aligned_hint[1](too_large, 64, 0);
}

/* This program has no C++ run-time, so operator new cannot throw. */
static void test_new_out_of_memory_in_c(void **state)
{
    (void)state;
    find_all();
    assert_null(cxx.new_nothrow(too_large, ""));
    assert_null(cxx.new_aligned_nothrow(too_large, 64, ""));
    assert_null(cxx.new_aligned_nothrow(64, 48, ""));
    assert_aborts(new_without_runtime, "operator new(9223372036854775808): out of memory");
    find_llvm();
    for (size_t i = 0; i < 2; i++) {
        assert_null(llvm.new_nothrow_hint[i](too_large, "", 128));
        assert_null(llvm.new_aligned_nothrow_hint[i](too_large, 64, "", 128));
    }
    assert_aborts(sized_new_without_runtime, "operator new(9223372036854775808): out of memory");
    assert_aborts(new_with_hint_without_runtime, "operator new(9223372036854775808): out of memory");
}

static int handler_calls;

static void give_up_after_three(void)
{
    if (++handler_calls == 3)
        cxx.set_handler(NULL);
}

static void load_runtime(void)
{
    void *runtime = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL); /* as a plug-in loads it */
    if (runtime == NULL)
        raise(SIGKILL);
    void *address = dlsym(runtime, "_ZSt15set_new_handlerPFvvE");
    memcpy(&cxx.set_handler, &address, sizeof address);
    cxx.set_handler(give_up_after_three);
}

static void new_throws(void)
{
    load_runtime();
    (void)cxx.new_array(too_large); /* nobody catches the exception */
}

static void sized_new_throws(void)
{
    load_runtime();
    (void)llvm.sized_aligned(too_large, 64);
}

static void new_with_hint_throws(void)
{
    load_runtime();
    (void)llvm.new_hint[0](too_large, 3);
}

static void new_throws_for_alignment(void)
{
    load_runtime();
    (void)cxx.new_aligned(64, 48);
}

static void nothrow_calls_handler(void)
{
    load_runtime();
    if (cxx.new_nothrow(too_large, "") != NULL || handler_calls != 3)
        raise(SIGKILL);
    handler_calls = 0;
    cxx.set_handler(give_up_after_three);
    if (cxx.new_aligned_nothrow(too_large, 64, "") != NULL || handler_calls != 3)
        raise(SIGKILL);
}

static void test_new_handler(void **state)
{
    (void)state;
    find_all();
    find_llvm();
    assert_aborts(new_throws, "std::bad_alloc");
    assert_aborts(sized_new_throws, "std::bad_alloc");
    assert_aborts(new_with_hint_throws, "std::bad_alloc");
    assert_aborts(new_throws_for_alignment, "std::bad_alloc");
    assert_int_equal(signal_of(nothrow_calls_handler), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_ours),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_sized_free),
        cmocka_unit_test(test_sizes_by_flags),
        cmocka_unit_test(test_resized_in_place),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_mallinfo),
        cmocka_unit_test(test_mallopt_and_trim),
        cmocka_unit_test(test_malloc_info),
        cmocka_unit_test(test_malloc_stats),
        cmocka_unit_test(test_new_and_delete),
        cmocka_unit_test(test_new_with_hint),
        cmocka_unit_test(test_new_that_returns_the_size),
        cmocka_unit_test(test_new_out_of_memory_in_c),
        cmocka_unit_test(test_new_handler),
#if !UNIT_EMULATED /* the emulated /bin/true could not load the library */
        cmocka_unit_test(test_exit_report),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
