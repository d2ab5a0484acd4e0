#include "config/classes.h"

#define RECIPROCAL(size) (((UINT64_C(1) << 40) + (size) - 1) / (size))
#define SLAB_BLOCKS(size, units) ((units) * UNIT_SIZE / (size))

HAK_DATA_HERE const struct size_class size_classes[CLASS_COUNT] = {
    [CLASS_NONE] = { .size = 0 },
#define CLASS_ROW(size_, units_, cached)                                                                               \
    [CLASS_##size_] = { .reciprocal = RECIPROCAL(size_), .size = (size_), .blocks = SLAB_BLOCKS(size_, units_),        \
                        .units = (units_), .slot_base = CLASS_##size_##_BASE, .slot_limit = (cached) },
    SLAB_CLASS_TABLE(CLASS_ROW)
#undef CLASS_ROW
#define CLASS_ROW(units_, cached)                                                                                      \
    [CLASS_SPAN_##units_] = { .reciprocal = RECIPROCAL((units_) * UNIT_SIZE), .size = (units_) * UNIT_SIZE,            \
                              .blocks = 1, .units = (units_), .slot_base = CLASS_SPAN_##units_##_BASE,                 \
                              .slot_limit = (cached) },
    SPAN_CLASS_TABLE(CLASS_ROW)
#undef CLASS_ROW
};

/* S1, S3 */
#define CLASS_ASSERT(size, units, cached)                                                                              \
    _Static_assert((size) % BLOCK_ALIGN == 0, "S1: " #size);                                                           \
    _Static_assert(SLAB_BLOCKS(size, units) >= 1 && SLAB_BLOCKS(size, units) <= SLAB_MAX_BLOCKS, "S3: " #size);        \
    _Static_assert(((units) * UNIT_SIZE - SLAB_BLOCKS(size, units) * (size)) * 8 <= (units) * UNIT_SIZE,               \
                   "S3: " #size " wastes too much");
SLAB_CLASS_TABLE(CLASS_ASSERT)
_Static_assert((int)CLASS_57344 + 1 == (int)CLASS_SPAN_1, "class_of_size counts on spans following the slabs");
_Static_assert(CLASS_COUNT <= 64, "a class fits the page map's byte and the cache's bins");
_Static_assert(CACHE_SLOTS <= UINT16_MAX, "a bin's top is 16 bits");
