#include "config/classes.h"

#define RECIPROCAL(size) (((UINT64_C(1) << 40) + (size) - 1) / (size))
#define SLAB_BLOCKS(size, units) ((units) * UNIT_SIZE / (size))

HAK_DATA_HERE const struct size_class size_classes[CLASS_COUNT] = {
    [CLASS_NONE] = { .size = 0 },
#define CLASS_ROW(size_, units_, cached)                                                                               \
    [CLASS_##size_] = { .reciprocal = RECIPROCAL(size_), .size = (size_), .blocks = SLAB_BLOCKS(size_, units_),        \
                        .units = (units_), .first_base = CLASS_##size_##_FIRST,                                        \
                        .first_limit = CLASS_FIRST_BLOCKS(size_), .slot_base = CLASS_##size_##_BASE,                   \
                        .slot_limit = BIN_BLOCKS(cached), .deep_base = CLASS_##size_##_DEEP, .deep_limit = DEEP_BLOCKS,\
                        .run_base = CLASS_##size_##_RUN, .run_limit = RUN_BLOCKS(size_),                               \
                        .run_usual = RUN_USUAL(size_, RUN_BLOCKS(size_)) },
    SLAB_CLASS_TABLE(CLASS_ROW)
#undef CLASS_ROW
#define CLASS_ROW(units_, cached)                                                                                      \
    [CLASS_SPAN_##units_] = { .reciprocal = RECIPROCAL((units_) * UNIT_SIZE), .size = (units_) * UNIT_SIZE,            \
                              .blocks = 1, .units = (units_), .first_base = CLASS_SPAN_##units_##_FIRST,               \
                              .first_limit = 1, .slot_base = CLASS_SPAN_##units_##_BASE,                               \
                              .slot_limit = BIN_BLOCKS(cached), .deep_base = CLASS_SPAN_##units_##_DEEP,               \
                              .deep_limit = DEEP_SPANS(units_), .run_base = CLASS_SPAN_##units_##_RUN,                 \
                              .run_limit = RUN_SPANS(cached) },
    SPAN_CLASS_TABLE(CLASS_ROW)
#undef CLASS_ROW
};

HAK_DATA_HERE const struct class_bounds class_bounds = {
#define CLASS_SIZE(size_, units, cached) [CLASS_##size_] = (size_),
#define SPAN_SIZE(units, cached) [CLASS_SPAN_##units] = (units) * UNIT_SIZE,
    .size = { SLAB_CLASS_TABLE(CLASS_SIZE) SPAN_CLASS_TABLE(SPAN_SIZE) },
#undef CLASS_SIZE
#undef SPAN_SIZE
#define CLASS_SIZE(size_, units, cached) [CLASS_##size_ + 1] = (size_),
#define SPAN_SIZE(units, cached) [CLASS_SPAN_##units + 1] = (units) * UNIT_SIZE,
    .below = { [CLASS_16] = -1, SLAB_CLASS_TABLE(CLASS_SIZE) SPAN_CLASS_TABLE(SPAN_SIZE) },
#undef CLASS_SIZE
#undef SPAN_SIZE
};

#define START_FACTOR(size) (((UINT64_C(1) << 32) + (size) - 1) / (size))
#define START_LIMIT(size, blocks) (((blocks) - 1) * (START_FACTOR(size) * (size) - (UINT64_C(1) << 32)) + 1)

HAK_DATA_HERE const struct class_starts class_starts[CLASS_COUNT] = {
#define CLASS_STARTS(size, units, cached)                                                                              \
    [CLASS_##size] = { START_FACTOR(size), (units) == 1 ? START_LIMIT(size, SLAB_BLOCKS(size, units)) : 0 },
#define SPAN_STARTS(units, cached) [CLASS_SPAN_##units] = { 1, 1 },
    SLAB_CLASS_TABLE(CLASS_STARTS) SPAN_CLASS_TABLE(SPAN_STARTS)
#undef CLASS_STARTS
#undef SPAN_STARTS
};

/* The first and the last entry of class_of_grains for each class. The first follows the last of the class before. */
enum class_grains {
#define CLASS_GRAINS(size, units, cached)                                                                              \
    CLASS_##size##_GRAIN, CLASS_##size##_GRAIN_LAST = (size) <= FAST_MAX ? (size) / BLOCK_ALIGN                        \
                                                                         : GRAINS_BELOW_MEDIUM + (size) / CLASS_GRAIN,
    SLAB_CLASS_TABLE(CLASS_GRAINS)
#undef CLASS_GRAINS
    CLASS_SPAN_1_GRAIN, CLASS_SPAN_1_GRAIN_LAST = GRAINS_BELOW_MEDIUM + UNIT_SIZE / CLASS_GRAIN
};

/* Ranges in initialisers are an extension of gcc and clang. */
__extension__ HAK_DATA_HERE const uint8_t class_of_grains[CLASS_SPAN_1_GRAIN_LAST + 1] = {
#define CLASS_GRAINS(size, units, cached) [CLASS_##size##_GRAIN ... CLASS_##size##_GRAIN_LAST] = CLASS_##size,
    SLAB_CLASS_TABLE(CLASS_GRAINS)
#undef CLASS_GRAINS
    [CLASS_SPAN_1_GRAIN ... CLASS_SPAN_1_GRAIN_LAST] = CLASS_SPAN_1
};

/* S1, S3, class_starts and class_of_grains */
#define CLASS_ASSERT(size, units, cached)                                                                              \
    _Static_assert((size) % BLOCK_ALIGN == 0, "S1: " #size);                                                           \
    _Static_assert(SLAB_BLOCKS(size, units) >= 1 && SLAB_BLOCKS(size, units) <= SLAB_MAX_BLOCKS, "S3: " #size);        \
    _Static_assert(((units) * UNIT_SIZE - SLAB_BLOCKS(size, units) * (size)) * 8 <= (units) * UNIT_SIZE,               \
                   "S3: " #size " wastes too much");                                                                   \
    _Static_assert(START_LIMIT(size, SLAB_BLOCKS(size, units) + 1) <= START_FACTOR(size) || (units) > 1,               \
                   "class_starts: " #size);                                                                            \
    _Static_assert((size) <= FAST_MAX || (size) % CLASS_GRAIN == 0, "class_of_grains: " #size);
SLAB_CLASS_TABLE(CLASS_ASSERT)
_Static_assert(CLASS_COUNT <= 64, "a class fits the page map's byte and the cache's bins");
_Static_assert((int)CACHE_SLOTS_DEEP <= UINT16_MAX, "a bin's top is 16 bits");
