// A library that returns the process's resource as it sees it.
#include <hakmem/memory_resource.hpp>

extern "C" __attribute__((visibility("default"))) std::pmr::memory_resource *plugin_resource()
{
    return hakmem::process_resource();
}
