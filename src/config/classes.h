/*
 * The size classes, in one table. Everything about a class is derived from its row; classes.c asserts S3.
 *
 * Sizes step by 16 bytes to 128, then by four classes a doubling up to 32 KiB. From 1 to 16 KiB a fifth class serves a
 * power of two with a header before it. Three classes fill the gap to 64 KiB; spans above that have whole units. Class
 * 0 means "no class": the fast path must not touch the unit's blocks.
 *
 * S1: sizes ascend; every size is a multiple of 16.
 * S2: a slab starts at a unit boundary, so a block whose size is a multiple of 2^k (up to a unit) is 2^k-aligned.
 * S3: at most an eighth of a slab, at its end, is no block; nothing touches it. Slabs are as short as this rule allows,
 *     so that a few large blocks do not hold many units. A span holds one block and wastes nothing.
 * S4: the class of a multiple of 2^k (up to a unit) is itself a multiple of 2^k.
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
    CLASS(9216, 1, 16) CLASS(10240, 1, 16) CLASS(12288, 1, 16) CLASS(14336, 1, 16) CLASS(16384, 1, 16) \
    CLASS(20480, 1, 16) CLASS(24576, 2, 16) CLASS(28672, 1, 16) CLASS(32768, 1, 16) \
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

/* The first capacity of a thread cache's stack: CLASS_FIRST_BYTES of blocks, but from 1 to CLASS_FIRST_MOST blocks. */
#define CLASS_FIRST_BYTES 4096
#define CLASS_FIRST_MOST 16
#define CLASS_FIRST_BLOCKS(size)                                                                                       \
    ((size) >= CLASS_FIRST_BYTES                     ? 1                                                               \
     : CLASS_FIRST_BYTES / (size) > CLASS_FIRST_MOST ? CLASS_FIRST_MOST                                                \
                                                     : CLASS_FIRST_BYTES / (size))

/* Where each class's stack begins in a thread cache's array of slots: side by side, so that a thread with a few blocks
 * of each class touches a page of them. Index FIRST holds NULL for ever, so that popping an empty stack yields NULL (T2
 * in front/thread_cache.h); the blocks lie at FIRST + 1 to FIRST_END. Slot 0 serves class 0. */
enum class_first_slots {
    CLASS_NONE_SLOT = 0,
#define CLASS_SLOTS(size, units, cached) CLASS_##size##_FIRST, CLASS_##size##_FIRST_END = CLASS_##size##_FIRST + \
    CLASS_FIRST_BLOCKS(size),
    SLAB_CLASS_TABLE(CLASS_SLOTS)
#undef CLASS_SLOTS
#define CLASS_SLOTS(units, cached) CLASS_SPAN_##units##_FIRST, CLASS_SPAN_##units##_FIRST_END = \
    CLASS_SPAN_##units##_FIRST + 1,
    SPAN_CLASS_TABLE(CLASS_SLOTS)
#undef CLASS_SLOTS
    CACHE_SLOTS_FIRST
};
/* Behind them, in the same page as the last of them, lies what the heap profile counts down (struct countdowns). */
#define COUNTDOWN_SLOTS (CLASS_COUNT + (7 * CLASS_COUNT + 7) / 8)

/* In libhakmem-secure a third of a stack, and at most so many blocks, waits (V8 in front/thread_cache.h). So its stacks
 * are longer by that. */
#define WAITING_MOST 32
#define BIN_BLOCKS(cached) ((cached) + (!HAK_SECURE ? 0 : (cached) / 2 < WAITING_MOST ? (cached) / 2 : WAITING_MOST))

