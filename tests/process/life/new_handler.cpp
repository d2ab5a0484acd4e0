// New-handlers: nothrow operators catch what a handler throws, the others pass it on. After a handler freed memory, new
// tries again.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>

static int calls;

static void check(bool good, const char *what)
{
    if (!good) {
        std::fprintf(stderr, "failed: %s\n", what);
        std::_Exit(4);
    }
}

static void throws_bad_alloc()
{
    calls++;
    throw std::bad_alloc();
}

static void throws_int()
{
    calls++;
    throw 17;
}

static void gives_up_the_third_time()
{
    if (++calls == 3)
        std::set_new_handler(nullptr);
}

struct Noisy {
    int *count;
    ~Noisy() { ++*count; }
};

// No address space has SIZE_MAX / 4 bytes.
static volatile size_t too_much = SIZE_MAX / 4;

static void nothrow_operators(int expected)
{
    calls = 0;
    check(::operator new(too_much, std::nothrow) == nullptr && calls == expected, "new nothrow");
    calls = 0;
    check(::operator new[](too_much, std::nothrow) == nullptr && calls == expected, "new[] nothrow");
    calls = 0;
    void *block = ::operator new(too_much, std::align_val_t(64), std::nothrow);
    check(block == nullptr && calls == expected, "new aligned nothrow");
    calls = 0;
    block = ::operator new[](too_much, std::align_val_t(64), std::nothrow);
    check(block == nullptr && calls == expected, "new[] aligned nothrow");
    check(std::uncaught_exceptions() == 0, "nothing is in flight");
}

template <class Thrown> static void throwing_operator()
{
    int destroyed = 0;
    bool caught = false;
    calls = 0;
    try {
        Noisy noisy = { &destroyed };
        check(::operator new(too_much) == nullptr, "not reached");
    } catch (const Thrown &) {
        caught = true;
    }
    check(caught && destroyed == 1 && calls == 1, "new throws what the handler throws");
}

int main()
{
    for (int round = 0; round < 1000; round++) {
        std::set_new_handler(throws_bad_alloc);
        nothrow_operators(1);
        throwing_operator<std::bad_alloc>();
        std::set_new_handler(throws_int);
        nothrow_operators(1);
        throwing_operator<int>();
        std::set_new_handler(nullptr);
        nothrow_operators(0);
        std::set_new_handler(gives_up_the_third_time);
        calls = 0;
        check(::operator new(too_much, std::nothrow) == nullptr && calls == 3, "a handler that gives up");
    }
    std::puts("done");
    return 0;
}
