// What programs do with memory when another object defines some allocation functions (interposed_allocator.c). Each
// argument is a group of calls. The last line of the output counts the calls of the other object.
#include <dlfcn.h>
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <regex.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
extern unsigned long interposed_allocations __attribute__((weak));
extern unsigned long interposed_frees __attribute__((weak));
void free_sized(void *block, size_t size) __attribute__((weak));
void free_aligned_sized(void *block, size_t alignment, size_t size) __attribute__((weak));
void sdallocx(void *block, size_t size, int flags) __attribute__((weak));
void cfree(void *block) __attribute__((weak));
}

// LLVM calls these in place of operator new. The compiler mangles the names.
enum class __hot_cold_t : uint8_t;
#define WEAK __attribute__((weak))
void *operator new(size_t, __hot_cold_t) WEAK;
void *operator new[](size_t, __hot_cold_t) WEAK;
void *operator new(size_t, const std::nothrow_t &, __hot_cold_t) noexcept WEAK;
void *operator new[](size_t, const std::nothrow_t &, __hot_cold_t) noexcept WEAK;
void *operator new(size_t, std::align_val_t, __hot_cold_t) WEAK;
void *operator new[](size_t, std::align_val_t, __hot_cold_t) WEAK;
void *operator new(size_t, std::align_val_t, const std::nothrow_t &, __hot_cold_t) noexcept WEAK;
void *operator new[](size_t, std::align_val_t, const std::nothrow_t &, __hot_cold_t) noexcept WEAK;
extern "C" {
struct __sized_ptr_t {
    void *p;
    size_t n;
};
__sized_ptr_t __size_returning_new(size_t) WEAK;
__sized_ptr_t __size_returning_new_hot_cold(size_t, __hot_cold_t) WEAK;
__sized_ptr_t __size_returning_new_aligned(size_t, std::align_val_t) WEAK;
__sized_ptr_t __size_returning_new_aligned_hot_cold(size_t, std::align_val_t, __hot_cold_t) WEAK;
}

static void check(bool good, const char *what)
{
    if (!good) {
        std::fprintf(stderr, "failed: %s\n", what);
        std::_Exit(4);
    }
}

// malloc and free, and the C library's functions built on them.
static void use_c()
{
    char *copy = strdup("a text"), *printed = nullptr, *line = nullptr;
    size_t capacity = 0;
    check(std::strcmp(copy, "a text") == 0, "strdup");
    free(copy);
    check(asprintf(&printed, "%d %s", 17, "of them") == 10, "asprintf");
    free(printed);
    FILE *file = fopen("/proc/self/status", "r");
    while (getline(&line, &capacity, file) > 0)
        continue;
    free(line);
    fclose(file);
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder) != nullptr)
        continue;
    closedir(folder);
    for (size_t size = 0; size < 3000000; size = size * 3 + 1) {
        char *block = static_cast<char *>(malloc(size));
        std::memset(block, 1, size);
        free(block);
    }
}

// calloc and realloc complete the four that a replacement must define. glibc's reallocarray calls realloc.
static void use_realloc()
{
    regex_t expression;
    char *block = static_cast<char *>(calloc(10, 30));
    for (int i = 0; i < 300; i++)
        check(block[i] == 0, "calloc");
    block = static_cast<char *>(realloc(block, 5000));
    std::memset(block, 7, 5000);
    block = static_cast<char *>(reallocarray(block, 100, 100));
    check(block[4999] == 7, "reallocarray keeps the contents");
    block = static_cast<char *>(reallocarray(block, 1000, 2000));
    check(block[4999] == 7, "reallocarray keeps the contents");
    volatile size_t most = SIZE_MAX;
    void *none = reallocarray(nullptr, most, 16);
    check(none == nullptr, "reallocarray overflows");
    free(block);
    free(reallocarray(nullptr, 3, 5));
    check(regcomp(&expression, "^(a|b)*c[[:digit:]]{2,5}$", REG_EXTENDED) == 0, "regcomp");
    check(regexec(&expression, "ababc123", 0, nullptr, 0) == 0, "regexec");
    regfree(&expression);
}

static void *thread_main(void *)
{
    use_c();
    return nullptr;
}

