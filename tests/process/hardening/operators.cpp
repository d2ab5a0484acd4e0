// operators KIND: mixes up allocation functions as KIND says, or uses all of them correctly (ok).
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

struct Base {
    virtual ~Base() {}
    int numbers[9];
};
struct Derived : Base {
    char more[50];
};

static void use_well()
{
    Base *volatile one = new Derived, *volatile three = new Base[3];
    void *volatile none = ::operator new(0), *volatile aligned = ::operator new(100, std::align_val_t(256));
    char *volatile large = new (std::nothrow) char[5000000];
    std::vector<int> numbers;

    for (int i = 0; i < 300000; i++)
        numbers.push_back(i);
    delete one;
    delete[] three;
    ::operator delete(none);
    ::operator delete(aligned, 100, std::align_val_t(256));
    delete[] large;
    free(realloc(malloc(0), 100));
    free(realloc(calloc(3, 7), 0x30000));
    std::puts("went on");
}

int main(int, char **argv)
{
    const char *kind = argv[1];
    void *volatile block = nullptr;

    if (!std::strcmp(kind, "ok"))
        use_well();
    else if (!std::strcmp(kind, "malloc_delete"))
        ::operator delete(block = std::malloc(100));
    else if (!std::strcmp(kind, "new_free"))
        std::free(block = ::operator new(100));
    else if (!std::strcmp(kind, "new_realloc"))
        block = std::realloc(block = ::operator new(100), 200);
    else if (!std::strcmp(kind, "array_delete"))
        ::operator delete(block = ::operator new[](100));
    else if (!std::strcmp(kind, "new_delete_array"))
        ::operator delete[](block = ::operator new(100));
    else if (!std::strcmp(kind, "huge_array_delete"))
        ::operator delete(block = ::operator new[](5000000));
    else if (!std::strcmp(kind, "wrong_size"))
        ::operator delete(block = ::operator new(100), 101);
    else if (!std::strcmp(kind, "nothing_write"))
        *static_cast<char *>(block = std::malloc(0)) = 1;
    else if (!std::strcmp(kind, "nothing_read"))
        return *static_cast<char *>(block = std::malloc(0));
    else if (!std::strcmp(kind, "nothing_double"))
        std::free(block = std::malloc(0)), std::free(block);
    else if (!std::strcmp(kind, "nothing_interior"))
        std::free(static_cast<char *>(block = std::malloc(0)) + 1);
    else
        return 2;
    return 0;
}
