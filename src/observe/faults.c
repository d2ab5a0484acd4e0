#include "observe/faults.h"

#include "os/os.h"

/* Each report writes them for the next one. Two reports at one time may mix their figures, which does no harm. */
struct faults_words {
    _Atomic uint64_t soft, hard, resident; /* Order: relaxed; statistics */
};
static struct faults_words first, reported;
static _Atomic bool begun; /* Order: relaxed; one thread begins */

struct faults faults_now(void)
{
    struct faults now = { .resident = os_resident_memory() };

    /* A sandbox in which /proc is closed may also end a process that calls getrusage. */
    if (now.resident)
        os_page_faults(&now.soft, &now.hard);
    return now;
}

static void words_set(struct faults_words *words, const struct faults *value)
{
    atomic_store_explicit(&words->soft, value->soft, memory_order_relaxed);
    atomic_store_explicit(&words->hard, value->hard, memory_order_relaxed);
    atomic_store_explicit(&words->resident, value->resident, memory_order_relaxed);
}

static struct faults words_get(struct faults_words *words)
{
    return (struct faults){ .soft = atomic_load_explicit(&words->soft, memory_order_relaxed),
                            .hard = atomic_load_explicit(&words->hard, memory_order_relaxed),
                            .resident = atomic_load_explicit(&words->resident, memory_order_relaxed) };
}

void faults_begin(void)
{
    struct faults now;

    if (atomic_exchange_explicit(&begun, true, memory_order_relaxed))
        return;
    now = faults_now();
    words_set(&first, &now);
    words_set(&reported, &now);
}

struct faults faults_first(void) { return words_get(&first); }
struct faults faults_reported(void) { return words_get(&reported); }

void faults_note_report(void)
{
    struct faults now = faults_now();

    words_set(&reported, &now);
}
