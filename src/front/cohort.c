#include "front/cohort.h"

#include <errno.h>

#include "front/guarded.h"
#include "front/heaps.h"
#include "front/housekeeping.h"
#include "front/process.h"
#include "front/sample.h"
#include "os/cycles.h"
#include "pool/registry.h"
#include "pool/slab.h"

#define WATCHED_SHIFT 11u
#define WATCHED (1u << WATCHED_SHIFT)
/* Sites that a look-up compares, candidates after which one without a candidate may make room, and places that a
 * candidate looks at for old blocks. */
#define SITE_PROBES 8u
#define SITE_IDLE 16384u
#define SWEEP 4u
/* Candidates between two looks at all ages, and how many ends these remember. */
#define LOOK_PERIOD 64u
#define ENDS_MOST 8192u
/* In place of a block: the place is being filled. */
#define CLAIMED ((uintptr_t)1)

HAK_DATA_HERE _Alignas(HAK_CACHE_LINE) _Atomic uint32_t cohort_long[COHORT_SITES]; /* in lines that nobody writes */
HAK_DATA_HERE _Thread_local struct cohort_turn cohort_turn __attribute__((tls_model("initial-exec")));

/* By cohort_place, or in one of the next SITE_PROBES - 1 places. Order: relaxed (O13) */
static struct cohort_site {
    _Atomic uint32_t key;      /* 0: none */
    _Atomic uint32_t seen;     /* the number of its last candidate */
    _Atomic uint32_t passed;   /* candidates since the last that was watched */
    _Atomic int32_t live;      /* its watched blocks */
    _Atomic uint32_t evidence; /* struct cohort_evidence */
} cohort_sites[COHORT_SITES];

/* By address. Order: release when `block` is set, acquire: the others; else relaxed (O13) */
static struct watched {
    _Atomic uintptr_t block; /* ~address, which no reader takes for a reference; CLAIMED, or 0 */
    _Atomic uint32_t born;
    _Atomic uint16_t site, weight; /* weight: the candidates for which it stands */
} watched[WATCHED];

/* Candidates by the age of the block that stood for them. Order of these: relaxed (O13) */
static _Atomic uint32_t cohort_ended[COHORT_AGES];
static _Atomic uint32_t cohort_clock, cohort_candidates, cohort_threads;
static _Atomic uint32_t cohort_old; /* the age from which on a block is old; 0: not known */

static struct heap *cohort_heap; /* Order: release by registry_served_by_all, acquire: the heap */

/* ADD returns the value before. */
#define PEEK(object) atomic_load_explicit(&(object), memory_order_relaxed)
#define POKE(object, value) atomic_store_explicit(&(object), (value), memory_order_relaxed)
#define ADD(object, value) atomic_fetch_add_explicit(&(object), (value), memory_order_relaxed)

static struct watched *place_of(const void *block)
{
    uint32_t offset = (uint32_t)((size_t)((const char *)block - window_base()) / BLOCK_ALIGN);

    return &watched[offset * UINT32_C(2654435769) >> (32 - WATCHED_SHIFT)];
}

/* ---- Evidence ---- */

static struct cohort_evidence evidence_of(uint32_t word)
{
    return (struct cohort_evidence){ (uint16_t)(word >> 16), (uint16_t)word };
}

static void judge(struct cohort_site *site, bool old)
{
    struct cohort_evidence evidence = cohort_add(evidence_of(PEEK(site->evidence)), old);
    uint32_t key = PEEK(site->key), none = 0;
    _Atomic uint32_t *place = &cohort_long[cohort_place(key)];
    bool was = PEEK(*place) == key, is = cohort_is_long(evidence, was);

    POKE(site->evidence, (uint32_t)evidence.old << 16 | evidence.young);
    if (is && !was)
        atomic_compare_exchange_strong_explicit(place, &none, key, memory_order_relaxed, memory_order_relaxed);
    else if (was && !is)
        POKE(*place, 0);
}

/* Ends the watch of the block, whose ~address the place has: it became old, or is about to be freed. */
static void end_watch(struct watched *place, uintptr_t block, uint32_t age)
{
    struct cohort_site *site = &cohort_sites[PEEK(place->site)];
    uint32_t weight = PEEK(place->weight), old = PEEK(cohort_old);

    if (!atomic_compare_exchange_strong_explicit(&place->block, &block, 0, memory_order_relaxed, memory_order_relaxed))
        return;
    ADD(cohort_ended[cohort_age_index(age)], weight);
    ADD(site->live, -1);
    if (old)
        judge(site, age >= old);
}

/* Ends the watches of old blocks in the candidate's share of the places. */
static void sweep(uint32_t candidate, uint32_t now)
{
    uint32_t old = PEEK(cohort_old), age;

    for (uint32_t i = 0; i < SWEEP; i++) {
        struct watched *place = &watched[(candidate * SWEEP + i) % WATCHED];
        uintptr_t block = atomic_load_explicit(&place->block, memory_order_acquire);
        age = now - PEEK(place->born);
        if (block > CLAIMED && old && age >= old && (int32_t)age > 0)
            end_watch(place, block, age);
    }
}

/* Looks at all ages anew, and forgets half of them now and then. */
static void look_at_ages(void)
{
    uint32_t ended[COHORT_AGES], all = 0;

    for (unsigned i = 0; i < COHORT_AGES; i++)
        all += ended[i] = PEEK(cohort_ended[i]);
    POKE(cohort_old, cohort_old_age(ended));
    for (unsigned i = 0; i < COHORT_AGES && all > ENDS_MOST; i++)
        POKE(cohort_ended[i], ended[i] / 2);
}

