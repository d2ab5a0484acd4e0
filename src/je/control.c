#include "je/control.h"

#include <string.h>

#include <hakmem/jemalloc.h>

#include "api/names.h"
#include "base/format.h"
#include "front/process.h"
#include "je/arenas.h"
#include "je/figures.h"
#include "je/names.h"

/* The sizes of values. Each is kept in 64 bits, whose low bytes come first: all processors are little-endian. */
static const uint8_t control_bytes[] = {
    [CONTROL_BOOL] = sizeof(bool), [CONTROL_U32] = 4, [CONTROL_U64] = 8, [CONTROL_TEXT] = sizeof(char *)
};

/* ---- Rows ---- */

static int read_figure(const struct control_call *call, uint64_t *value)
{
    const struct control_row *row = call->row;
    const struct figures_arena *arena = NULL;
    const struct figures *figures;
    const void *from = NULL;
    unsigned size;

    lock_acquire(&control_lock);
    figures = figures_get();
    if (figures && row->source != CONTROL_TOTAL)
        arena = figures_of_arena(call->index[0] == arenas_count() ? MALLCTL_ARENAS_ALL : call->index[0]);
    if (figures && row->source == CONTROL_TOTAL) {
        from = (const char *)figures + row->number;
    } else if (arena && row->source == CONTROL_ARENA) {
        from = (const char *)arena + row->number;
    } else if (arena) {
        size = call->index[1] + (strstr(row->name, "lextents") ? FIGURES_BINS : 0);
        from = (const char *)&arena->sizes[size] + row->number;
    }
    if (from)
        memcpy(value, from, sizeof *value);
    else
        *value = 0; /* an arena made after the last epoch, or MALLCTL_ARENAS_DESTROYED */
    lock_release(&control_lock);
    return figures ? 0 : EAGAIN;
}

static int read_value(const struct control_call *call, uint64_t *value)
{
    const struct control_row *row = call->row;

    if (row->source != CONTROL_VALUE)
        return read_figure(call, value);
    *value = row->value ? row->value(call) : row->text ? (uintptr_t)row->text : row->number;
    if (row->type == CONTROL_BOOL)
        *value = *value != 0;
    return 0;
}

static int do_call(const struct control_call *call)
{
    const struct control_row *row = call->row;
    uint64_t value, wanted = 0;
    int error = 0;

    if (!process_init())
        return EAGAIN;
    if (row->type == CONTROL_NONE)
        error = control_no_value(call);
    else if (!row->act && !row->set)
        error = control_read_only(call);
    if (error)
        return error;
    if (row->act)
        return row->act(call);
    error = read_value(call, &value);
    if (!error && control_writes(call))
        error = control_take(call, &wanted, control_bytes[row->type]);
    if (!error)
        error = control_give(call, &value, control_bytes[row->type]);
    return error || !control_writes(call) ? error : row->set(call, wanted);
}

/* ---- Names ---- */

static bool read_number(const char **text, uint32_t *number)
{
    uint64_t value;

    if (!base_number(text, &value) || value > UINT32_MAX)
        return false;
    *number = (uint32_t)value;
    return true;
}

/* Whether the first `most` parts of the text, or all if it has fewer, are the first parts of the row's name. Sets
 * *parts to their count, and fills in their numbers. False for a text with more parts than the name. */
static bool name_begins(const char *name, const char *text, size_t most, uint32_t numbers[2], size_t *parts)
{
    unsigned found = 0;

    for (*parts = 1;; ++*parts) {
        if (*name == '#') {
            name++;
            if (!read_number(&text, &numbers[found++]))
                return false;
        }
        for (; *name && *name != '.'; name++)
            if (*name != *text++)
                return false;
        if (*name++ == '\0' || *text == '\0')
            return *text == '\0';
        if (*text++ != '.')
            return false;
        if (*parts == most)
            return true;
    }
}

static size_t name_parts(const char *name)
{
    size_t parts = 1;

    for (; *name; name++)
        parts += *name == '.';
    return parts;
}

/* The words before a number in the name set its limit. For an arena it is the count of numbers given so far. */
static bool number_is_good(const struct control_row *row, unsigned which, uint32_t number)
{
    bool every = number == MALLCTL_ARENAS_ALL || number == arenas_count();

    if (which == 1)
        return number < (strstr(row->name, ".bins.") ? FIGURES_BINS : FIGURES_LEXTENTS);
    if (strncmp(row->name, "arenas.bin.", 11) == 0)
        return number < FIGURES_BINS;
    if (strncmp(row->name, "arenas.lextent.", 15) == 0)
        return number < FIGURES_LEXTENTS;
    return every || number == MALLCTL_ARENAS_DESTROYED || number < arenas_count();
}

