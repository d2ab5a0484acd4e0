/* The declarations of glibc's <malloc.h>. Other C libraries have a part of them; glibc before 2.33 lacks mallinfo2.
 * Sizes, names and numbers are glibc's, because programs were compiled with its header. */
#ifndef HAK_API_GLIBC_MALLOC_H
#define HAK_API_GLIBC_MALLOC_H

#include <stddef.h>
#include <stdio.h>

struct mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

struct mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

/* mallopt's parameters. */
enum {
    M_ARENA_MAX = -8,
    M_ARENA_TEST,
    M_PERTURB,
    M_CHECK_ACTION,
    M_MMAP_MAX,
    M_MMAP_THRESHOLD,
    M_TOP_PAD,
    M_TRIM_THRESHOLD,
    M_MXFAST = 1,
    M_NLBLKS,
    M_GRAIN,
    M_KEEP
};

void *memalign(size_t alignment, size_t size);
void *valloc(size_t size);
void *pvalloc(size_t size);
size_t malloc_usable_size(void *block);
struct mallinfo mallinfo(void);
struct mallinfo2 mallinfo2(void);
int mallopt(int parameter, int value);
int malloc_trim(size_t pad);
void malloc_stats(void);
int malloc_info(int options, FILE *out);

#endif
