// What the tests of the C++ headers share. They are linked to the static library. There hak_usable_size and hak_heap_of
// abort for a block that is not HAKMEM's, which detects containers that allocate elsewhere.
#ifndef TESTS_CXX_COMMON_HPP
#define TESTS_CXX_COMMON_HPP

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <typeinfo>

#include <hakmem/stats.h>

inline void check(bool good, const char *what, int line)
{
    if (!good) {
        std::fprintf(stderr, "line %d: not so: %s\n", line, what);
        std::_Exit(4);
    }
}
#define CHECK(condition) check((condition), #condition, __LINE__)

#define CHECK_THROWS(Exception, expression)                            \
    do {                                                               \
        bool thrown = false;                                           \
        try {                                                          \
            (void)(expression);                                        \
        } catch (const Exception &error) {                             \
            thrown = typeid(error) == typeid(Exception);               \
        }                                                              \
        check(thrown, "throws " #Exception ": " #expression, __LINE__); \
    } while (0)

inline bool is_aligned(const void *block, std::size_t alignment)
{
    return reinterpret_cast<std::uintptr_t>(block) % alignment == 0;
}

inline hak_stats statistics()
{
    hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    return stats;
}

// Runs the function in two threads at once, with the numbers 0 and 1.
template <class Function> void in_two_threads(Function function)
{
    std::atomic<int> ready{ 0 };
    const auto run = [&](int number) {
        ready++;
        while (ready != 2)
            continue;
        function(number);
    };
    std::thread other(run, 1);
    run(0);
    other.join();
}

// New-handlers, which count their calls. The first gives up at the third call, the second throws.
inline int handler_calls;

inline void give_up_the_third_time()
{
    if (++handler_calls == 3)
        std::set_new_handler(nullptr);
}

inline void throw_int()
{
    handler_calls++;
    throw 17;
}

// A size that no address space has, for which new calls the new-handler.
template <class Allocate> void check_new_handlers(Allocate allocate)
{
    bool caught = false;

    handler_calls = 0;
    std::set_new_handler(give_up_the_third_time);
    CHECK_THROWS(std::bad_alloc, allocate());
    CHECK(handler_calls == 3);
    handler_calls = 0;
    std::set_new_handler(throw_int);
    try {
        (void)allocate();
    } catch (int number) {
        caught = number == 17;
    }
    CHECK(caught && handler_calls == 1);
    std::set_new_handler(nullptr);
}

#endif
