/*
 * The size classes, in one table; everything about a class is derived from its row and asserted in classes.c.
 *
 * 16-byte steps to 128, then four classes a doubling up to 32 KiB, with a fifth from 1 to 16 KiB for a power of two with a header
 * before it; three that fill the gap to 64 KiB, then spans in units of 64 KiB. Class 0 means "no class": a unit whose blocks the
 * fast path must not touch.
 *
 * S1: sizes ascend; every size is a multiple of 16.
 * S2: a slab starts at a unit boundary, so a block whose size is a multiple of 2^k (up to a unit) is 2^k-aligned.
 * S3: a slab's blocks leave at most an eighth of its units over, at its end, where nothing touches it. Slabs are as short as that
 *     allows: a few large blocks must not hold many units. A span holds one block and wastes nothing.
 */
#ifndef HAK_CONFIG_CLASSES_H
#define HAK_CONFIG_CLASSES_H

#include "config/limits.h"

/* CLASS(block size, units of a slab, most blocks in a thread cache) */
#define SLAB_CLASS_TABLE(CLASS)                                                                                        \
    CLASS(16, 1, 128) CLASS(32, 1, 128) CLASS(48, 1, 128) CLASS(64, 1, 128)                                            \
    CLASS(80, 1, 128) CLASS(96, 1, 128) CLASS(112, 1, 128) CLASS(128, 1, 128)                                          \
    CLASS(160, 1, 128) CLASS(192, 1, 128) CLASS(224, 1, 128) CLASS(256, 1, 128)                                        \
    CLASS(320, 1, 96) CLASS(384, 1, 96) CLASS(448, 1, 96) CLASS(512, 1, 96)                                        \
    CLASS(640, 1, 64) CLASS(768, 1, 64) CLASS(896, 1, 64) CLASS(1024, 1, 64)                                       \
    CLASS(1152, 1, 64) CLASS(1280, 1, 64) CLASS(1536, 1, 64) CLASS(1792, 1, 64) CLASS(2048, 1, 64)                     \
    CLASS(2304, 1, 64) CLASS(2560, 1, 64) CLASS(3072, 1, 64) CLASS(3584, 1, 64) CLASS(4096, 1, 64)                     \
    CLASS(4608, 1, 32) CLASS(5120, 1, 32) CLASS(6144, 1, 32) CLASS(7168, 1, 32) CLASS(8192, 1, 32)                     \
    CLASS(9216, 1, 16) CLASS(10240, 1, 16) CLASS(12288, 1, 16) CLASS(14336, 1, 16) CLASS(16384, 1, 16)                      \
    CLASS(20480, 1, 16) CLASS(24576, 2, 16) CLASS(28672, 1, 16) CLASS(32768, 1, 16)                                        \
    CLASS(40960, 2, 8) CLASS(49152, 3, 8) CLASS(57344, 1, 8)

/* SPAN(units, most spans in a thread cache); spans above 512 KiB are not cached by threads. */
#define SPAN_CLASS_TABLE(SPAN)                                                                                         \
    SPAN(1, 8) SPAN(2, 4) SPAN(3, 4) SPAN(4, 4) SPAN(5, 2) SPAN(6, 2) SPAN(7, 2) SPAN(8, 2)                            \
    SPAN(9, 0) SPAN(10, 0) SPAN(11, 0) SPAN(12, 0) SPAN(13, 0) SPAN(14, 0) SPAN(15, 0) SPAN(16, 0)

/* class_id enumerators: CLASS_16 = 1 ... CLASS_57344, CLASS_SPAN_1 ... CLASS_SPAN_16. */
enum class_id {
    CLASS_NONE = 0,
#define CLASS_ID(size, units, cached) CLASS_##size,
    SLAB_CLASS_TABLE(CLASS_ID)
#undef CLASS_ID
#define CLASS_ID(units, cached) CLASS_SPAN_##units,
    SPAN_CLASS_TABLE(CLASS_ID)
#undef CLASS_ID
    CLASS_COUNT
};

/* Where each class's stack lies in a thread cache's array of slots. Index BASE holds NULL for ever, so that popping
 * an empty stack yields NULL (T2 in front/thread_cache.h); the blocks lie at BASE + 1 to END. Slot 0 serves class 0. */
enum class_slots {
    CLASS_NONE_SLOT = 0,
#define CLASS_SLOTS(size, units, cached) CLASS_##size##_BASE, CLASS_##size##_END = CLASS_##size##_BASE + (cached),
    SLAB_CLASS_TABLE(CLASS_SLOTS)
#undef CLASS_SLOTS
#define CLASS_SLOTS(units, cached) CLASS_SPAN_##units##_BASE, CLASS_SPAN_##units##_END = CLASS_SPAN_##units##_BASE + (cached),
    SPAN_CLASS_TABLE(CLASS_SLOTS)
#undef CLASS_SLOTS
    CACHE_SLOTS
};

struct size_class {
    uint64_t reciprocal; /* ceil(2^40 / size): an offset in the slab times this, shifted by 40, is the block's index */
    uint32_t size;       /* bytes of a block */
    uint16_t blocks;     /* blocks in a slab */
    uint16_t units;      /* units of a slab */
    uint16_t slot_base;  /* enum class_slots */
    uint16_t slot_limit; /* most blocks in a thread cache; 0: never cached */
};

HAK_DATA const struct size_class size_classes[CLASS_COUNT];

/* The class of a request of size bytes, size <= POOLED_MAX. */
HAK_INLINE unsigned class_of_size(size_t size)
{
    if (size <= 128)
        return (unsigned)((size + (size == 0) + 15) >> 4);
    if (size <= 32768) {
        unsigned high = base_high_bit(size - 1), eighth = (unsigned)((size - 1) >> (high - 3)) & 7;
        if (high < 10)
            return CLASS_128 + 1 + (high - 7) * 4 + eighth / 2;
        if (high < 14)
            return CLASS_1024 + 1 + (high - 10) * 5 + (eighth != 0) + eighth / 2;
        return CLASS_16384 + 1 + eighth / 2;
    }
    if (size <= UNIT_SIZE)
        return CLASS_32768 + (unsigned)((size - 32768 + 8191) >> 13);
    return CLASS_SPAN_1 - 1 + (unsigned)((size + UNIT_SIZE - 1) >> UNIT_SHIFT);
}

HAK_INLINE bool class_is_span(unsigned class) { return class >= CLASS_SPAN_1; }
HAK_INLINE size_t class_size(unsigned class) { return size_classes[class].size; }

/* The index of the block that starts at `offset` bytes in a slab of the class, or of the block it lies in. */
HAK_INLINE unsigned class_block_index(unsigned class, size_t offset)
{
    return (unsigned)((offset * size_classes[class].reciprocal) >> 40);
}

#endif