/* Looks at the numbers among the name's first `parts` parts. */
static bool numbers_are_good(const struct control_row *row, const uint32_t numbers[2], size_t parts)
{
    unsigned which = 0;

    for (const char *at = row->name; *at && parts; at++) {
        if (*at == '#' && !number_is_good(row, which, numbers[which]))
            return false;
        which += *at == '#';
        parts -= *at == '.';
    }
    return true;
}

/* The first row whose name begins with the first `most` parts of the text. NULL: there is none. *parts: their count. */
static const struct control_row *find(const char *text, size_t most, uint32_t numbers[2], size_t *parts)
{
    for (const struct control_row *row = control_rows; row->name; row++)
        if (name_begins(row->name, text, most, numbers, parts))
            return numbers_are_good(row, numbers, *parts) ? row : NULL;
    return NULL;
}

/* ---- MIBs ----
 *
 * A MIB has a number for each part of a name. A number in the name is itself. A word's is the number of the first row
 * whose name begins with the same parts up to that word. So names that begin alike have MIBs that begin alike, and a
 * name's last word, which no other name has, leads to its row. */

/* The length of the row's name up to the end of part `part`. */
static size_t part_end(const char *name, size_t part)
{
    const char *at = name;

    for (; *at && (*at != '.' || part); at++)
        part -= *at == '.';
    return (size_t)(at - name);
}

/* Whether the names begin with the same `length` bytes, which end a part. */
static bool begins_alike(const char *name, const char *other, size_t length)
{
    return strncmp(name, other, length) == 0 && (other[length] == '.' || other[length] == '\0');
}

static size_t first_row(const char *name, size_t length)
{
    size_t number = 0;

    while (!begins_alike(name, control_rows[number].name, length))
        number++;
    return number;
}

/* ---- The functions ---- */

API_EXPORT int mallctl(const char *name, void *old, size_t *old_length, void *new, size_t new_length)
{
    uint32_t numbers[2] = { 0, 0 };
    size_t parts;
    const struct control_row *row = find(name, SIZE_MAX, numbers, &parts);

    if (row == NULL || parts != name_parts(row->name))
        return ENOENT;
    return do_call(&(struct control_call){ row, { numbers[0], numbers[1] }, old, old_length, new, new_length });
}

/* As in jemalloc, gives the MIB of the first parts of a name if *length has room for no more, or if `name` is only the
 * beginning of a name. Parts behind these are not looked at. */
API_EXPORT int mallctlnametomib(const char *name, size_t *mib, size_t *length)
{
    uint32_t numbers[2] = { 0, 0 };
    const struct control_row *row;
    size_t parts, which = 0;

    if (*length == 0)
        return *name == '\0' ? ENOENT : 0;
    row = find(name, *length, numbers, &parts);
    if (row == NULL)
        return ENOENT;
    *length = parts;
    for (size_t part = 0; part < parts; part++) {
        size_t end = part_end(row->name, part);
        mib[part] = row->name[end - 1] == '#' ? numbers[which++] : first_row(row->name, end);
    }
    return 0;
}

static size_t row_count(void)
{
    size_t count = 0;

    while (control_rows[count].name)
        count++;
    return count;
}

API_EXPORT int mallctlbymib(const size_t *mib, size_t length, void *old, size_t *old_length, void *new,
                            size_t new_length)
{
    const struct control_row *row;
    uint32_t numbers[2] = { 0, 0 };
    size_t rows = row_count(), which = 0;

    if (length == 0 || mib[length - 1] >= rows)
        return ENOENT;
    row = &control_rows[mib[length - 1]];
    if (name_parts(row->name) != length)
        return ENOENT;
    for (size_t part = 0; part < length; part++) {
        size_t end = part_end(row->name, part);
        bool number = row->name[end - 1] == '#';
        if (mib[part] > (number ? UINT32_MAX : rows - 1) ||
            (!number && !begins_alike(row->name, control_rows[mib[part]].name, end)))
            return ENOENT;
        if (number)
            numbers[which++] = (uint32_t)mib[part];
    }
    if (!numbers_are_good(row, numbers, length))
        return ENOENT;
    return do_call(&(struct control_call){ row, { numbers[0], numbers[1] }, old, old_length, new, new_length });
}

JE_ALIAS(mallctl)
JE_ALIAS(mallctlnametomib)
JE_ALIAS(mallctlbymib)
