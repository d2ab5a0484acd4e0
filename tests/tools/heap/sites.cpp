// Prints its own mappings, then one stack a line, innermost address first, as a profiler would. Its functions have
// known names and lines, and one of them is inlined.
#include <cstdio>
#include <execinfo.h>
#include <memory>
#include <string>

namespace orchard {

template <typename Fruit> struct Basket {
    __attribute__((noinline)) int fill(int depth);
};

__attribute__((noinline)) int note_stack(const char *name)
{
    void *frames[64];
    int count = backtrace(frames, 64);
    std::printf("stack %s", name);
    for (int i = 1; i < count; i++)
        std::printf(" %p", frames[i]);
    std::printf("\n");
    return count;
}

static inline __attribute__((always_inline)) int pick_inlined(const char *name)
{
    return note_stack(name) + 1; // LINE inlined
}

template <typename Fruit> int Basket<Fruit>::fill(int depth)
{
    return pick_inlined("basket") + depth; // LINE fill
}

} // namespace orchard

namespace {

__attribute__((noinline)) int hidden(int depth)
{
    if (depth > 0)
        return hidden(depth - 1) + 1; // LINE recursion
    return orchard::note_stack("hidden") + 2; // LINE hidden
}

} // namespace

extern "C" __attribute__((noinline)) int plain_c(int value)
{
    orchard::Basket<std::string> basket;
    return basket.fill(value) + value; // LINE plain
}

int main()
{
    std::unique_ptr<std::FILE, int (*)(std::FILE *)> maps(std::fopen("/proc/self/maps", "r"), std::fclose);
    char line[4096];
    while (maps && std::fgets(line, sizeof line, maps.get()))
        std::printf("map %s", line);
    int sum = plain_c(1); // LINE main
    sum += hidden(2);
    return sum == 0;
}
