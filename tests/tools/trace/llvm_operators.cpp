// Every function that LLVM calls in place of operator new, 100 times each, by its emitted name.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

struct SizedBlock {
    void *block;
    std::size_t size;
};

enum { CALLS = 100 };

template <class Function> static bool find(Function *&function, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    std::memcpy(&function, &found, sizeof function);
    return found != nullptr;
}

// The arguments after the size. The hint is the last one.
template <class... Arguments> static bool call(const char *name, bool aligned, std::size_t size, Arguments... arguments)
{
    void *(*function)(std::size_t, Arguments...);
    if (!find(function, name))
        return false;
    for (int i = 0; i < CALLS; i++) {
        void *block = function(size, arguments...);
        std::memset(block, 1, size);
        if (!aligned)
            ::operator delete(block);
        else if (reinterpret_cast<std::uintptr_t>(block) % 64 != 0)
            return false;
        else
            ::operator delete(block, std::align_val_t(64));
    }
    return true;
}

template <class... Arguments>
static bool call_sized(const char *name, bool aligned, std::size_t size, Arguments... arguments)
{
    SizedBlock (*function)(std::size_t, Arguments...);
    if (!find(function, name))
        return false;
    for (int i = 0; i < CALLS; i++) {
        SizedBlock got = function(size, arguments...);
        if (got.size < size)
            return false;
        std::memset(got.block, 1, got.size);
        if (aligned)
            ::operator delete(got.block, std::align_val_t(64));
        else
            ::operator delete(got.block);
    }
    return true;
}

int main()
{
    const std::size_t alignment = 64;
    const std::nothrow_t *nothrow = &std::nothrow;
    const unsigned char hint = 1;
    bool good = call("_Znwm12__hot_cold_t", false, 1000, hint) && call("_Znam12__hot_cold_t", false, 1000, hint) &&
                call("_ZnwmRKSt9nothrow_t12__hot_cold_t", false, 1000, nothrow, hint) &&
                call("_ZnamRKSt9nothrow_t12__hot_cold_t", false, 1000, nothrow, hint) &&
                call("_ZnwmSt11align_val_t12__hot_cold_t", true, 1000, alignment, hint) &&
                call("_ZnamSt11align_val_t12__hot_cold_t", true, 1000, alignment, hint) &&
                call("_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t", true, 1000, alignment, nothrow, hint) &&
                call("_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t", true, 1000, alignment, nothrow, hint) &&
                call_sized("__size_returning_new", false, 1001) &&
                call_sized("__size_returning_new_hot_cold", false, 1001, hint) &&
                call_sized("__size_returning_new_aligned", true, 1001, alignment) &&
                call_sized("__size_returning_new_aligned_hot_cold", true, 1001, alignment, hint);
    return good ? 0 : 1;
}
