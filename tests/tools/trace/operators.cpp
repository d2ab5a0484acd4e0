// Each kind of new once, in threads of C++ and C. 3 calls fail by exception, 1 without.
#include <threads.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <thread>

struct alignas(128) Wide {
    char bytes[256];
};

static int allocate(void *size)
{
    free(malloc(reinterpret_cast<std::size_t>(size)));
    return 3;
}

int main()
{
    delete new int;
    delete[] new int[100];
    delete new Wide;
    delete[] new Wide[3];
    delete new (std::nothrow) int;
    volatile std::size_t too_much = SIZE_MAX / 4;
    int caught = 0;
    for (int i = 0; i < 3; i++) {
        try {
            ::operator delete(::operator new(too_much));
        } catch (const std::bad_alloc &) {
            caught++;
        }
    }
    if (caught != 3 || ::operator new(too_much, std::nothrow) != nullptr)
        return 4;
    thrd_t thread;
    int result = 0;
    if (thrd_create(&thread, allocate, reinterpret_cast<void *>(777)) != thrd_success ||
        thrd_join(thread, &result) != thrd_success || result != 3)
        return 5;
    std::thread([] { delete new int; }).join();
    return 0;
}
