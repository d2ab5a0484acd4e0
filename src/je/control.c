#include "je/control.h"

#include <string.h>

#include <hakmem/jemalloc.h>

#include "api/names.h"
#include "front/process.h"
#include "je/arenas.h"
#include "je/figures.h"
#include "je/names.h"

/* The first number of a MIB is the row's. The name's own numbers stand at their places in the name. */
enum { MIB_MOST = 8 };

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

static int do_call(const struct control_call *call)
{
    const struct control_row *row = call->row;
    uint64_t value = row->number;
    uint32_t narrow;
    int error;
    bool truth;

    if (!process_init())
        return EAGAIN;
    if (row->source == CONTROL_ACT)
        return row->act(call);
    error = control_read_only(call);
    if (error)
        return error;
    if (row->type == CONTROL_TEXT)
        return control_give(call, &row->text, sizeof row->text);
    if (row->source == CONTROL_VALUE)
        value = row->value(call);
    else if (row->source != CONTROL_CONSTANT)
        error = read_figure(call, &value);
    if (error)
        return error;
    truth = value != 0;
    narrow = (uint32_t)value;
    return control_give(call,
                        row->type == CONTROL_BOOL  ? (void *)&truth
                        : row->type == CONTROL_U32 ? (void *)&narrow
                                                   : &value,
                        control_bytes[row->type]);
}

/* ---- Names ---- */

static bool read_number(const char **text, uint32_t *number)
{
    const char *start = *text;
    uint64_t value = 0;

    while (**text >= '0' && **text <= '9' && value <= UINT32_MAX)
        value = value * 10 + (uint64_t)(*(*text)++ - '0');
    *number = (uint32_t)value;
    return *text != start && value <= UINT32_MAX;
}

/* Whether the text is the row's name. Fills in its numbers. */
static bool name_is(const char *name, const char *text, uint32_t numbers[2])
{
    unsigned found = 0;

    for (; *name; name++) {
        if (*name == '#') {
            if (!read_number(&text, &numbers[found++]))
                return false;
        } else if (*name != *text++) {
            return false;
        }
    }
    return *text == '\0';
}

static const struct control_row *find(const char *name, uint32_t numbers[2])
{
    for (const struct control_row *row = control_rows; row->name; row++)
        if (name_is(row->name, name, numbers))
            return row;
    return NULL;
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

static int numbers_are_good(const struct control_row *row, const uint32_t numbers[2])
{
    unsigned which = 0;

    for (const char *at = row->name; *at; at++)
        if (*at == '#' && !number_is_good(row, which, numbers[which]))
            return ENOENT;
        else
            which += *at == '#';
    return 0;
}

/* ---- The functions ---- */

API_EXPORT int mallctl(const char *name, void *old, size_t *old_length, void *new, size_t new_length)
{
    uint32_t numbers[2] = { 0, 0 };
    const struct control_row *row = find(name, numbers);

    if (row == NULL || numbers_are_good(row, numbers))
        return ENOENT;
    return do_call(&(struct control_call){ row, { numbers[0], numbers[1] }, old, old_length, new, new_length });
}

API_EXPORT int mallctlnametomib(const char *name, size_t *mib, size_t *length)
{
    uint32_t numbers[2] = { 0, 0 };
    const struct control_row *row = find(name, numbers);
    size_t parts = 1, which = 0, full[MIB_MOST] = { 0 };

    if (row == NULL || numbers_are_good(row, numbers))
        return ENOENT;
    full[0] = (size_t)(row - control_rows);
    for (const char *at = row->name; *at; at++) {
        if (*at == '#')
            full[parts - 1] = numbers[which++];
        parts += *at == '.';
    }
    if (parts > *length)
        return ENOENT;
    memcpy(mib, full, parts * sizeof *mib);
    *length = parts;
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
    size_t part = 0, which = 0;

    if (length == 0 || length > MIB_MOST || mib[0] >= row_count())
        return ENOENT;
    row = &control_rows[mib[0]];
    for (const char *at = row->name; *at; at++) {
        if (*at == '#') {
            if (part >= length || mib[part] > UINT32_MAX)
                return ENOENT;
            numbers[which++] = (uint32_t)mib[part];
        }
        part += *at == '.';
    }
    if (part + 1 != length || numbers_are_good(row, numbers))
        return ENOENT;
    return do_call(&(struct control_call){ row, { numbers[0], numbers[1] }, old, old_length, new, new_length });
}

JE_ALIAS(mallctl)
JE_ALIAS(mallctlnametomib)
JE_ALIAS(mallctlbymib)
