/* Prints how often the program's own malloc (interposed_allocator.c) was called before main. */
#include <stdio.h>

extern _Atomic unsigned long interposed_allocations;

int main(void)
{
    printf("%lu\n", interposed_allocations);
    return 0;
}
