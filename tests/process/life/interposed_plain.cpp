// An ordinary program, which takes the addresses of functions that it does not define.
#include <cstdlib>
#include <iostream>
#include <new>

void *(*volatile function)(std::size_t) = malloc;
void (*volatile other)(void *) = free;
void *(*volatile operator_new)(std::size_t) = ::operator new;
void (*volatile operator_delete)(void *) = ::operator delete;

#ifdef REPLACED
void *operator new(std::size_t size) { return malloc(size); }
void operator delete(void *block) noexcept { free(block); }
void operator delete(void *block, std::size_t) noexcept { free(block); }
#endif

int main()
{
    other(function(100));
    operator_delete(operator_new(100));
    std::cout << "done\n";
    return 0;
}