/* ---- Calls ---- */

/* Draws how many calls pass before the thread's next candidate. False: this one only begins the thread's sequence. */
static bool draw_turn(void)
{
    uint32_t random = cohort_turn.random[0] | (uint32_t)cohort_turn.random[1] << 16;
    bool begun = random != 0;

    if (!begun)
        random = (ADD(cohort_threads, 1) + 1) * UINT32_C(2654435769);
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    cohort_turn.random[0] = (uint16_t)(random | (random == 0));
    cohort_turn.random[1] = (uint16_t)(random >> 16);
    cohort_turn.left = (int16_t)(random % COHORT_PERIOD + (begun ? COHORT_PERIOD / 2 : 0));
    return begun;
}

/* Whether the record may serve another site. No watched block refers to it. */
static bool is_idle(const struct cohort_site *site, uint32_t candidate)
{
    uint32_t key = PEEK(site->key);

    return candidate - PEEK(site->seen) > SITE_IDLE && PEEK(site->live) <= 0 &&
           PEEK(cohort_long[cohort_place(key)]) != key;
}

static struct cohort_site *take_over(struct cohort_site *site, uint32_t key)
{
    uint32_t before = PEEK(site->key);

    if (!atomic_compare_exchange_strong_explicit(&site->key, &before, key, memory_order_relaxed, memory_order_relaxed))
        return NULL;
    POKE(site->passed, 0);
    POKE(site->live, 0);
    POKE(site->evidence, 0);
    return site;
}

/* The site's record; NULL: there is no room for one. */
static struct cohort_site *find_site(uint32_t key, uint32_t candidate)
{
    struct cohort_site *idle = NULL;

    for (unsigned i = 0; i < SITE_PROBES; i++) {
        struct cohort_site *site = &cohort_sites[(cohort_place(key) + i) % COHORT_SITES];
        uint32_t found = 0;
        if (PEEK(site->key) == key ||
            atomic_compare_exchange_strong_explicit(&site->key, &found, key, memory_order_relaxed,
                                                    memory_order_relaxed) ||
            found == key)
            return site;
        if (!idle && is_idle(site, candidate))
            idle = site;
    }
    return idle ? take_over(idle, key) : NULL;
}

/* Counts a candidate. Returns its site if it is to be watched, else NULL. */
static struct cohort_site *count_candidate(uint32_t key, size_t size, uint32_t *weight)
{
    uint32_t step = (uint32_t)base_max(size * COHORT_PERIOD / HAK_KIB, 1), candidate = ADD(cohort_candidates, 1);
    struct cohort_site *site = find_site(key, candidate);

    sweep(candidate, ADD(cohort_clock, step) + step);
    if (candidate % LOOK_PERIOD == 0)
        look_at_ages();
    if (!site)
        return NULL;
    POKE(site->seen, candidate);
    *weight = ADD(site->passed, 1) + 1;
    if (!cohort_watches(*weight, PEEK(site->live), evidence_of(PEEK(site->evidence))))
        return NULL;
    POKE(site->passed, 0);
    return site;
}

static void watch(struct cohort_site *site, const void *block, uint32_t weight)
{
    struct watched *place = place_of(block);
    uintptr_t none = 0;

    if (!window_contains(block) /* guarded, or mapped because memory is short */
        || !atomic_compare_exchange_strong_explicit(&place->block, &none, CLAIMED, memory_order_relaxed,
                                                    memory_order_relaxed))
        return;
    POKE(place->born, PEEK(cohort_clock));
    POKE(place->site, (uint16_t)(site - cohort_sites));
    POKE(place->weight, (uint16_t)base_min(weight, UINT16_MAX));
    ADD(site->live, 1);
    atomic_store_explicit(&place->block, ~(uintptr_t)block, memory_order_release);
}

void cohort_note_free(const void *block)
{
    struct watched *place = place_of(block);
    uintptr_t key = ~(uintptr_t)block;

    if (atomic_load_explicit(&place->block, memory_order_acquire) == key)
        end_watch(place, key, PEEK(cohort_clock) - PEEK(place->born));
}

void *cohort_allocate(size_t size)
{
    int saved_errno = errno;
    void *block = NULL;
    bool zero;

    if (size > POOLED_MAX || cache_scope() || !process_init() || !registry_served_by_all(HEAP_LONG, &cohort_heap))
        return NULL;
    CYCLES_CALL_IS(class_is_span(class_of_size(size)) ? CYCLES_MALLOC_LARGE : CYCLES_MALLOC_MISS);
    housekeep();
    if (guard_on())
        block = guarded_in_heap(NULL, BLOCK_ALIGN, size);
    if (HAK_LIKELY(block == NULL))
        block = allocate_direct(cohort_heap, BLOCK_ALIGN, size, &zero);
    sample_foreign(block, class_size(class_of_size(size)), NULL);
    housekeep_exit();
    if (block == NULL)
        errno = saved_errno;
    return block;
}

void *front_malloc_cohort(size_t size, uint32_t key, const void *site)
{
    struct cohort_site *wanted = NULL;
    uint32_t weight;
    void *block;

    if (cohort_turn.left < 0 && draw_turn() && key && size <= POOLED_MAX && !cache_scope())
        wanted = count_candidate(key, size, &weight);
    if (!wanted && (key == 0 || PEEK(cohort_long[cohort_place(key)]) != key))
        return NULL;
    profile_site = site;
    block = cohort_allocate(size);
    profile_site = NULL;
    if (block && wanted)
        watch(wanted, block, weight);
    return block;
}
