/* LIBRARY: a library with the C++ run-time inside: it defines the operators, and is linked to call its own ones.
 * Else: a program whose calls come to the first object with operators. Each frees the other's blocks, in all forms. */
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <new>

struct alignas(64) Wide {
    char bytes[200];
};

extern "C" void *library_new(std::size_t size);
extern "C" void *library_new_array(std::size_t size);
extern "C" Wide *library_new_wide();
extern "C" void library_delete(void *block);
extern "C" void library_delete_array(char *block);
extern "C" void library_delete_wide(Wide *block);

#ifdef LIBRARY
void *operator new(std::size_t size) { return std::malloc(size ? size : 1); }
void *operator new[](std::size_t size) { return operator new(size); }
void *operator new(std::size_t size, std::align_val_t alignment)
{
    return std::aligned_alloc(std::size_t(alignment), (size + std::size_t(alignment) - 1) & -std::size_t(alignment));
}
void operator delete(void *block) noexcept { std::free(block); }
void operator delete(void *block, std::size_t) noexcept { std::free(block); }
void operator delete[](void *block) noexcept { std::free(block); }
void operator delete[](void *block, std::size_t) noexcept { std::free(block); }
void operator delete(void *block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void *block, std::size_t, std::align_val_t) noexcept { std::free(block); }

void *library_new(std::size_t size) { return operator new(size); }
void *library_new_array(std::size_t size) { return new char[size]; }
Wide *library_new_wide() { return new Wide; }
void library_delete(void *block) { operator delete(block); }
void library_delete_array(char *block) { delete[] block; }
void library_delete_wide(Wide *block) { delete block; }
#else
int main()
{
    for (std::size_t size : { 0, 1, 24, 1000, 5000, 100000, 3000000 })
        for (int round = 0; round < 100; round++) {
            operator delete(library_new(size), size);
            operator delete(library_new(size));
            delete[] static_cast<char *>(library_new_array(size));
            delete library_new_wide();
            library_delete(operator new(size));
            library_delete_array(new char[size]);
            library_delete_wide(new Wide);
        }
    std::puts("done");
}
#endif
