/* Reads heap profiles without the library's code: gzip of stored blocks, and protobuf's messages in it. */
#ifndef HAK_TESTS_UNIT_WIRE_H
#define HAK_TESTS_UNIT_WIRE_H

#include "support.h"

struct wire {
    const uint8_t *at, *end;
};

struct wire_field {
    unsigned number;
    uint64_t value;    /* of a number */
    struct wire bytes; /* of a message or text; at is NULL for a number */
};

/* Checks the gzip stream in the file from its beginning: heads, lengths and checksum. Returns its contents, valid until
 * the next call. *blocks (may be NULL): its deflate blocks. */
struct wire wire_read(int file, unsigned *blocks);

/* The next field of the message. False: there is none. */
bool wire_next(struct wire *message, struct wire_field *field);

/* Fields with the number: how many there are, the value of the only one (0: there is none), and the bytes of one of
 * them, counted from 0. */
unsigned wire_count(struct wire message, unsigned field);
uint64_t wire_number(struct wire message, unsigned field);
struct wire wire_part(struct wire message, unsigned field, unsigned number);

/* Numbers of a packed field. Returns how many there are. */
unsigned wire_numbers(struct wire packed, uint64_t *numbers, unsigned most);

/* The text (static, cut at 8 KiB, the last of four) of the profile's string with that number. */
const char *wire_string(struct wire profile, uint64_t number);

#endif