static void use_threads()
{
    pthread_t threads[4];
    for (pthread_t &thread : threads)
        check(pthread_create(&thread, nullptr, thread_main, nullptr) == 0, "pthread_create");
    for (pthread_t &thread : threads)
        pthread_join(thread, nullptr);
    void *handle = dlopen("libm.so.6", RTLD_NOW);
    check(handle != nullptr, "dlopen");
    dlclose(handle);
}

static void check_aligned(void *block, size_t alignment, size_t size)
{
    check(block != nullptr && reinterpret_cast<uintptr_t>(block) % alignment == 0, "aligned");
    std::memset(block, 3, size);
}

static void use_aligned()
{
    for (size_t alignment = 16; alignment <= 8192; alignment *= 4) {
        void *block = nullptr;
        check(posix_memalign(&block, alignment, 100) == 0, "posix_memalign");
        check_aligned(block, alignment, 100);
        free(block);
        check_aligned(block = aligned_alloc(alignment, 2 * alignment), alignment, 2 * alignment);
        free(block);
        check_aligned(block = memalign(alignment, 77), alignment, 77);
        free(block);
    }
    void *block = valloc(100);
    check_aligned(block, 4096, 100);
    free(block);
    check_aligned(block = pvalloc(100), 4096, 4096);
    free(block);
}

// The aligned functions with malloc's alignment.
static void use_aligned_16()
{
    void *block = nullptr;
    check(posix_memalign(&block, 16, 100) == 0, "posix_memalign");
    check_aligned(block, 16, 100);
    free(block);
    check_aligned(block = aligned_alloc(16, 160), 16, 160);
    free(block);
}

// Further names of free in HAKMEM and newer C libraries. Does nothing without them.
static void use_sized()
{
    if (cfree)
        cfree(malloc(50));
    if (free_sized)
        free_sized(malloc(50), 50);
    if (free_aligned_sized)
        free_aligned_sized(malloc(50), 16, 50);
    if (sdallocx)
        sdallocx(malloc(50), 50, 0);
}

static void use_usable_size()
{
    for (size_t size : { 10, 1000, 100000, 3000000 }) {
        char *block = static_cast<char *>(malloc(size));
        std::memset(block, 1, malloc_usable_size(block));
        free(block);
        block = new char[size];
        std::memset(block, 1, malloc_usable_size(block) != 0 ? size : 0);
        delete[] block;
    }
    check(malloc_usable_size(nullptr) == 0, "malloc_usable_size(NULL)");
}

struct Plain {
    int words[10];
};
struct Big {
    char bytes[3000];
    ~Big() { bytes[0] = 1; }
};
struct alignas(128) Aligned {
    char bytes[300];
    ~Aligned() { bytes[0] = 1; }
};

// Volatile pointers, so that the compiler keeps every pair of calls.
template <class T> static void use_type(int count)
{
    T *volatile one = new T();
    delete one;
    T *volatile many = new T[static_cast<size_t>(count)];
    delete[] many;
    one = new (std::nothrow) T();
    delete one;
    many = new (std::nothrow) T[static_cast<size_t>(count)];
    delete[] many;
    void *volatile raw = ::operator new(sizeof(T));
    ::operator delete(raw);
    raw = ::operator new(sizeof(T));
    ::operator delete(raw, std::nothrow);
    raw = ::operator new[](sizeof(T));
    ::operator delete[](raw);
    raw = ::operator new[](sizeof(T));
    ::operator delete[](raw, std::nothrow);
    raw = ::operator new[](sizeof(T));
    ::operator delete[](raw, sizeof(T));
}

static void use_cpp()
{
    for (int count = 1; count < 2000; count = count * 3 + 1) {
        use_type<Plain>(count);
        use_type<Big>(count);
    }
    std::map<std::string, std::vector<std::string>> map;
    for (int i = 0; i < 3000; i++)
        map["a key that is longer than a short string " + std::to_string(i % 300)].emplace_back(
            static_cast<size_t>(i), 'x');
    std::shared_ptr<std::string> shared = std::make_shared<std::string>(1000, 'y');
    try {
        throw std::runtime_error(map.begin()->first);
    } catch (const std::exception &error) {
        check(std::strlen(error.what()) > 20, "exception");
    }
    check(new (std::nothrow) char[SIZE_MAX / 4] == nullptr, "nothrow fails");
}

