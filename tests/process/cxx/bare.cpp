// The headers without exceptions and run-time type information. With an argument memory is out.
#include <hakmem/allocator.hpp>
#include <hakmem/memory_resource.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

int main(int argc, char **argv)
{
    (void)argv;
    hakmem::heap_resource resource;
    hakmem::borrowed_heap_resource borrowed(resource.get()), same(resource.get());
    std::vector<int, hakmem::allocator<int>> numbers(1000, 1);
    std::pmr::vector<int> others(1000, 2, &resource);
    const bool good = numbers[999] + others[999] == 3 && borrowed.is_equal(borrowed) && !borrowed.is_equal(same) &&
                      hakmem::process_resource()->is_equal(*hakmem::process_resource()) &&
                      !hakmem::process_resource()->is_equal(resource);
    if (argc > 1)
        (void)resource.allocate(PTRDIFF_MAX);
    std::puts(good ? "done" : "not equal");
    return 0;
}
