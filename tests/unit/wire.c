#include "wire.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bit by bit, as RFC 1952 defines it. */
static uint32_t check_of(const uint8_t *bytes, size_t size)
{
    uint32_t check = UINT32_MAX;

    for (size_t i = 0; i < size; i++) {
        check ^= bytes[i];
        for (unsigned bit = 0; bit < 8; bit++)
            check = check & 1 ? check >> 1 ^ 0xedb88320 : check >> 1;
    }
    return ~check;
}

static uint32_t little_endian(const uint8_t *bytes, unsigned count)
{
    uint32_t value = 0;

    while (count--)
        value = value << 8 | bytes[count];
    return value;
}

struct wire wire_read(int file, unsigned *blocks)
{
    static const uint8_t head[10] = { 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3 };
    static uint8_t *stream, *content;
    size_t size = (size_t)lseek(file, 0, SEEK_END), used = 0, at = sizeof head;
    unsigned count = 0;
    bool last = false;

    free(stream);
    free(content);
    stream = malloc(size + 1);
    content = malloc(size + 1);
    assert_true(stream && content);
    assert_int_equal(pread(file, stream, size, 0), size);
    assert_true(size > sizeof head);
    assert_memory_equal(stream, head, sizeof head);
    for (; !last; count++) {
        uint32_t length;
        assert_true(at + 5 <= size && stream[at] <= 1);
        last = stream[at];
        length = little_endian(stream + at + 1, 2);
        assert_int_equal(little_endian(stream + at + 3, 2), length ^ 0xffff);
        assert_true(at + 5 + length <= size);
        memcpy(content + used, stream + at + 5, length);
        used += length;
        at += 5 + length;
    }
    assert_int_equal(at + 8, size);
    assert_int_equal(little_endian(stream + at, 4), check_of(content, used));
    assert_int_equal(little_endian(stream + at + 4, 4), used);
    if (blocks)
        *blocks = count;
    return (struct wire){ content, content + used };
}

static uint64_t varint(struct wire *message)
{
    uint64_t value = 0;

    for (unsigned shift = 0;; shift += 7) {
        assert_true(message->at < message->end && shift < 64);
        value |= (uint64_t)(*message->at & 127) << shift;
        if (*message->at++ < 128)
            return value;
    }
}

bool wire_next(struct wire *message, struct wire_field *field)
{
    uint64_t key;

    if (message->at == message->end)
        return false;
    key = varint(message);
    assert_true((key & 7) == 0 || (key & 7) == 2);
    *field = (struct wire_field){ .number = (unsigned)(key >> 3), .value = varint(message) };
    if ((key & 7) == 2) {
        assert_true(field->value <= (uint64_t)(message->end - message->at));
        field->bytes = (struct wire){ message->at, message->at + field->value };
        message->at += field->value;
    }
    return true;
}

unsigned wire_count(struct wire message, unsigned field)
{
    struct wire_field found;
    unsigned count = 0;

    while (wire_next(&message, &found))
        count += found.number == field;
    return count;
}

uint64_t wire_number(struct wire message, unsigned field)
{
    struct wire_field found;
    uint64_t value = 0;

    assert_true(wire_count(message, field) <= 1);
    while (wire_next(&message, &found))
        if (found.number == field) {
            assert_null(found.bytes.at);
            value = found.value;
        }
    return value;
}

struct wire wire_part(struct wire message, unsigned field, unsigned number)
{
    struct wire_field found;

    while (wire_next(&message, &found))
        if (found.number == field && number-- == 0) {
            assert_non_null(found.bytes.at);
            return found.bytes;
        }
    fail_msg("the message has no field %u", field);
    return (struct wire){ NULL, NULL };
}

unsigned wire_numbers(struct wire packed, uint64_t *numbers, unsigned most)
{
    unsigned count = 0;

    for (; packed.at < packed.end; count++) {
        assert_true(count < most);
        numbers[count] = varint(&packed);
    }
    return count;
}

const char *wire_string(struct wire profile, uint64_t number)
{
    enum { STRING = 6 };
    static char texts[4][8192];
    static unsigned next;
    struct wire found = wire_part(profile, STRING, (unsigned)number);
    size_t size = (size_t)(found.end - found.at);
    char *text = texts[next++ % 4];

    assert_true(size < sizeof texts[0]);
    memcpy(text, found.at, size);
    text[size] = '\0';
    return text;
}
