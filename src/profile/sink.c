#include "profile/sink.h"

#include "os/file.h"

#define BLOCK_SIZE 32768u

struct sink {
    int file, error;
    uint32_t check; /* CRC-32 so far, complemented */
    uint32_t size;  /* of what went in, modulo 2^32 */
    size_t used;
    uint8_t block[BLOCK_SIZE];
};

static struct sink the_sink;
static uint32_t check_table[256];

/* CRC-32 of RFC 1952, 8: the remainders of all bytes. */
static void check_prepare(void)
{
    for (uint32_t n = 0; check_table[255] == 0 && n < 256; n++) {
        uint32_t remainder = n;
        for (unsigned bit = 0; bit < 8; bit++)
            remainder = (remainder >> 1) ^ (remainder & 1 ? 0xedb88320u : 0);
        check_table[n] = remainder;
    }
}

static void raw_put(struct sink *sink, const void *data, size_t size)
{
    if (sink->error == 0)
        sink->error = os_file_write(sink->file, data, size);
}

static void little_endian(uint8_t *out, uint32_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static void block_put(struct sink *sink, bool last)
{
    uint8_t header[5] = { last };

    little_endian(header + 1, (uint32_t)sink->used, 2);
    little_endian(header + 3, ~(uint32_t)sink->used & 0xffff, 2);
    raw_put(sink, header, sizeof header);
    raw_put(sink, sink->block, sink->used);
    sink->used = 0;
}

struct sink *sink_begin(int file)
{
    static const uint8_t header[10] = { 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3 /* Unix */ };

    check_prepare();
    the_sink.file = file;
    the_sink.error = 0;
    the_sink.check = UINT32_MAX;
    the_sink.size = 0;
    the_sink.used = 0;
    raw_put(&the_sink, header, sizeof header);
    return &the_sink;
}

void sink_put(struct sink *sink, const void *data, size_t size)
{
    const uint8_t *bytes = data;

    for (size_t i = 0; i < size; i++) {
        sink->check = check_table[(sink->check ^ bytes[i]) & 0xff] ^ (sink->check >> 8);
        sink->block[sink->used++] = bytes[i];
        if (sink->used == BLOCK_SIZE)
            block_put(sink, false);
    }
    sink->size += (uint32_t)size;
}

int sink_end(struct sink *sink)
{
    uint8_t trailer[8];

    block_put(sink, true);
    little_endian(trailer, ~sink->check, 4);
    little_endian(trailer + 4, sink->size, 4);
    raw_put(sink, trailer, sizeof trailer);
    return sink->error;
}
