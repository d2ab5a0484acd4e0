// What the optimiser of a whole program may break: an exception that ends in a nothrow operator, and the heap profile,
// which leaves out HAKMEM's own frames. Writes the profile to the given file and prints "done".
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "hakmem.h"

static void *kept[2000];

extern "C" __attribute__((noinline)) void *only_site(size_t size)
{
    void *block = std::malloc(size);

    return std::memset(block, 1, size);
}

static void throws() { throw 17; }

int main(int argc, char **argv)
{
    static volatile size_t too_much = SIZE_MAX / 4;

    if (argc != 2)
        return 2;
    for (void *&block : kept)
        block = only_site(10000);
    std::set_new_handler(throws);
    if (::operator new(too_much, std::nothrow) != nullptr || hak_profile_write(argv[1]) != 0)
        return 1;
    hak_free(std::malloc(100)); // misuse, unless malloc is HAKMEM's
    std::puts("done");
    return 0;
}
