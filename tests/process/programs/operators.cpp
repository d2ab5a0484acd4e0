// Protects every operator new and delete, new-handlers, bad_alloc, containers, threads and exceptions. The program
// prints the same on every conforming allocator.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            failures++;                                                                                                \
            std::printf("line %d: not so: %s\n", __LINE__, #condition);                                                \
        }                                                                                                              \
    } while (0)

static volatile std::size_t too_large = SIZE_MAX / 2 + 5;
static volatile std::size_t unobtainable = (std::size_t)1 << 46;
static int handler_calls;

static void operators()
{
    static const std::size_t sizes[] = { 0, 1, 8, 16, 17, 100, 1024, 5000, 40000, 300000, 3000000 };
    for (std::size_t size : sizes) {
        for (int round = 0; round < 50; round++) {
            void *block = ::operator new(size);
            CHECK(block != nullptr && (std::uintptr_t)block % 16 == 0);
            std::memset(block, round, size);
            ::operator delete(block);
            block = ::operator new(size);
            ::operator delete(block, size);
            block = ::operator new[](size);
            std::memset(block, round, size);
            ::operator delete[](block);
            block = ::operator new[](size);
            ::operator delete[](block, size);
            block = ::operator new(size, std::nothrow);
            CHECK(block != nullptr);
            ::operator delete(block, std::nothrow);
            block = ::operator new[](size, std::nothrow);
            CHECK(block != nullptr);
            ::operator delete[](block, std::nothrow);
        }
        for (std::size_t alignment = 8; alignment <= 65536; alignment *= 2) {
            std::align_val_t align{ alignment };
            void *block = ::operator new(size, align);
            CHECK(block != nullptr && (std::uintptr_t)block % alignment == 0);
            std::memset(block, 1, size);
            ::operator delete(block, align);
            block = ::operator new(size, align);
            ::operator delete(block, size, align);
            block = ::operator new[](size, align);
            CHECK((std::uintptr_t)block % alignment == 0);
            ::operator delete[](block, align);
            block = ::operator new[](size, align);
            ::operator delete[](block, size, align);
            block = ::operator new(size, align, std::nothrow);
            CHECK(block != nullptr && (std::uintptr_t)block % alignment == 0);
            ::operator delete(block, align, std::nothrow);
            block = ::operator new[](size, align, std::nothrow);
            CHECK(block != nullptr && (std::uintptr_t)block % alignment == 0);
            ::operator delete[](block, align, std::nothrow);
        }
    }
    ::operator delete(nullptr);
    ::operator delete(nullptr, (std::size_t)5);
    ::operator delete[](nullptr);
    ::operator delete[](nullptr, (std::size_t)5);
    ::operator delete (nullptr, std::align_val_t{ 64 });
    ::operator delete[](nullptr, (std::size_t)5, std::align_val_t{ 64 });
    void *zero = ::operator new(0), *other = ::operator new(0);
    CHECK(zero != other);
    ::operator delete(zero);
    ::operator delete(other);
    std::puts("operators");
}

template <typename Function> static bool throws(Function function)
{
    try {
        ::operator delete(function());
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void failures_of_new()
{
    for (std::size_t size : { (std::size_t)too_large, (std::size_t)unobtainable }) {
        CHECK(throws([=] { return ::operator new(size); }));
        CHECK(throws([=] { return ::operator new[](size); }));
        CHECK(throws([=] { return ::operator new (size, std::align_val_t{ 64 }); }));
        CHECK(throws([=] { return ::operator new[](size, std::align_val_t{ 64 }); }));
        CHECK(::operator new(size, std::nothrow) == nullptr);
        CHECK(::operator new[](size, std::nothrow) == nullptr);
        CHECK(::operator new (size, std::align_val_t{ 64 }, std::nothrow) == nullptr);
        CHECK(::operator new[](size, std::align_val_t{ 64 }, std::nothrow) == nullptr);
    }
    bool caught = false;
    try {
        std::vector<char> much(unobtainable);
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECK(caught);

    // Called again until it gives up: by unsetting itself, or by throwing.
    std::set_new_handler([] {
        if (++handler_calls == 3)
            std::set_new_handler(nullptr);
    });
    CHECK(throws([] { return ::operator new(unobtainable); }) && handler_calls == 3);
    handler_calls = 0;
    std::set_new_handler([] {
        if (++handler_calls == 2)
            std::set_new_handler(nullptr);
    });
    CHECK(::operator new(unobtainable, std::nothrow) == nullptr &&handler_calls == 2);
    handler_calls = 0;
    std::set_new_handler([] {
        if (++handler_calls == 2)
            std::set_new_handler(nullptr);
    });
    CHECK(throws([] { return ::operator new[](unobtainable, std::align_val_t{ 128 }); }) && handler_calls == 2);
    std::set_new_handler([] { throw std::bad_alloc(); });
    CHECK(throws([] { return ::operator new(unobtainable); }));
    CHECK(::operator new[](unobtainable, std::nothrow) == nullptr);
    std::set_new_handler(nullptr);
    std::puts("failures of new");
}

struct alignas(256) Wide {
    char bytes[300];
};

static void containers()
{
    std::map<std::string, std::vector<int>> map;
    std::unordered_map<int, std::string> table;
    for (int i = 0; i < 20000; i++) {
        map["key" + std::to_string(i * 7919 % 5003)].push_back(i);
        table[i] = std::string((std::size_t)(i % 300), 'x');
        if (i % 3 == 0)
            table.erase(i / 2);
    }
    std::size_t sum = 0;
    for (auto &row : map)
        sum += row.second.size() * row.first.size();
    for (auto &row : table)
        sum += row.second.size();
    std::vector<std::unique_ptr<Wide>> wide;
    for (int i = 0; i < 500; i++) {
        wide.push_back(std::make_unique<Wide>());
        CHECK((std::uintptr_t)wide.back().get() % 256 == 0);
    }
    std::printf("containers %zu\n", sum);
}

static void exceptions()
{
    int caught = 0;
    std::function<void(int)> deep = [&](int depth) {
        std::string text((std::size_t)depth * 10, 'y');
        if (depth == 0)
            throw std::runtime_error("bottom, with a message that is longer than a short string");
        deep(depth - 1);
    };
    for (int i = 0; i < 1000; i++) {
        try {
            deep(20);
        } catch (const std::exception &error) {
            caught += std::strlen(error.what()) > 20;
        }
    }
    std::printf("exceptions %d\n", caught);
}

static void threads()
{
    std::vector<std::thread> workers;
    std::vector<std::size_t> results(8);
    for (std::size_t n = 0; n < results.size(); n++) {
        workers.emplace_back([n, &results] {
            std::map<int, std::string> map;
            for (int i = 0; i < 20000; i++) {
                map[i % 1000] += std::to_string(i);
                if (map[i % 1000].size() > 60)
                    map.erase(i % 1000);
            }
            for (auto &row : map)
                results[n] += row.second.size();
            try {
                throw std::string(100, 'z');
            } catch (const std::string &text) {
                results[n] += text.size();
            }
        });
    }
    for (auto &worker : workers)
        worker.join();
    for (auto result : results)
        std::printf("thread %zu\n", result);
}

int main()
{
    operators();
    failures_of_new();
    containers();
    exceptions();
    threads();
    return failures != 0;
}
