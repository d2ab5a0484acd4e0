/*
 * patrolled SEED KEPT PASSING CALLS
 *
 * Keeps KEPT blocks, among up to PASSING others that come and go, writes 32 bytes past one that it keeps, and goes on
 * with the others. Prints after how many calls the allocator ended it, or "none" after CALLS.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 100, BEFORE = 200000 };

static volatile long calls;
static unsigned long long state;

static void tell(int signal)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%ld\n", calls);

    (void)signal;
    _exit(write(1, text, (size_t)length) != length);
}

static unsigned chance(unsigned below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 20) % below;
}

static char *take(void)
{
    char *block = malloc(SIZE);

    if (!block)
        exit(5);
    memset(block, 1, SIZE);
    return block;
}

int main(int argc, char **argv)
{
    unsigned kept = argc == 5 ? (unsigned)atoi(argv[2]) : 0, passing = argc == 5 ? (unsigned)atoi(argv[3]) : 0;
    char **held = calloc(kept + 1, sizeof *held), **others = calloc(passing + 1, sizeof *others);

    if (!held || !others || kept == 0 || passing == 0)
        return 2;
    state = 88172645463325252 + 1000003 * strtoull(argv[1], NULL, 10);
    for (unsigned i = 0; i < kept + BEFORE; i++) { /* a heap that has been in use */
        unsigned one = i < kept ? i : chance(kept), other = chance(passing);
        free(held[one]);
        held[one] = take();
        free(others[other]);
        others[other] = take();
    }
    signal(SIGABRT, tell);
    signal(SIGSEGV, tell); /* the block may be the last of its slab, before a guard unit */
    memset(held[chance(kept)] + SIZE, 0x41, 32);
    while (calls < atol(argv[4])) {
        unsigned other = chance(passing);
        if (others[other]) {
            free(others[other]);
            others[other] = NULL;
        } else {
            others[other] = take();
        }
        calls++;
    }
    puts("none");
    return 0;
}
