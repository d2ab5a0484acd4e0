/* je_* from libhakmem-je.a in a program whose malloc is the C library's. */
#include <malloc.h>
#include <string.h>

#include <hakmem/stats.h>
#define JEMALLOC_MANGLE
#include <jemalloc/jemalloc.h>

#include "check.h"

int main(void)
{
    size_t live, size = sizeof live, epoch = 1;
    void *ours = mallocx(1000, MALLOCX_ZERO), *theirs = malloc(5 << 20), *more = je_malloc(100000);

    CHECK(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0 &&
          mallctl("stats.allocated", &live, &size, NULL, 0) == 0);
    printf("%zu %zu\n", live, sallocx(ours, 0) + sallocx(more, 0));
    CHECK(live == sallocx(ours, 0) + sallocx(more, 0));
    sdallocx(ours, 1000, 0);
    je_free(more);
    free(theirs);
    puts("done");
    return 0;
}
