/* Has a descriptor of format 99, as a later HAKMEM might. */
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((used, section("hakmem_descriptor"))) static struct {
    char magic[16];
    uint32_t format, size;
    char version[16];
    uint32_t rows, row_size, rows_offset, pointer_size;
} descriptor = { "HAKMEM\x01inside\x02\xfe", 99, 56, "9.9.9", 0, 64, 56, 8 };

int main(void)
{
    puts("ready");
    fflush(stdout);
    pause();
    return descriptor.format != 99;
}
