/*
 * Cohorts: hak_alloc_at learns which sites' blocks live long, and takes these from a heap of their own (HEAP_LONG).
 * There they pin no memory of blocks that are freed soon.
 *
 * A thread's call in COHORT_PERIOD in the mean is a candidate. It moves the clock on by the bytes that such calls gave
 * out since the one before, about. Some candidates are watched: their blocks come from the same heap, so their frees are
 * slow calls, which tell their ages by the clock. A site is long while most of its watched blocks become old. The
 * others' calls pay for a countdown and a look into cohort_long.
 *
 * E1: places of `watched` and sites of cohort_long are complements, so that no reader takes them for references.
 * E2: all tables are hints. Threads may race for their fields: then an age or a decision is wrong, and no block.
 */
#ifndef HAK_FRONT_COHORT_H
#define HAK_FRONT_COHORT_H

#include "base/base.h"

/* ---- The rule ---- */

/* The clock and ages count KiB. Half of the blocks that ended lived no longer than `age_of_most`; twice as much is old.
 * Who outlives less than COHORT_OLD_LEAST pins little. */
#define COHORT_AGES 30u
#define COHORT_OLD_LEAST 4096u
/* Of a site: watched blocks before it can be long, and their share then; and how many are remembered. */
#define COHORT_PROOF 8u
#define COHORT_SHARE 3u
#define COHORT_MEMORY 32u

/* What became of a site's watched blocks. */
struct cohort_evidence {
    uint16_t old, young;
};

/* Ages are told apart by powers of 2. */
HAK_INLINE unsigned cohort_age_index(uint32_t age)
{
    return age == 0 ? 0 : (unsigned)base_min(base_high_bit(age) + 1, COHORT_AGES - 1);
}

/* The age from which on a block is old, by the blocks of each age that ended. 0: none ended. */
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

/* Adds a block. What is older counts half, again and again. */
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

/* Whether to watch the candidate, which is the `passed`th of its site since the last that was watched. A site with many
 * live watched blocks waits longer (`live` grows as the cube root of the calls), and one whose blocks are known to be
 * brief, too. */
HAK_INLINE bool cohort_watches(uint32_t passed, int32_t live, struct cohort_evidence evidence)
{
    uint64_t many = live > 0 ? (uint64_t)live : 0;

    return passed > many * many / 64 + evidence.young / 4;
}

/* ---- The calls ---- */

#define COHORT_PERIOD 128u
#define COHORT_SITES_SHIFT 10u
#define COHORT_SITES (1u << COHORT_SITES_SHIFT)

/* ~site of the sites that are long, by cohort_place; 0: none. Two sites with the same place cannot be long at once.
 * Order: relaxed; a hint */
HAK_DATA _Atomic uintptr_t cohort_long[COHORT_SITES];

/* The thread's calls before its next candidate, and its random numbers; 0: it has not called yet. */
struct cohort_turn {
    int32_t left;
    uint32_t random;
};
HAK_DATA _Thread_local struct cohort_turn cohort_turn __attribute__((tls_model("initial-exec")));

HAK_INLINE unsigned cohort_place(uintptr_t key)
{
    return (uint32_t)key * UINT32_C(2654435769) >> (32 - COHORT_SITES_SHIFT);
}

/* Whether front_malloc_cohort may have to do with a call of the site, whose complement the key is. */
HAK_INLINE bool cohort_calls(uintptr_t key)
{
    return HAK_UNLIKELY(--cohort_turn.left < 0) ||
           HAK_UNLIKELY(atomic_load_explicit(&cohort_long[cohort_place(key)], memory_order_relaxed) == key);
}

/* A block of the heap of long-lived blocks, for a call of a long site or a watched one. NULL, with errno as it was:
 * malloc is to serve the call. `site`: as the profile is to show it. */
HAK_HIDDEN void *front_malloc_cohort(size_t size, uintptr_t key, const void *site);

/* Another block of that heap. NULL, with errno as it was: malloc is to serve the call. */
HAK_HIDDEN void *cohort_allocate(size_t size);

/* Call before a block of that heap is freed. */
HAK_HIDDEN void cohort_note_free(const void *block);

#endif
