#include "profile/sink.h"

#include <string.h>

#include "os/file.h"

enum {
    FILE_HEAD = 10,   /* of gzip: bytes before the first block */
    BLOCK_HEAD = 5,   /* before each stored block */
    BLOCK_SIZE = 32768,
    FILE_TAIL = 8,    /* behind the last block */
};

/* A block with room for the heads before it and the tail behind it, so that a small profile is one write. */
struct sink {
    int file, error;
    uint32_t check; /* CRC-32 so far, complemented */
    uint32_t size;  /* bytes put so far, modulo 2^32 */
    bool begun;     /* the file's head is written */
    size_t used;    /* of the block */
    uint8_t bytes[FILE_HEAD + BLOCK_HEAD + BLOCK_SIZE + FILE_TAIL];
};

static struct sink the_sink;

/* CRC-32 of RFC 1952, 8: the remainders of all upper half bytes, and of all lower ones. */
static const uint32_t upper_remainders[16] = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};
static const uint32_t lower_remainders[16] = {
    0x00000000, 0x77073096, 0xee0e612c, 0x990951ba, 0x076dc419, 0x706af48f, 0xe963a535, 0x9e6495a3,
    0x0edb8832, 0x79dcb8a4, 0xe0d5e91e, 0x97d2d988, 0x09b64c2b, 0x7eb17cbd, 0xe7b82d07, 0x90bf1d91,
};

static uint32_t check_of(uint32_t check, const uint8_t *from, size_t size)
{
    for (const uint8_t *end = from + size; from < end; from++) {
        uint32_t byte = (check ^ *from) & 255;
        check = lower_remainders[byte & 15] ^ upper_remainders[byte >> 4] ^ (check >> 8);
    }
    return check;
}

static void little_endian(uint8_t *out, uint32_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static void block_put(struct sink *sink, bool last)
{
    uint8_t *block = sink->bytes + FILE_HEAD + BLOCK_HEAD, *head = block - BLOCK_HEAD, *end = block + sink->used;

    head[0] = last;
    little_endian(head + 1, (uint32_t)sink->used, 2);
    little_endian(head + 3, ~(uint32_t)sink->used & 0xffff, 2);
    if (last) {
        little_endian(end, ~sink->check, 4);
        little_endian(end + 4, sink->size, 4);
        end += FILE_TAIL;
    }
    if (!sink->begun)
        head = sink->bytes;
    if (sink->error == 0)
        sink->error = os_file_write(sink->file, head, (size_t)(end - head));
    sink->begun = true;
    sink->used = 0;
}

struct sink *sink_begin(int file)
{
    static const uint8_t head[FILE_HEAD] = { 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3 /* Unix */ };

    the_sink.file = file;
    the_sink.error = 0;
    the_sink.check = UINT32_MAX;
    the_sink.size = 0;
    the_sink.begun = false;
    the_sink.used = 0;
    memcpy(the_sink.bytes, head, sizeof head);
    return &the_sink;
}

void sink_put(struct sink *sink, const void *data, size_t size)
{
    const uint8_t *from = data;

    sink->check = check_of(sink->check, from, size);
    sink->size += (uint32_t)size;
    while (size) {
        size_t part = base_min(size, BLOCK_SIZE - sink->used);
        memcpy(sink->bytes + FILE_HEAD + BLOCK_HEAD + sink->used, from, part);
        sink->used += part;
        from += part;
        size -= part;
        if (sink->used == BLOCK_SIZE)
            block_put(sink, false);
    }
}

int sink_end(struct sink *sink)
{
    block_put(sink, true);
    return sink->error;
}
