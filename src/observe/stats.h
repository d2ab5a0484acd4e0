/* The statistics that programs get (hakmem/stats.h), made from the count of usage.h. */
#ifndef HAK_OBSERVE_STATS_H
#define HAK_OBSERVE_STATS_H

#include <hakmem/stats.h>

#include "observe/fields.h"
#include "observe/usage.h"
#include "options/options.h"

/* The totals and the rows of all classes, of one moment. */
struct stats_shot {
    struct hak_stats totals;
    struct hak_stats_class classes[CLASS_COUNT]; /* [0] is unused; of classes never used all is 0 but the block size */
    struct usage_count count;                    /* the count behind them; stats_heap reuses it */
};
HAK_HIDDEN void stats_shoot(struct stats_shot *shot);

/* The same in scratch memory, because it is too large for a stack. NULL, errno ENOMEM: there is none. */
HAK_HIDDEN struct stats_shot *stats_take(void);
HAK_HIDDEN void stats_give(struct stats_shot *shot);

/* Whether the class was ever used. */
HAK_INLINE bool stats_class_is_used(const struct hak_stats_class *row) { return row->refills != 0; }

struct heap;
/* One heap; `count` is room to count in. */
HAK_HIDDEN void stats_heap(struct hak_stats_heap *row, struct heap *heap, struct usage_count *count);

/* The first SuperSlab whose number is *number or more. Sets *number to the one after it. False: there is none. */
HAK_HIDDEN bool stats_superslab(struct hak_stats_superslab *row, uint32_t *number);

/* Hits of all calls, in 1/10,000. */
HAK_HIDDEN uint64_t stats_share(uint64_t hits, uint64_t others);

/* Whether the figure is known in this process: hits only with HAKMEM_FRONT_STATS=1. */
HAK_INLINE bool stats_knows(const struct field *field)
{
    return hak_options.front_stats || (field->kind != FIELD_HITS && field->kind != FIELD_SHARE);
}

#endif
