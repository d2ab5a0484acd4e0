#include "observe/output.h"

#include "base/format.h"
#include "base/stderr.h"
#include "os/file.h"

enum { PIECE_CAPACITY = 512 };

int output_to_file(void *argument, const char *text, size_t length)
{
    return os_file_write(*(const int *)argument, text, length);
}

void output_begin(struct output *output, hak_stats_write write, void *argument, const char *prefix)
{
    output->file = base_stderr();
    output->write = write ? write : output_to_file;
    output->argument = write ? argument : &output->file;
    output->prefix = prefix;
    output->error = 0;
    output->length = 0;
}

int output_end(struct output *output)
{
    if (output->length && output->error == 0)
        output->error = output->write(output->argument, output->buffer, output->length);
    output->length = 0;
    return output->error;
}

void output_fail(struct output *output, int error)
{
    if (output->error == 0)
        output->error = error;
}

static void output_add(struct output *output, const char *text, size_t length)
{
    if (length > sizeof output->buffer - output->length)
        output_end(output);
    __builtin_memcpy(output->buffer + output->length, text, length);
    output->length += length;
}

void output_print(struct output *output, const char *format, ...)
{
    char piece[PIECE_CAPACITY];
    va_list arguments;
    size_t length;

    va_start(arguments, format);
    length = base_format_v(piece, sizeof piece, format, arguments);
    va_end(arguments);
    output_add(output, piece, length);
}

void output_line(struct output *output, const char *format, ...)
{
    char piece[PIECE_CAPACITY];
    size_t length = base_format(piece, sizeof piece, "%s", output->prefix);
    va_list arguments;

    va_start(arguments, format);
    length += base_format_v(piece + length, sizeof piece - length, format, arguments);
    va_end(arguments);
    piece[length++] = '\n'; /* in the place of the NUL */
    output_add(output, piece, length);
}
