/*
 * Passes the soft limit of the environment with live blocks. The handler is called and may free, and the program goes
 * on. After the handler is removed it is not called.
 */
#include <dlfcn.h>
#include <stdatomic.h>

#include "work.h"

typedef void (*handler)(size_t mapped, size_t limit);

static atomic_int calls;
static size_t told_mapped, told_limit;
static void *spare[200];

static void on_pressure(size_t mapped, size_t limit)
{
    if (atomic_fetch_add(&calls, 1) == 0) {
        told_mapped = mapped;
        told_limit = limit;
        for (int i = 0; i < 200; i++) {
            free(spare[i]);
            spare[i] = NULL;
        }
    }
}

int main(void)
{
    static void *blocks[3000];
    handler (*set)(handler);

    *(void **)&set = dlsym(RTLD_DEFAULT, "hak_set_pressure_handler");
    if (!set || set(on_pressure) != NULL)
        fail("hak_set_pressure_handler");
    for (int i = 0; i < 200; i++)
        spare[i] = memset(malloc(100000), 1, 100000);
    for (int i = 0; i < 3000; i++) {
        blocks[i] = malloc(50000);
        if (!blocks[i])
            fail("malloc above the soft limit");
        memset(blocks[i], 1, 50000);
    }
    if (atomic_load(&calls) == 0)
        fail("the handler was not called");
    if (set(NULL) != on_pressure)
        fail("the previous handler");
    int before = atomic_load(&calls);
    void *more = malloc(20 << 20);
    if (!more || atomic_load(&calls) != before)
        fail("a handler that was taken away");
    free(more);
    for (int i = 0; i < 3000; i++)
        free(blocks[i]);
    printf("limit %zu, mapped %s\n", told_limit, told_mapped > told_limit ? "above" : "below");
    return 0;
}