static void use_cpp_aligned()
{
    for (int i = 0; i < 10; i++) {
        use_type<Aligned>(10);
        Aligned *volatile one = new Aligned();
        check_aligned(one, 128, sizeof *one);
        delete one;
        void *volatile raw = ::operator new(300, std::align_val_t(64));
        ::operator delete(raw, std::align_val_t(64));
        raw = ::operator new[](300, std::align_val_t(64), std::nothrow);
        ::operator delete[](raw, 300, std::align_val_t(64));
        raw = ::operator new(300, std::align_val_t(64), std::nothrow);
        ::operator delete(raw, std::align_val_t(64), std::nothrow);
        raw = ::operator new[](300, std::align_val_t(64));
        ::operator delete[](raw, std::align_val_t(64), std::nothrow);
    }
}

static void check_sized(__sized_ptr_t got, size_t alignment, size_t size)
{
    check(got.n >= size, "the size that new returns");
    check_aligned(got.p, alignment, got.n);
}

static void use_llvm()
{
    const __hot_cold_t cold{ 1 }, hot{ 254 };
    for (size_t size = 1; size < 3000000; size = size * 3 + 1) {
        void *block = ::operator new(size, cold);
        check_aligned(block, 16, size);
        ::operator delete(block);
        block = ::operator new[](size, hot);
        check_aligned(block, 16, size);
        ::operator delete[](block);
        block = ::operator new(size, std::nothrow, hot);
        check_aligned(block, 16, size);
        ::operator delete(block, size);
        block = ::operator new[](size, std::nothrow, cold);
        check_aligned(block, 16, size);
        ::operator delete[](block, size);
        __sized_ptr_t got = __size_returning_new(size);
        check_sized(got, 16, size);
        ::operator delete(got.p, got.n);
        check_sized(got = __size_returning_new_hot_cold(size, cold), 16, size);
        ::operator delete(got.p);
    }
}

static void use_llvm_aligned()
{
    const __hot_cold_t cold{ 1 }, hot{ 254 };
    for (size_t size = 1; size < 3000000; size = size * 3 + 1) {
        for (size_t number : { 16, 64, 4096 }) {
            std::align_val_t alignment{ number };
            void *block = ::operator new(size, alignment, cold);
            check_aligned(block, number, size);
            ::operator delete(block, alignment);
            block = ::operator new[](size, alignment, hot);
            check_aligned(block, number, size);
            ::operator delete[](block, alignment);
            block = ::operator new(size, alignment, std::nothrow, cold);
            check_aligned(block, number, size);
            ::operator delete(block, size, alignment);
            block = ::operator new[](size, alignment, std::nothrow, hot);
            check_aligned(block, number, size);
            ::operator delete[](block, size, alignment);
            __sized_ptr_t got = __size_returning_new_aligned(size, alignment);
            check_sized(got, number, size);
            ::operator delete(got.p, got.n, alignment);
            check_sized(got = __size_returning_new_aligned_hot_cold(size, alignment, hot), number, size);
            ::operator delete(got.p, alignment);
        }
    }
}

// Mixing new and free is wrong, and works with glibc and libstdc++, where new calls malloc.
static void use_mixed()
{
    for (size_t size = 1; size < 3000000; size = size * 3 + 1) {
        void *volatile block = ::operator new(size);
        free(block);
        block = malloc(size);
        ::operator delete(block);
        block = ::operator new[](size);
        block = realloc(block, size * 2);
        ::operator delete[](block);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*use)();
    } groups[] = {
        { "c", use_c },
        { "realloc", use_realloc },
        { "threads", use_threads },
        { "aligned", use_aligned },
        { "aligned_16", use_aligned_16 },
        { "sized", use_sized },
        { "usable_size", use_usable_size },
        { "cpp", use_cpp },
        { "cpp_aligned", use_cpp_aligned },
        { "llvm", use_llvm },
        { "llvm_aligned", use_llvm_aligned },
        { "mixed", use_mixed },
    };
    for (int i = 1; i < argc; i++)
        for (const auto &group : groups)
            if (std::strcmp(group.name, argv[i]) == 0) {
                std::printf("%s\n", group.name);
                std::fflush(stdout);
                group.use();
            }
    std::printf("others %d\n", &interposed_allocations && interposed_allocations + interposed_frees != 0);
    return 0;
}
