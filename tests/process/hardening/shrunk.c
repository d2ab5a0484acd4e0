/* Spans that realloc shrinks in their place, as a full scope has no room for another block, go back to their slabs. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct hak_scope hak_scope_t;
hak_scope_t *hak_scope_new(const char *, hak_scope_t *, size_t);
int hak_scope_enter(hak_scope_t *);
void hak_scope_leave(hak_scope_t *);

enum { SPANS = 32, SIZE = 100000 };

int main(void)
{
    hak_scope_t *full = hak_scope_new("full", NULL, 1);
    char *spans[SPANS];

    for (int size = 1; size < 48; size++) {
        for (int i = 0; i < SPANS; i++)
            memset(spans[i] = malloc(SIZE), 0x5a, SIZE);
        if (hak_scope_enter(full))
            return 2;
        for (int i = 0; i < SPANS; i++)
            if (realloc(spans[i], size) != spans[i])
                return 3;
        hak_scope_leave(full);
        for (int i = 0; i < SPANS; i++)
            free(spans[i]);
        malloc_trim(0);
    }
    puts("went on");
    return 0;
}
