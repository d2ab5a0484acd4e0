/* printf-like formatting into the caller's buffer, and messages to stderr. */
#define _GNU_SOURCE
#include "base/format.h"

#include <errno.h>

#include "base/stderr.h"
#include "base/write.h"

enum { MESSAGE_CAPACITY = 1024, DIGITS_CAPACITY = 20 /* UINT64_MAX in decimal */ };

struct room {
    char *buffer;
    size_t capacity; /* without the place of the NUL */
    size_t length;   /* <= capacity */
};

/* One conversion between its '%' and its letter. */
struct conversion {
    bool zero_pad;
    bool left;
    size_t width;
    size_t precision; /* most characters of a %s */
    unsigned longs;   /* 0: int; else 64 bits: l, ll and z are all that wide */
};

static void room_put(struct room *room, char c)
{
    if (room->length < room->capacity)
        room->buffer[room->length++] = c;
}

static void room_pad(struct room *room, char c, size_t from, size_t to)
{
    for (; from < to && room->length < room->capacity; from++)
        room_put(room, c);
}

/* `prefix` ("", "-" or "0x") stands before zero padding and after blank padding. */
static void room_put_text(struct room *room, const struct conversion *conversion, const char *prefix,
                          const char *text, size_t length)
{
    size_t prefix_length = __builtin_strlen(prefix), total = prefix_length + length;
    if (!conversion->left && !conversion->zero_pad)
        room_pad(room, ' ', total, conversion->width);
    for (size_t i = 0; i < prefix_length; i++)
        room_put(room, prefix[i]);
    if (!conversion->left && conversion->zero_pad)
        room_pad(room, '0', total, conversion->width);
    for (size_t i = 0; i < length; i++)
        room_put(room, text[i]);
    if (conversion->left)
        room_pad(room, ' ', total, conversion->width);
}

static void room_put_number(struct room *room, const struct conversion *conversion, const char *prefix,
                            uint64_t value, unsigned radix)
{
    char digits[DIGITS_CAPACITY];
    size_t at = DIGITS_CAPACITY;
    do {
        digits[--at] = "0123456789abcdef"[value % radix];
        value /= radix;
    } while (value != 0);
    room_put_text(room, conversion, prefix, digits + at, DIGITS_CAPACITY - at);
}

static const char *read_count(const char *format, size_t *count)
{
    for (*count = 0; *format >= '0' && *format <= '9'; format++)
        *count = *count * 10 + (size_t)(*format - '0');
    return format;
}

size_t base_format_v(char *buffer, size_t capacity, const char *format, va_list arguments)
{
    struct room room = { buffer, capacity - 1, 0 };
    if (capacity == 0)
        return 0;
    while (*format != '\0') {
        if (*format != '%') {
            room_put(&room, *format++);
            continue;
        }
        struct conversion conversion = { .precision = SIZE_MAX };
        for (format++; *format == '0' || *format == '-'; format++) {
            conversion.zero_pad |= *format == '0';
            conversion.left |= *format == '-';
        }
        if (*format == '*') {
            int width = va_arg(arguments, int);
            conversion.width = width > 0 ? (size_t)width : 0;
            format++;
        } else {
            format = read_count(format, &conversion.width);
        }
        if (format[0] == '.' && format[1] == '*') {
            int precision = va_arg(arguments, int);
            conversion.precision = precision >= 0 ? (size_t)precision : SIZE_MAX;
            format += 2;
        } else if (format[0] == '.') {
            format = read_count(format + 1, &conversion.precision);
        }
        for (; *format == 'l' || *format == 'z'; format++)
            conversion.longs++;
        switch (*format) {
        case 'd':
        case 'i': {
            int64_t value = conversion.longs != 0 ? va_arg(arguments, int64_t) : va_arg(arguments, int);
            room_put_number(&room, &conversion, value < 0 ? "-" : "",
                            value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10);
            break;
        }
        case 'u':
        case 'x': {
            uint64_t value = conversion.longs != 0 ? va_arg(arguments, uint64_t) : va_arg(arguments, unsigned);
            room_put_number(&room, &conversion, "", value, *format == 'x' ? 16 : 10);
            break;
        }
        case 'p':
            room_put_number(&room, &conversion, "0x", (uint64_t)(uintptr_t)va_arg(arguments, void *), 16);
            break;
        case 'c': {
            char c = (char)va_arg(arguments, int);
            conversion.zero_pad = false;
            room_put_text(&room, &conversion, "", &c, 1);
            break;
        }
        case 's': {
            const char *text = va_arg(arguments, const char *);
            size_t length = 0;
            if (text == NULL)
                text = "(null)";
            while (length < conversion.precision && text[length] != '\0')
                length++;
            conversion.zero_pad = false;
            room_put_text(&room, &conversion, "", text, length);
            break;
        }
        case '%':
            room_put(&room, '%');
            break;
        default: /* unknown conversion: copies the rest of the format and reads no argument */
            room_put(&room, '%');
            while (*format != '\0')
                room_put(&room, *format++);
            continue;
        }
        format++;
    }
    buffer[room.length] = '\0';
    return room.length;
}

size_t base_format(char *buffer, size_t capacity, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t length = base_format_v(buffer, capacity, format, arguments);
    va_end(arguments);
    return length;
}

void base_message(const char *format, ...)
{
    int saved_errno = errno;
    char line[MESSAGE_CAPACITY];
    size_t length = base_format(line, sizeof line, "hakmem: ");
    va_list arguments;
    va_start(arguments, format);
    length += base_format_v(line + length, sizeof line - length, format, arguments);
    va_end(arguments);
    line[length++] = '\n'; /* in the place of the NUL */
    (void)base_write(base_stderr(), line, length);
    errno = saved_errno;
}

bool base_number(const char **text, uint64_t *value)
{
    const char *start = *text;

    for (*value = 0; **text >= '0' && **text <= '9'; ++*text)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(**text - '0'), value))
            return false;
    return *text != start;
}
