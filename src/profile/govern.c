#include "profile/govern.h"

#include "options/options.h"
#include "os/os.h"

#define WINDOW_EVENTS 16u
#define CREDIT_NS 500000u      /* that a thread may be in debt: its first samples cost more than the rest, and are the ones of what stays */
#define EVENT_MOST_NS 100000u  /* what took longer was not the processor's time */
#define HALVINGS_MOST 4u       /* in one step */
#define RELAX_MS 1000u
#define USUAL_MEAN (512 * HAK_KIB)

HAK_DATA_HERE _Atomic uint8_t govern_shifts[CLASS_COUNT];

static _Atomic uint64_t relaxed_ms;
static _Atomic uint64_t allowed; /* of a thread's time, in 1000; 0: all */

void govern_begin(uint64_t mean)
{
    for (unsigned class = 0; class < CLASS_COUNT; class++)
        atomic_store_explicit(&govern_shifts[class], 0, memory_order_relaxed);
    /* Who asks for more samples than usual is ready to pay for them. */
    atomic_store(&allowed, hak_options.heap_profile_overhead * (mean < USUAL_MEAN ? USUAL_MEAN / mean : 1));
}

/* As many halvings as bring what was spent within what is allowed, if the class at hand is like the thread's others. */
static unsigned halvings(uint64_t spent, uint64_t may_spend)
{
    unsigned count = 0;

    for (; spent > may_spend && count < HALVINGS_MOST; spent /= 2)
        count++;
    return count;
}

/* A window ends: how much rarer samples are to be. */
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

void govern_note(struct governor *governor, unsigned class, uint64_t began)
{
    uint64_t now = os_now(), part = atomic_load_explicit(&allowed, memory_order_relaxed);
    uint8_t shift = atomic_load_explicit(&govern_shifts[class], memory_order_relaxed);
    unsigned more;

    if (governor->since == 0)
        governor->since = began;
    governor->spent += base_min(now - began, EVENT_MOST_NS);
    if (++governor->events < WINDOW_EVENTS)
        return;
    more = settle(governor, now, part);
    /* Of two threads that find so at once, one raises. */
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
