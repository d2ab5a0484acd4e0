// Allocates by both C++ headers and prints HAKMEM's version.
#include <cstdio>
#include <vector>

#include <hakmem/allocator.hpp>
#include <hakmem/memory_resource.hpp>

int main()
{
    hakmem::heap_resource resource;
    std::vector<int, hakmem::allocator<int>> numbers(1000);
    std::pmr::vector<int> others(1000, &resource);
    if (hak_usable_size(numbers.data()) < 4000 || hak_heap_of(others.data()) != resource.get())
        return 1;
    std::printf("%s\n", hak_version());
    return 0;
}
