/* How a call of mallctl gives and takes values. */
#include <string.h>

#include "je/control.h"

int control_give(const struct control_call *call, const void *value, size_t bytes)
{
    size_t room;

    if (!control_reads(call))
        return 0;
    room = *call->old_length;
    memcpy(call->old, value, base_min(room, bytes));
    if (room == bytes)
        return 0;
    *call->old_length = base_min(room, bytes);
    return EINVAL;
}

int control_take(const struct control_call *call, void *value, size_t bytes)
{
    if (call->new_length != bytes)
        return EINVAL;
    memcpy(value, call->new, bytes);
    return 0;
}

int control_read_only(const struct control_call *call) { return call->new || call->new_length ? EPERM : 0; }

int control_write_only(const struct control_call *call) { return call->old || call->old_length ? EPERM : 0; }

int control_no_value(const struct control_call *call)
{
    return control_read_only(call) || control_write_only(call) ? EPERM : 0;
}
