/*
 * Cohorts: hak_alloc_at learns which sites' blocks live long, and takes these from a heap of their own (HEAP_LONG).
 * There they pin no memory of blocks that are freed soon.
 *
 * One in COHORT_PERIOD calls of a thread is a candidate. It moves the clock on, by the bytes that so many calls of its
 * size give out. Some candidates are watched: their blocks come from HEAP_LONG, too. So a free of one is a slow call,
 * which reads the block's age off the clock. A site is long while most of its watched blocks become old. Calls of other
 * sites pay for a countdown and for a look into cohort_long.
 *
 * O13: the tables are hints. Threads race for their fields, and then an age or a decision is wrong, but never a block.
 */
#ifndef HAK_FRONT_COHORT_H
#define HAK_FRONT_COHORT_H

#include "base/base.h"

/* ---- The rule ---- */

/* The clock and ages count KiB. A block is old if it lives at least twice as long as half of the blocks do. One that
 * lives for less than COHORT_OLD_LEAST pins little. */
#define COHORT_AGES 30u
#define COHORT_OLD_LEAST 4096u
/* A site becomes long by COHORT_PROOF old blocks, if they are COHORT_SHARE times as many as its young ones. About
 * COHORT_MEMORY blocks count. */
#define COHORT_PROOF 8u
#define COHORT_SHARE 3u
#define COHORT_MEMORY 32u

/* What became of a site's watched blocks. */
struct cohort_evidence {
    uint16_t old, young;
};

/* Ages are told apart by powers of 2: index i has the ages below 2^i. */
HAK_INLINE unsigned cohort_age_index(uint32_t age)
{
    return age == 0 ? 0 : (unsigned)base_min(base_high_bit(age) + 1, COHORT_AGES - 1);
}

/* The age from which on a block is old, by how many blocks ended at each age. 0: none did. */
HAK_INLINE uint32_t cohort_old_age(const uint32_t ended[COHORT_AGES])
{
    uint64_t all = 0, sum = 0;
    unsigned index = 0;

    for (unsigned i = 0; i < COHORT_AGES; i++)
        all += ended[i];
    if (all == 0)
        return 0;
    for (sum = ended[0]; sum < (all + 1) / 2; sum += ended[index])
        index++;
    return (uint32_t)base_max(COHORT_OLD_LEAST, UINT32_C(2) << index);
}

/* Adds a block. Evidence halves each time that there is enough of it. */
HAK_INLINE struct cohort_evidence cohort_add(struct cohort_evidence evidence, bool old)
{
    if (evidence.old + evidence.young >= (int)COHORT_MEMORY)
        evidence = (struct cohort_evidence){ evidence.old / 2, evidence.young / 2 };
    if (old)
        evidence.old++;
    else
        evidence.young++;
    return evidence;
}

/* Whether a site is long now. `was`: it is until now. */
HAK_INLINE bool cohort_is_long(struct cohort_evidence evidence, bool was)
{
    return was ? evidence.old >= evidence.young
               : evidence.old >= COHORT_PROOF && evidence.old >= COHORT_SHARE * evidence.young;
}

/* Whether to watch a candidate: the `passed`th of its site since the last watched one. `live`: watched blocks of the
 * site, which grow as the cube root of the calls while none is freed. Few blocks are enough to know a brief site. */
HAK_INLINE bool cohort_watches(uint32_t passed, int32_t live, struct cohort_evidence evidence)
{
    uint64_t many = live > 0 ? (uint64_t)live : 0;

    return passed > many * many / 64 + evidence.young / 2;
}

/* ---- The calls ---- */

#define COHORT_PERIOD 128u
#define COHORT_SITES_SHIFT 10u
#define COHORT_SITES (1u << COHORT_SITES_SHIFT)

/* The keys of the sites that are long, by cohort_place; 0: none. Of two sites with one place only one is long.
 * Order: relaxed (O13) */
HAK_DATA _Atomic uint32_t cohort_long[COHORT_SITES];

/* The thread's calls before its next candidate, and the state of its random numbers in two halves; 0: it has not called
 * yet. 6 bytes, which fill a gap: a library that is loaded late gets little room for variables of threads. */
struct cohort_turn {
    int16_t left;
    uint16_t random[2];
};
HAK_DATA _Thread_local struct cohort_turn cohort_turn __attribute__((tls_model("initial-exec")));

/* Sites whose addresses have the same low 32 bits share a key. One with 0 there is not learnt. */
HAK_INLINE uint32_t cohort_key(const void *site) { return (uint32_t)(uintptr_t)site * UINT32_C(2654435769); }

HAK_INLINE unsigned cohort_place(uint32_t key) { return key >> (32 - COHORT_SITES_SHIFT); }

/* Whether front_malloc_cohort is to see a call of the site. Call it once for each. */
HAK_INLINE bool cohort_calls(uint32_t key)
{
    return HAK_UNLIKELY(--cohort_turn.left < 0) ||
           HAK_UNLIKELY(atomic_load_explicit(&cohort_long[cohort_place(key)], memory_order_relaxed) == key);
}

/* A block of the heap of long-lived blocks, for a call of a long site or a watched one. NULL, with errno as it was:
 * malloc is to serve the call. `site`: as the profile is to show it. */
HAK_HIDDEN void *front_malloc_cohort(size_t size, uint32_t key, const void *site);

/* Another block of that heap. NULL, with errno as it was: malloc is to serve the call. */
HAK_HIDDEN void *cohort_allocate(size_t size);

/* Call before a block of that heap is freed. */
HAK_HIDDEN void cohort_note_free(const void *block);

#endif
