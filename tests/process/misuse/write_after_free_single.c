/*
 * write_after_free_single SIZE: one thread repeatedly writes garbage over every freed block of one size that is still
 * mapped, while it allocates and frees blocks of that size and its neighbours. Live blocks keep their contents.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

#include "use.h"

enum { COUNT = 300 };

/* The kernel does the write, and refuses where the block's pages are gone. */
static void write_if_mapped(void *to, const void *from, size_t size)
{
    struct iovec source = { (void *)(uintptr_t)from, size }, target = { to, size };
    process_vm_writev(getpid(), &source, 1, &target, 1, 0);
}

int main(int argc, char **argv)
{
    static unsigned char *blocks[COUNT], *freed[COUNT];
    static size_t sizes[COUNT];

    if (argc != 2)
        return 2;
    size_t size = (size_t)atol(argv[1]);
    int count = size >= 1 << 20 ? 10 : size > 32768 ? 50 : COUNT;
    unsigned char *garbage = memset(malloc(size * 2), 0xfe, size * 2);
    int rounds = (int)(30000000 / (size * (size_t)count)) + 5;
    if (rounds > 200)
        rounds = 200;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < count; i++) {
            sizes[i] = size - size / 8 + (size_t)(i * 7 + round) % (size / 4 + 1);
            blocks[i] = malloc(sizes[i]);
            memset(blocks[i], i & 0xff, sizes[i]);
        }
        for (int i = 0; i < count; i += 2) {
            free(blocks[i]);
            freed[i] = blocks[i];
            blocks[i] = NULL;
        }
        if (round % 8 == 3)
            malloc_trim(0);
        for (int i = 0; i < count; i += 2)
            write_if_mapped(freed[i], garbage, sizes[i]);
        for (int i = 0; i < count; i++) {
            if (!blocks[i])
                continue;
            for (size_t k = 0; k < sizes[i]; k++)
                if (blocks[i][k] != (i & 0xff)) {
                    dprintf(2, "damage at %p + %zu\n", (void *)blocks[i], k);
                    _exit(3);
                }
            free(blocks[i]);
            write_if_mapped(blocks[i], garbage, sizes[i]);
        }
    }
    for (size_t k = 0; k < size * 2; k++)
        if (garbage[k] != 0xfe)
            return 3;
    free(garbage);
    check_the_allocator_works();
    return 0;
}
