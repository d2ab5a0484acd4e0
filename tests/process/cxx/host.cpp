// Says whether plugin.cpp's resource and its own are equal. Equal ones free each other's blocks.
#include <hakmem/memory_resource.hpp>

#include <cstdio>

extern "C" std::pmr::memory_resource *plugin_resource();

int main()
{
    std::pmr::memory_resource *ours = hakmem::process_resource(), *theirs = plugin_resource();
    const bool equal = ours->is_equal(*theirs), reverse = theirs->is_equal(*ours);
    if (ours == theirs || equal != reverse)
        return 4;
    if (equal) {
        ours->deallocate(theirs->allocate(100), 100);
        theirs->deallocate(ours->allocate(100), 100);
    }
    std::puts(equal ? "equal" : "not equal");
    return 0;
}