/* Where each class's stack lies after it has grown. Index BASE holds NULL; the blocks lie at BASE + 1 to END. */
enum class_slots {
    CLASS_SLOT_BEFORE = CACHE_SLOTS_FIRST + COUNTDOWN_SLOTS - 1,
#define CLASS_SLOTS(size, units, cached) CLASS_##size##_BASE, CLASS_##size##_END = CLASS_##size##_BASE + \
    BIN_BLOCKS(cached),
    SLAB_CLASS_TABLE(CLASS_SLOTS)
#undef CLASS_SLOTS
#define CLASS_SLOTS(units, cached) CLASS_SPAN_##units##_BASE, CLASS_SPAN_##units##_END = CLASS_SPAN_##units##_BASE + \
    BIN_BLOCKS(cached),
    SPAN_CLASS_TABLE(CLASS_SLOTS)
#undef CLASS_SLOTS
    CACHE_SLOTS
};

/* While a thread's calls are counted (T8 in front/thread_cache.h), malloc takes blocks from a run of the class. They
 * lie at RUN + 1 to RUN_END; index RUN always holds NULL. */
#define RUN_BLOCKS(size) ((size) <= 512 ? 64 : 32)
#define RUN_SPANS(cached) ((cached) ? 16 : 0)
/* How long a run is while blocks come back as fast as they go. The thread touches all blocks of a run in turn; without
 * a run it would touch the same few. Large blocks have no run: each call for one takes the slow path. */
#define RUN_BYTES 65536
#define RUN_USUAL(size, limit) (RUN_BYTES / (size) < 2 ? 0 : RUN_BYTES / (size) < (limit) ? RUN_BYTES / (size) : \
    (limit))
enum class_run_slots {
    RUN_SLOT_BEFORE = CACHE_SLOTS - 1,
#define CLASS_SLOTS(size, units, cached) CLASS_##size##_RUN, CLASS_##size##_RUN_END = CLASS_##size##_RUN + \
    RUN_BLOCKS(size),
    SLAB_CLASS_TABLE(CLASS_SLOTS)
#undef CLASS_SLOTS
#define CLASS_SLOTS(units, cached) CLASS_SPAN_##units##_RUN, CLASS_SPAN_##units##_RUN_END = CLASS_SPAN_##units##_RUN + \
    RUN_SPANS(cached),
    SPAN_CLASS_TABLE(CLASS_SLOTS)
#undef CLASS_SLOTS
    CACHE_SLOTS_COUNTED
};

/* Each class has a third, deep place for its stack, behind all of these (T7 in front/thread_cache.h). It holds a
 * thousand blocks and one refill; for the largest classes, fewer. */
#define DEEP_BLOCKS 1065
#define DEEP_SPANS(units) ((units) <= 4 ? DEEP_BLOCKS : HAK_SECURE ? 340 : 400)
enum class_deep_slots {
    DEEP_SLOT_BEFORE = CACHE_SLOTS_COUNTED - 1,
#define CLASS_SLOTS(size, units, cached) CLASS_##size##_DEEP, CLASS_##size##_DEEP_END = CLASS_##size##_DEEP + \
    DEEP_BLOCKS,
    SLAB_CLASS_TABLE(CLASS_SLOTS)
#undef CLASS_SLOTS
#define CLASS_SLOTS(units, cached) CLASS_SPAN_##units##_DEEP, CLASS_SPAN_##units##_DEEP_END = \
    CLASS_SPAN_##units##_DEEP + DEEP_SPANS(units),
    SPAN_CLASS_TABLE(CLASS_SLOTS)
#undef CLASS_SLOTS
    CACHE_SLOTS_DEEP
};

struct size_class {
    uint64_t reciprocal; /* ceil(2^40 / size): an offset in the slab times this, shifted by 40, is the block's index */
    uint32_t size;       /* bytes of a block */
    uint16_t blocks;     /* blocks in a slab */
    uint16_t units;      /* units of a slab */
    uint16_t first_base; /* enum class_first_slots */
    uint16_t first_limit; /* most blocks there */
    uint16_t slot_base;  /* enum class_slots */
    uint16_t slot_limit; /* most blocks in a thread cache; 0: threads do not cache the class */
    uint16_t deep_base;  /* enum class_deep_slots */
    uint16_t deep_limit; /* most blocks in a deep bin */
    uint16_t run_base;   /* enum class_run_slots */
    uint16_t run_limit;  /* most blocks in a run */
    uint16_t run_usual;  /* blocks in a run while they come back as fast as they go */
};

