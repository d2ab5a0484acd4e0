// calls NAME COUNT: known calls of each name that the cycle profile times, between two reports (malloc_stats).
#include <hakmem/hakmem.h>
#include <hakmem/stats.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <malloc.h>
#include <unistd.h>

#include "counter.h"

extern "C" {
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void cfree(void *block);
void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t alignment, size_t size);
void sdallocx(void *block, size_t size, int flags);
}

namespace {

constexpr size_t BATCH = 300, HELD = 2000;

void *held[HELD];

void need(bool condition)
{
    if (!condition)
        abort();
}

// Prints to standard output without allocating.
template <typename... Values> void say(const char *format, Values... values)
{
    char line[128];
    int length = snprintf(line, sizeof line, format, values...);
    need(write(STDOUT_FILENO, line, (size_t)length) == length);
}

void *posix(int (*function)(void **, size_t, size_t), size_t alignment, size_t size)
{
    void *block = nullptr;
    need(function(&block, alignment, size) == 0);
    return block;
}

// Makes COUNT blocks with HELD live at a time, and frees them: the thread's cache hits and misses.
template <typename Make> void blocks(size_t count, Make make)
{
    for (size_t done = 0; done < count; done += HELD) {
        size_t batch = count - done < HELD ? count - done : HELD;
        for (size_t i = 0; i < batch; i++)
            need((held[i] = make()) != nullptr);
        for (size_t i = 0; i < batch; i++)
            free(held[i]);
    }
}

// One block at a time, which the cache has from the second one on.
template <typename Make> void pairs(size_t count, Make make)
{
    for (size_t i = 0; i < count; i++) {
        void *block = make();
        need(block != nullptr);
        free(block);
    }
}

void fail(void *block, int error)
{
    need(block == nullptr && errno == error);
}

// Resizes a block to and fro between two sizes. Its first malloc and last free count, too.
void resize(size_t count, size_t first, size_t second, void *(*function)(void *, size_t))
{
    void *block = malloc(first);
    for (size_t i = 0; i < count; i++)
        need((block = function(block, i % 2 == 0 ? second : first)) != nullptr);
    free(block);
}

struct call {
    const char *name;
    void (*make)(size_t count);
};

volatile size_t too_large = SIZE_MAX / 2 + 1; // the compiler would warn of a constant

const call calls[] = {
    { "calloc", [](size_t n) { blocks(n, [] { return calloc(7, 16); }); } },
    { "__libc_calloc", [](size_t n) { blocks(n, [] { return __libc_calloc(7, 16); }); } },
    { "hak_calloc", [](size_t n) { blocks(n, [] { return hak_calloc(7, 16); }); } },
    { "calloc_medium", [](size_t n) { pairs(n, [] { return calloc(5, 1000); }); } },
    { "calloc_huge", [](size_t n) { pairs(n, [] { return calloc(3, 1000000); }); } },
    { "calloc_overflow", [](size_t n) { for (; n > 0; n--) fail(calloc(too_large, 2), ENOMEM); } },
    { "aligned_alloc", [](size_t n) { blocks(n, [] { return aligned_alloc(64, 128); }); } },
    { "hak_aligned_alloc", [](size_t n) { blocks(n, [] { return hak_aligned_alloc(64, 128); }); } },
    { "memalign", [](size_t n) { blocks(n, [] { return memalign(64, 128); }); } },
    { "__libc_memalign", [](size_t n) { blocks(n, [] { return __libc_memalign(64, 128); }); } },
    { "posix_memalign", [](size_t n) { blocks(n, [] { return posix(posix_memalign, 64, 128); }); } },
    { "hak_posix_memalign", [](size_t n) { blocks(n, [] { return posix(hak_posix_memalign, 64, 128); }); } },
    { "valloc", [](size_t n) { pairs(n, [] { return valloc(128); }); } },
    { "pvalloc", [](size_t n) { pairs(n, [] { return pvalloc(128); }); } },
    { "new_aligned", [](size_t n) { blocks(n, [] { return operator new(128, std::align_val_t(64)); }); } },
    { "new_aligned_nothrow",
      [](size_t n) { blocks(n, [] { return operator new[](128, std::align_val_t(64), std::nothrow); }); } },
    { "aligned_span", [](size_t n) { pairs(n, [] { return aligned_alloc(131072, 131072); }); } },
    { "aligned_huge", [](size_t n) { pairs(n, [] { return aligned_alloc(4194304, 100); }); } },
    { "aligned_too_large", [](size_t n) { for (; n > 0; n--) fail(aligned_alloc(64, too_large), ENOMEM); } },
    { "aligned_refused", [](size_t n) { for (; n > 0; n--) fail(aligned_alloc(48, 100), EINVAL); } },
    { "realloc_stay", [](size_t n) { resize(n, 100, 104, realloc); } },
    { "realloc_move", [](size_t n) { resize(n, 100, 900, realloc); } },
    { "__libc_realloc", [](size_t n) { resize(n, 100, 900, __libc_realloc); } },
    { "hak_realloc", [](size_t n) { resize(n, 100, 900, hak_realloc); } },
    { "reallocarray",
      [](size_t n) { resize(n, 100, 900, [](void *b, size_t s) { return reallocarray(b, s / 4, 4); }); } },
    { "hak_reallocarray",
      [](size_t n) { resize(n, 100, 900, [](void *b, size_t s) { return hak_reallocarray(b, s / 4, 4); }); } },
    { "realloc_huge", [](size_t n) { resize(n, 2000000, 9000000, realloc); } },
    { "realloc_null", [](size_t n) { blocks(n, [] { return realloc(nullptr, 100); }); } },
    { "realloc_zero", [](size_t n) { for (; n > 0; n--) need(realloc(malloc(100), 0) == nullptr); } },
    { "realloc_fails",
      [](size_t n) {
          void *block = malloc(100);
          for (; n > 0; n--)
              fail(realloc(block, too_large), ENOMEM);
          free(block);
      } },
    { "free_sized", [](size_t n) { for (; n > 0; n--) free_sized(malloc(100), 100); } },
    { "hak_free_sized", [](size_t n) { for (; n > 0; n--) hak_free_sized(malloc(100), 100); } },
    { "free_aligned_sized", [](size_t n) { for (; n > 0; n--) free_aligned_sized(aligned_alloc(64, 100), 64, 100); } },
    { "hak_free_aligned_sized",
      [](size_t n) { for (; n > 0; n--) hak_free_aligned_sized(aligned_alloc(64, 100), 64, 100); } },
    { "sdallocx", [](size_t n) { for (; n > 0; n--) sdallocx(malloc(100), 100, 0); } },
    { "sized_delete", [](size_t n) { for (; n > 0; n--) operator delete(malloc(100), size_t(100)); } },
    { "free_sized_huge", [](size_t n) { for (; n > 0; n--) free_sized(malloc(3000000), 3000000); } },
    { "free_sized_null", [](size_t n) { for (; n > 0; n--) free_sized(nullptr, 100); } },
    { "free_sized_wrong", [](size_t n) { for (; n > 0; n--) free_sized(held[0], 5000); } },
    { "batch",
      [](size_t n) {
          for (; n > 0; n--) {
              need(hak_malloc_batch(100, BATCH, held) == BATCH);
              hak_free_batch(held, BATCH);
          }
      } },
    { "heap", // five blocks: realloc moves one and frees one
      [](size_t n) {
          hak_heap_t *heap = hak_heap_new();
          for (; n > 0; n--) {
              need(hak_heap_realloc(heap, hak_heap_calloc(heap, 3, 50), 900) != nullptr);
              need(hak_heap_realloc(heap, hak_heap_malloc(heap, 70000), 0) == nullptr);
              need(hak_heap_aligned_alloc(heap, 4096, 5000) != nullptr && hak_heap_malloc(heap, 3000000) != nullptr);
              need(hak_heap_realloc(heap, hak_heap_realloc(heap, nullptr, 100), 101) != nullptr);
              need(hak_heap_aligned_alloc(heap, 3, 5000) == nullptr && hak_heap_calloc(heap, SIZE_MAX, 2) == nullptr);
          }
          hak_heap_destroy(heap);
      } },
    { "heap_too_large",
      [](size_t n) {
          hak_heap_t *heap = hak_heap_new();
          for (; n > 0; n--)
              need(hak_heap_malloc(heap, SIZE_MAX / 2) == nullptr);
          hak_heap_destroy(heap);
      } },
    { "expand",
      [](size_t n) {
          void *block = malloc(100);
          for (; n > 0; n--)
              need(hak_expand(block, 101) >= 101 && hak_expand(block, 5000) == 0 && hak_expand(nullptr, 5000) == 0);
          free(block);
      } },
};

unsigned handled;

void sleep_twice()
{
    if (++handled == 2)
        std::set_new_handler(nullptr);
    usleep(50000);
}

// A call that takes 100 ms: it cannot succeed, and its handler sleeps.
void delayed()
{
    std::set_new_handler(sleep_twice);
    uint64_t start = read_counter();
    try {
        (void)operator new(too_large);
        abort();
    } catch (const std::bad_alloc &) {
    }
    say("%lu\n", (unsigned long)(read_counter() - start));
}

// Calls of every kind in random order. Prints the number of mallocs, frees, NULLs, and reallocs of blocks.
void mixed(size_t count)
{
    uint64_t random = 88172645463325252, mallocs = 0, frees = 0, nulls = 0, reallocs = 0;
    memset(held, 0, sizeof held);
    for (size_t i = 0; i < count; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        void **slot = &held[random % HELD];
        size_t size = 1 + (random >> 20) % (random >> 56 == 0 ? 3000000 : random >> 60 == 0 ? 300000 : 3000);
        unsigned how = (random >> 12) % 16;
        if (*slot != nullptr && how < 6) {
            *slot = realloc(*slot, size);
            reallocs++;
        } else if (*slot != nullptr || how == 0) {
            how % 2 == 0 ? free(*slot)
            : how == 7   ? operator delete(*slot)
                         : free_sized(*slot, malloc_usable_size(*slot));
            *slot == nullptr ? nulls++ : frees++;
            *slot = nullptr;
        } else {
            *slot = how < 4   ? malloc(size)
                    : how < 7 ? calloc(1, size)
                    : how < 9 ? realloc(nullptr, size)
                    : how < 12 ? aligned_alloc(size_t(16) << how % 8, size)
                    : how < 14 ? posix(posix_memalign, 4096, size) : operator new(size);
            mallocs++;
        }
    }
    say("%lu %lu %lu %lu\n", (unsigned long)mallocs, (unsigned long)frees, (unsigned long)nulls,
        (unsigned long)reallocs);
}

template <typename Make> void measure(size_t count, Make make)
{
    uint64_t start = read_counter();
    pairs(count, make);
    say("%lu\n", (unsigned long)(read_counter() - start));
}

}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    size_t count = strtoul(argv[2], nullptr, 10);
    void (*make)(size_t) = strcmp(argv[1], "mixed") == 0 ? mixed : nullptr;
    for (const call &one : calls)
        if (strcmp(argv[1], one.name) == 0)
            make = one.make;
    if (strcmp(argv[1], "delayed") == 0)
        make = [](size_t) { delayed(); };
    if (strcmp(argv[1], "measured") == 0)
        make = [](size_t n) { measure(n, [] { return malloc(48); }); };
    if (strcmp(argv[1], "measured_calloc") == 0)
        make = [](size_t n) { measure(n, [] { return calloc(1, 200000); }); };
    if (make == nullptr)
        return 2;
    held[0] = malloc(100);
    malloc_stats();
    struct hak_stats before = {}, after = {};
    hak_stats_get(&before, sizeof before);
    make(count);
    hak_stats_get(&after, sizeof after);
    say("%lu %lu\n", (unsigned long)(after.malloc_misses - before.malloc_misses),
        (unsigned long)(after.free_overflows - before.free_overflows));
    malloc_stats();
    fflush(nullptr);
    _exit(0); // without a report at exit
}
