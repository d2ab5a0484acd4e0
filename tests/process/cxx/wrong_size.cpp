// Passes deallocate another size than allocate. The argument chooses the allocator.
#include <hakmem/allocator.hpp>
#include <hakmem/memory_resource.hpp>

#include <cstdio>
#include <cstring>
#include <functional>

struct alignas(64) Line {
    char bytes[64];
};

template <class Allocator> static void misuse_allocator(Allocator allocator)
{
    allocator.deallocate(allocator.allocate(10), 10000);
}

static void misuse_resource(std::pmr::memory_resource *resource)
{
    resource->deallocate(resource->allocate(40), 40000);
}

int main(int, char **argv)
{
    hakmem::heap heap;
    hakmem::heap_resource owned;
    hakmem::borrowed_heap_resource borrowed(heap.get());
    const struct {
        const char *name;
        std::function<void()> run;
    } cases[] = {
        { "allocator", [] { misuse_allocator(hakmem::allocator<int>()); } },
        { "aligned_allocator", [] { misuse_allocator(hakmem::allocator<Line>()); } },
        { "process_resource", [] { misuse_resource(hakmem::process_resource()); } },
        { "heap_allocator", [&] { misuse_allocator(hakmem::heap_allocator<int>(heap)); } },
        { "aligned_heap_allocator", [&] { misuse_allocator(hakmem::heap_allocator<Line>(heap)); } },
        { "heap_resource", [&] { misuse_resource(&owned); } },
        { "borrowed_heap_resource", [&] { misuse_resource(&borrowed); } },
    };
    for (const auto &one : cases)
        if (std::strcmp(one.name, argv[1]) == 0) {
            one.run();
            std::puts("not seen");
            return 0;
        }
    return 2;
}