HAK_DATA const struct size_class size_classes[CLASS_COUNT];

/* The classes of requests up to UNIT_SIZE: one entry for each BLOCK_ALIGN bytes up to FAST_MAX, then one for each
 * CLASS_GRAIN bytes. */
#define CLASS_GRAIN ((size_t)128)
#define GRAINS_BELOW_MEDIUM (FAST_MAX / BLOCK_ALIGN - FAST_MAX / CLASS_GRAIN)
HAK_DATA const uint8_t class_of_grains[GRAINS_BELOW_MEDIUM + UNIT_SIZE / CLASS_GRAIN + 1];

/* The class of a request above FAST_MAX and up to UNIT_SIZE. */
HAK_INLINE unsigned class_of_medium(size_t size)
{
    return class_of_grains[GRAINS_BELOW_MEDIUM + (size + CLASS_GRAIN - 1) / CLASS_GRAIN];
}

/* The class of a request of size bytes, size <= POOLED_MAX. */
HAK_INLINE unsigned class_of_size(size_t size)
{
    if (size <= FAST_MAX)
        return class_of_grains[(size + BLOCK_ALIGN - 1) / BLOCK_ALIGN];
    if (size <= UNIT_SIZE)
        return class_of_medium(size);
    return CLASS_SPAN_1 - 1 + (unsigned)((size + UNIT_SIZE - 1) >> UNIT_SHIFT);
}

/* Where blocks of a class start in a unit: at each offset whose product with `factor`, modulo 2^32, is below `limit`.
 *
 * The factor is 2^32 / size, rounded up. The product of block i's offset is i * excess, where factor * size is
 * 2^32 + excess. An offset that is no multiple of the size has a product of at least `factor`. classes.c asserts that
 * no block's product is as large, so the limit is one above the last block's. A span starts where a unit does. In a
 * slab of several small blocks and several units, the place in a unit does not tell; the limit is 0 there. */
struct class_starts {
    uint32_t factor, limit;
};
HAK_DATA const struct class_starts class_starts[CLASS_COUNT];

/* Whether a block of the class can start at the address, which lies in a slab of the class. False also says "perhaps"
 * where the limit is 0. */
HAK_INLINE bool class_starts_at(size_t class, const void *address)
{
    const struct class_starts *starts = &class_starts[class];
    return (uint32_t)((uintptr_t)address & (UNIT_SIZE - 1)) * starts->factor < starts->limit;
}

/* A class serves requests above `below` and up to `size` bytes. For class 0 both are 0. */
struct class_bounds {
    size_t size[CLASS_COUNT];
    ptrdiff_t below[CLASS_COUNT + 1]; /* the last is of no class */
};
HAK_DATA const struct class_bounds class_bounds;

/* Whether a block of the class at the address may be the result of a request of that size and alignment. An alignment
 * of 1 means any. An aligned block may be of a larger class than its size alone needs. */
HAK_INLINE bool class_fits(size_t class, const void *address, size_t size, size_t alignment)
{
    return size <= class_bounds.size[class] &&
           (alignment == 1 ? (ptrdiff_t)size > class_bounds.below[class] : ((uintptr_t)address & (alignment - 1)) == 0);
}

HAK_INLINE bool class_is_span(unsigned class) { return class >= CLASS_SPAN_1; }
HAK_INLINE size_t class_size(unsigned class) { return size_classes[class].size; }

/* The index of the block that starts at `offset` bytes in a slab of the class, or of the block it lies in. */
HAK_INLINE unsigned class_block_index(unsigned class, size_t offset)
{
    return (unsigned)((offset * size_classes[class].reciprocal) >> 40);
}

/* Whether a block starts at `offset` bytes in a slab of the class. *index: which. */
HAK_INLINE bool class_block_starts(unsigned class, size_t offset, unsigned *index)
{
    *index = class_block_index(class, offset);
    return *index < size_classes[class].blocks && (size_t)*index * class_size(class) == offset;
}

#endif
