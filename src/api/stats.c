/* The names of hakmem/stats.h. */
#include "observe/stats.h"

#include "api/rows.h"
#include "observe/report.h"
#include "observe/scratch.h"
#include "pool/registry.h"

size_t hak_stats_get(struct hak_stats *stats, size_t size)
{
    struct stats_shot *shot;
    size_t filled;

    if (!row_size_is_at_least(stats ? size : 0, offsetof(struct hak_stats, mapped)))
        return 0;
    shot = stats_take();
    if (shot == NULL)
        return 0;
    filled = base_min(size, sizeof shot->totals);
    shot->totals.size = filled;
    row_give(stats, size, &shot->totals, sizeof shot->totals);
    stats_give(shot);
    return filled;
}

size_t hak_stats_classes(struct hak_stats_class *rows, size_t row_size, size_t capacity)
{
    struct stats_shot *shot;
    size_t count = 0;

    if (!row_size_is_good(row_size))
        return 0;
    shot = stats_take();
    if (shot == NULL)
        return 0;
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        if (stats_class_is_used(&shot->classes[class])) {
            if (count < capacity)
                row_give((char *)rows + count * row_size, row_size, &shot->classes[class], sizeof shot->classes[class]);
            count++;
        }
    stats_give(shot);
    return count;
}

size_t hak_stats_heaps(struct hak_stats_heap *rows, size_t row_size, size_t capacity)
{
    struct usage_count *room;
    size_t count = 0;

    if (!row_size_is_good(row_size))
        return 0;
    room = scratch_take();
    if (room == NULL)
        return 0;
    for (struct heap *heap = __atomic_load_n(&registry.heaps, __ATOMIC_ACQUIRE); heap; heap = heap->next, count++)
        if (count < capacity) {
            struct hak_stats_heap row;
            stats_heap(&row, heap, room);
            row_give((char *)rows + count * row_size, row_size, &row, sizeof row);
        }
    scratch_give(room);
    return count;
}

size_t hak_stats_superslabs(struct hak_stats_superslab *rows, size_t row_size, size_t capacity)
{
    struct hak_stats_superslab row;
    uint32_t number = 0;
    size_t count = 0;

    if (!row_size_is_good(row_size))
        return 0;
    for (; stats_superslab(&row, &number); count++)
        if (count < capacity)
            row_give((char *)rows + count * row_size, row_size, &row, sizeof row);
    return count;
}

int hak_stats_print(enum hak_stats_format format, hak_stats_write write, void *argument)
{
    return observe_print(format, write, argument);
}
