/* Two tenants: alice, with 8 blocks of 1000 bytes, a cap of 64 KiB and two refusals, and bob below her, with 700,000
 * bytes in a span. Waits for a line. */
#include <stdio.h>
#include <stdlib.h>

#include <hakmem/scope.h>

static void *volatile kept[10];

int main(void)
{
    hak_scope_t *alice = hak_scope_new("alice", NULL, 0), *bob = hak_scope_new("bob", alice, 0);

    hak_scope_enter(alice);
    for (int i = 0; i < 8; i++)
        kept[i] = malloc(1000);
    hak_scope_enter(bob);
    kept[8] = malloc(700000);
    hak_scope_leave(alice);
    hak_scope_set_cap(alice, 65536);
    hak_scope_enter(alice);
    for (int i = 0; i < 2; i++)
        kept[9] = malloc(100);
    hak_scope_leave(alice);
    puts(kept[9] ? "not refused" : "ready");
    (void)fflush(stdout);
    return getchar() == EOF;
}
