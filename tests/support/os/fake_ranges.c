/* The list of ranges behind the fake OS. */
#include "os/fake_ranges.h"

#include <string.h>

/* Index of the first range that ends above the address; count when there is none. */
static size_t find(const struct range_list *list, uintptr_t address)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (list->ranges[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool ranges_all(const struct range_list *list, uintptr_t start, uintptr_t end, unsigned states)
{
    for (size_t i = find(list, start); start < end; i++) {
        if (states & (1u << RANGE_FREE)) {
            if (i == list->count || list->ranges[i].start >= end)
                return true;
            if (list->ranges[i].start > start)
                start = list->ranges[i].start;
        }
        if (i == list->count || list->ranges[i].start > start || !(states & (1u << list->ranges[i].state)))
            return false;
        start = list->ranges[i].end;
    }
    return true;
}

/* Puts `with` in the place of ranges[from..to). */
static void replace(struct range_list *list, size_t from, size_t to, const struct range *with, size_t count)
{
    HAK_CHECK(list->count - (to - from) + count <= list->capacity);
    memmove(list->ranges + from + count, list->ranges + to, (list->count - to) * sizeof *with);
    memcpy(list->ranges + from, with, count * sizeof *with);
    list->count += count - (to - from);
}

void ranges_set(struct range_list *list, uintptr_t start, uintptr_t end, enum range_state state)
{
    struct range pieces[3]; /* what is left of the first range, the new one, what is left of the last */
    struct range added = { start, end, state };
    size_t count = 0, from = find(list, start), to = from;
    for (; to < list->count && list->ranges[to].start < end; to++) {
        struct range old = list->ranges[to];
        uintptr_t covered_from = old.start > start ? old.start : start, covered_to = old.end < end ? old.end : end;
        list->bytes[old.state] -= covered_to - covered_from;
        if (old.start < start) {
            if (old.state == state)
                added.start = old.start;
            else
                pieces[count++] = (struct range){ old.start, start, old.state };
        }
    }
    if (to > from && list->ranges[to - 1].end > end && list->ranges[to - 1].state == state)
        added.end = list->ranges[to - 1].end;
    if (from > 0 && list->ranges[from - 1].end == start && list->ranges[from - 1].state == state)
        added.start = list->ranges[--from].start;
    struct range last = to > from ? list->ranges[to - 1] : (struct range){ 0, 0, RANGE_FREE };
    if (to < list->count && list->ranges[to].start == end && list->ranges[to].state == state)
        added.end = list->ranges[to++].end;
    if (state != RANGE_FREE) {
        pieces[count++] = added;
        list->bytes[state] += end - start;
    }
    if (last.end > end && last.state != state)
        pieces[count++] = (struct range){ end, last.end, last.state };
    replace(list, from, to, pieces, count);
}
