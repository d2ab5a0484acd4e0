#include "profile/govern.h"

#include "os/os.h"

#define WINDOW_EVENTS 16u
/* A thread may exceed its share of time by this. Its first samples are the dearest, and those of long-lived blocks. Its
 * first GiB shall have 2,000 at the usual mean, however fast it allocates (docs/profile.md, "What the figures are"). */
#define CREDIT_NS 2000000u
#define EVENT_MOST_NS 20000u   /* a longer event includes time in which the thread did not run */
#define HALVINGS_MOST 4u       /* in one step */
#define UNSEEN_MOST 2u
#define RELAX_MS 1000u
#define USUAL_MEAN (512 * HAK_KIB)

HAK_DATA_HERE _Atomic uint8_t govern_shifts[CLASS_COUNT];

static _Atomic uint64_t relaxed_ms; /* Order: any; chooses one thread */
static _Atomic uint64_t allowed; /* of a thread's time, in 1000; 0: all. Order: any; a hint */

void govern_begin(uint64_t mean, uint64_t may_spend)
{
    for (unsigned class = 0; class < CLASS_COUNT; class++)
        atomic_store_explicit(&govern_shifts[class], 0, memory_order_relaxed);
    /* A user who asks for more samples than usual accepts their cost. */
    atomic_store(&allowed, may_spend * (mean < USUAL_MEAN ? USUAL_MEAN / mean : 1));
}

/* The halvings that bring the time spent within the time allowed, if all of the thread's classes cost alike. */
static unsigned halvings(uint64_t spent, uint64_t may_spend)
{
    unsigned count = 0;

    for (; spent > may_spend && count < HALVINGS_MOST; spent /= 2)
        count++;
    return count;
}

/* Ends a window. Returns how often the chance of samples is to be halved. */
static unsigned settle(struct governor *governor, uint64_t now, uint64_t part)
{
    uint64_t may_spend = (now - governor->since) / 1000 * part, spent = governor->spent;

    governor->since = now;
    governor->spent = 0;
    governor->events = 0;
    governor->debt += spent;
    governor->debt -= base_min(governor->debt, may_spend);
    if (governor->debt <= CREDIT_NS)
        return 0;
    governor->debt = CREDIT_NS;
    return halvings(spent, may_spend);
}

uint64_t govern_start(const struct governor *governor)
{
    return governor == NULL || governor->since == 0 || governor->unseen >= UNSEEN_MOST ? os_now() : 0;
}

void govern_note(struct governor *governor, unsigned class, uint64_t began)
{
    uint64_t now = 0, part;
    uint8_t shift;
    unsigned more;

    if (governor->since == 0)
        governor->since = began;
    if (began) {
        now = os_now();
        governor->spent += base_min(now - began, EVENT_MOST_NS) * (1 + governor->unseen);
        governor->unseen = 0;
    } else {
        governor->unseen++;
    }
    if (++governor->events < WINDOW_EVENTS)
        return;
    part = atomic_load_explicit(&allowed, memory_order_relaxed);
    shift = atomic_load_explicit(&govern_shifts[class], memory_order_relaxed);
    more = settle(governor, now ? now : os_now(), part);
    /* If two threads raise the shift at once, one does. */
    if (part && more && shift < SHIFT_MOST)
        atomic_compare_exchange_strong(&govern_shifts[class], &shift, (uint8_t)base_min(shift + more, SHIFT_MOST));
}

static void relax(void)
{
    for (unsigned class = 0; class < CLASS_COUNT; class++) {
        uint8_t shift = atomic_load_explicit(&govern_shifts[class], memory_order_relaxed);
        if (shift)
            atomic_compare_exchange_strong(&govern_shifts[class], &shift, (uint8_t)(shift - 1));
    }
}

void govern_relax_due(uint64_t now_ms)
{
    uint64_t last = atomic_load_explicit(&relaxed_ms, memory_order_relaxed);

    if (HAK_UNLIKELY(now_ms - last >= RELAX_MS) && atomic_compare_exchange_strong(&relaxed_ms, &last, now_ms))
        relax();
}
