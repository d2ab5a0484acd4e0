#include "profile/python_lines.h"

#include "os/peek.h"

#define LINES_BYTES_MOST (4u << 20) /* bytes of a table */

/* Reads a table in parts. */
struct line_reader {
    uintptr_t next;
    size_t left; /* bytes of the table from `next` on */
    unsigned at, held;
    uint8_t bytes[128];
};

static bool line_has_more(struct line_reader *reader)
{
    if (reader->at < reader->held)
        return true;
    reader->held = (unsigned)base_min(reader->left, sizeof reader->bytes);
    reader->at = 0;
    if (reader->held == 0 || !os_peek_live_at(reader->next, reader->bytes, reader->held)) {
        reader->held = 0;
        reader->left = 0;
        return false;
    }
    reader->next += reader->held;
    reader->left -= reader->held;
    return true;
}

static unsigned line_byte(struct line_reader *reader)
{
    return line_has_more(reader) ? reader->bytes[reader->at++] : 0;
}

/* ---- 3.9: pairs of a length, and the line's change after that length ---- */

static uint32_t line_by_lnotab(struct line_reader *reader, uint32_t line, int64_t place)
{
    int64_t end = 0;

    while (line_has_more(reader)) {
        end += line_byte(reader);
        int8_t change = (int8_t)line_byte(reader);
        if (end > place)
            break;
        line += (uint32_t)change;
    }
    return line;
}

/* ---- 3.10: pairs of a length, and the line's change before that length; -128: no line ---- */

static uint32_t line_by_line_table(struct line_reader *reader, uint32_t line, int64_t place)
{
    int64_t end = 0;

    while (line_has_more(reader)) {
        end += line_byte(reader);
        int8_t change = (int8_t)line_byte(reader);
        bool none = change == INT8_MIN;
        if (!none)
            line += (uint32_t)change;
        if (place < end)
            return none ? 0 : line;
    }
    return 0;
}

/* ---- 3.11 on: entries that begin with a byte whose highest bit is set ---- */

enum { CODE_ONE_LINE = 10, CODE_NO_COLUMNS = 13, CODE_LONG = 14, CODE_NONE = 15 };

/* Reads groups of 6 bits, the lowest first. Bit 6 says that another group follows. */
static uint32_t line_number(struct line_reader *reader)
{
    uint32_t value = 0;

    for (unsigned shift = 0; shift < 32; shift += 6) {
        unsigned byte = line_byte(reader);
        value |= (byte & 63u) << shift;
        if ((byte & 64) == 0)
            break;
    }
    return value;
}

/* The lowest bit is the sign. */
static uint32_t line_change(struct line_reader *reader)
{
    uint32_t value = line_number(reader);

    return value & 1 ? 0 - (value >> 1) : value >> 1;
}

static uint32_t line_by_locations(struct line_reader *reader, uint32_t line, int64_t place)
{
    int64_t end = 0;

    while (line_has_more(reader)) {
        unsigned head = line_byte(reader), code = head >> 3 & 15;
        if ((head & 128) == 0) /* a later byte of an entry */
            continue;
        end += 2 * (int64_t)((head & 7) + 1);
        if (code == CODE_LONG || code == CODE_NO_COLUMNS)
            line += line_change(reader);
        else if (code >= CODE_ONE_LINE && code < CODE_NO_COLUMNS)
            line += code - CODE_ONE_LINE;
        if (place < end)
            return code == CODE_NONE ? 0 : line;
    }
    return 0;
}

uint32_t python_line(enum python_table kind, uintptr_t table, size_t size, uint32_t first_line, int64_t place)
{
    struct line_reader reader = { .next = table, .left = size };

    if (place < 0)
        return first_line; /* the function has not begun */
    if (size > LINES_BYTES_MOST)
        return 0;
    if (kind == PYTHON_LNOTAB)
        return line_by_lnotab(&reader, first_line, place);
    return kind == PYTHON_LINE_TABLE ? line_by_line_table(&reader, first_line, place)
                                     : line_by_locations(&reader, first_line, place);
}
