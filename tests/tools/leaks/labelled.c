/* Loses blocks of one size at one place under several labels, and some without. */
#define HAK_PROFILE_WEAK 1
#include <hakmem/profile.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static __attribute__((noinline)) void lose(int count)
{
    for (int i = 0; i < count; i++) {
        void *volatile block = malloc(1000);
        memset(block, 0, 1000);
        block = NULL;
    }
}

static __attribute__((noinline)) void wipe(void)
{
    char room[16384];
    memset(room, 0, sizeof room);
    __asm__ volatile("" : : "r"(room) : "memory");
}

int main(void)
{
    static const char *const tenants[] = { NULL, "a", "b" };

    for (int i = 0; i < 3; i++) {
        if (tenants[i] && (hak_profile_label("tenant", tenants[i]) ||
                           hak_profile_label_number("part", 1000 + i, "bytes")))
            return 3;
        lose(10 * (i + 1));
    }
    wipe();
    return 0;
}
