/* The MESI state of every cache line, as far as it matters for counting: which cores have a copy, and whether one of
 * them may write without asking. Caches have no limit, so a core loses a line only to another core. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "coherence.h"
#include "system.h"

enum {
    LINES = 1 << (PAGE_SHIFT - LINE_SHIFT),
    CORE_WORDS = CORES_ALL / 64,
    PAGE_SLOTS = 1 << 21,
    SITE_SLOTS = 1 << 14,
    HELD_MOST = 16,
    NOBODY = -1,
    CODE_OF_PATTERN = 1,
    POINT_EACH = 256 /* accesses without an event after which others may run */
};

struct line {
    uint64_t sharers[CORE_WORDS];
    uint32_t transfers; /* while counting */
    int16_t owner;      /* may write; else NOBODY */
};

struct page {
    uintptr_t number; /* its address >> PAGE_SHIFT */
    uint8_t home;     /* the node of its first touch */
    bool touched;
    struct line lines[LINES];
};

/* What is counted by place: code, a line or a lock. */
struct site {
    uintptr_t place;
    uint64_t count, remote;
};

static struct page *pages[PAGE_SLOTS];
static struct page *page_store, *page_store_end;
static struct page *last_page;
static struct site codes[SITE_SLOTS], locks[SITE_SLOTS];
static struct counts counts;
static bool counting;
static unsigned cores_used, since_point;
static uint64_t mapping_free_at;
static __thread uint64_t accesses_done; /* by the thread */

/* The words that the thread changed last as if it took a lock. Most of what is no lock never changes back. */
static __thread struct held {
    uintptr_t address;
    uint64_t since;
} held[HELD_MOST];
static __thread unsigned held_next;

static unsigned node_of(unsigned core)
{
    return core >= CORES_MOST ? core % NODES : core * NODES / cores_used;
}

void model_begin(unsigned cores) { cores_used = cores; }

/* ---- Pages ---- */

static struct page *page_new(uintptr_t number)
{
    enum { AT_ONCE = 1024 };

    if (page_store == page_store_end) {
        long got = system_call(SYS_mmap, 0, (long)(AT_ONCE * sizeof(struct page)), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (got < 0 && got > -4096)
            _exit(1);
        page_store = (struct page *)(uintptr_t)got;
        page_store_end = page_store + AT_ONCE;
    }
    page_store->number = number;
    for (unsigned i = 0; i < LINES; i++)
        page_store->lines[i].owner = NOBODY;
    return page_store++;
}

static struct page **page_slot(uintptr_t number)
{
    size_t slot = (size_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> 43);

    while (pages[slot] && pages[slot]->number != number)
        slot = (slot + 1) % PAGE_SLOTS;
    return &pages[slot];
}

static struct page *page_of(uintptr_t address)
{
    uintptr_t number = address >> PAGE_SHIFT;
    struct page **slot;

    if (last_page && last_page->number == number)
        return last_page;
    slot = page_slot(number);
    if (*slot == NULL)
        *slot = page_new(number);
    return last_page = *slot;
}

static void touch_page(struct page *page, unsigned node, bool costs)
{
    if (page->touched)
        return;
    page->touched = true;
    page->home = (uint8_t)node;
    if (costs) {
        counts.faults += counting;
        schedule_spend(COST_FAULT);
    }
}

static void each_page(uintptr_t address, size_t size, bool populate)
{
    unsigned node = current ? node_of(coherence_core()) : 0;
    uintptr_t end = (address + size) >> PAGE_SHIFT;

    for (uintptr_t number = address >> PAGE_SHIFT; number < end; number++) {
        struct page *page;
        if (populate) {
            touch_page(page_of(number << PAGE_SHIFT), node, false);
            continue;
        }
        page = *page_slot(number);
        if (page == NULL || !page->touched)
            continue;
        page->touched = false;
        for (unsigned i = 0; i < LINES; i++) {
            memset(page->lines[i].sharers, 0, sizeof page->lines[i].sharers);
            page->lines[i].owner = NOBODY;
        }
    }
}

void model_forget(uintptr_t address, size_t size) { each_page(address, size, false); }

void model_populate(uintptr_t address, size_t size) { each_page(address, size, true); }

/* ---- Lines ---- */

static struct site *site_of(struct site *sites, uintptr_t place)
{
    size_t slot = (size_t)(place * UINT64_C(0x9e3779b97f4a7c15) >> 50);

    while (sites[slot].place != 0 && sites[slot].place != place)
        slot = (slot + 1) % SITE_SLOTS;
    sites[slot].place = place;
    return &sites[slot];
}

static bool line_has(const struct line *line, unsigned core)
{
    return line->sharers[core / 64] >> core % 64 & 1;
}

/* Whether cores other than `core` have the line; *same: one of its node, *other: one of another node. */
static bool line_elsewhere(const struct line *line, unsigned core, bool *same, bool *other)
{
    *same = *other = false;
    for (unsigned word = 0; word < CORE_WORDS; word++)
        for (uint64_t bits = line->sharers[word]; bits != 0; bits &= bits - 1) {
            unsigned sharer = word * 64 + (unsigned)__builtin_ctzll(bits);
            if (sharer == core)
                continue;
            if (node_of(sharer) == node_of(core))
                *same = true;
            else
                *other = true;
            if (*same && *other)
                return true;
        }
    return *same || *other;
}

static void count_transfer(struct line *line, bool remote, const void *code)
{
    if (!counting)
        return;
    counts.transfers++;
    counts.remote += remote;
    counts.own += code == NULL;
    line->transfers++;
    struct site *site = site_of(codes, code ? (uintptr_t)code : CODE_OF_PATTERN);
    site->count++;
    site->remote += remote;
}

static void line_access(struct page *page, struct line *line, enum access access, const void *code)
{
    unsigned core = coherence_core();
    bool writes = access != ACCESS_READ, has = line_has(line, core), same, other, remote;
    uint64_t cost = access == ACCESS_UPDATE ? COST_ATOMIC : COST_ACCESS;

    if (has && (!writes || line->owner == (int)core)) {
        schedule_spend(cost);
        return;
    }
    if (line_elsewhere(line, core, &same, &other)) {
        /* A write waits for the farthest copy to go, a read takes the nearest. */
        remote = writes ? other : !same;
        cost += remote ? COST_REMOTE : COST_TRANSFER;
        count_transfer(line, remote, code);
    } else if (!has) {
        counts.cold += counting;
        cost += node_of(core) == page->home ? COST_MEMORY : COST_MEMORY_REMOTE;
    }
    if (writes)
        memset(line->sharers, 0, sizeof line->sharers);
    line->sharers[core / 64] |= UINT64_C(1) << core % 64;
    line->owner = (int16_t)(writes ? (int)core : NOBODY);
    schedule_spend(cost);
}

/* Whether the access concerns this core alone, so that the order among cores does not matter. */
static bool is_private(uintptr_t address, enum access access)
{
    struct page *page = page_of(address);
    const struct line *line = &page->lines[address >> LINE_SHIFT & (LINES - 1)];

    return access != ACCESS_UPDATE && line->owner == (int)coherence_core();
}

void model_access(uintptr_t address, size_t size, enum access access, const void *code)
{
    uintptr_t last = address + (size ? size - 1 : 0);

    accesses_done++;
    counts.accesses += counting;
    if (schedule_own_stack(address)) {
        schedule_spend(COST_ACCESS);
        return;
    }
    if (!is_private(address, access) || ++since_point >= POINT_EACH) {
        since_point = 0;
        schedule_point();
    }
    counts.atomics += counting && access == ACCESS_UPDATE;
    for (uintptr_t at = address & ~(((uintptr_t)1 << LINE_SHIFT) - 1); at <= last; at += 1 << LINE_SHIFT) {
        struct page *page = page_of(at);
        touch_page(page, node_of(coherence_core()), true);
        line_access(page, &page->lines[at >> LINE_SHIFT & (LINES - 1)], access, code);
    }
}

void coherence_touch(void *block, size_t size, bool write)
{
    model_access((uintptr_t)block, size, write ? ACCESS_WRITE : ACCESS_READ, NULL);
}

/* ---- System calls and locks ---- */

void model_mapping(bool takes_pages)
{
    uint64_t now;

    if (!current)
        return;
    counts.calls += counting;
    schedule_point();
    now = coherence_now();
    if (now < mapping_free_at)
        schedule_spend(mapping_free_at - now);
    schedule_spend(COST_MAPPING + (takes_pages ? COST_SHOOTDOWN * cores_used : 0));
    mapping_free_at = coherence_now();
    schedule_point();
}

void model_lock_taken(uintptr_t address)
{
    held[held_next++ % HELD_MOST] = (struct held){ address, accesses_done };
}

void model_lock_left(uintptr_t address)
{
    struct held *found = NULL;

    for (unsigned i = 0; i < HELD_MOST; i++)
        if (held[i].address == address)
            found = &held[i];
    if (found == NULL)
        return;
    if (counting) {
        struct site *site = site_of(locks, address);
        counts.locks++;
        counts.hold += accesses_done - found->since;
        site->count++;
        site->remote += accesses_done - found->since;
    }
    found->address = 0;
}

void model_wait(void) { counts.waits += counting; }

void model_failed(void) { counts.failed += counting; }

/* ---- Figures ---- */

void coherence_count(bool on) { counting = on; }

struct counts coherence_counts(void) { return counts; }

static void print_sites(const char *kind, struct site *sites, unsigned most, uint64_t operations)
{
    for (unsigned n = 0; n < most; n++) {
        struct site *best = NULL;
        for (unsigned i = 0; i < SITE_SLOTS; i++)
            if (sites[i].count > 0 && (best == NULL || sites[i].count > best->count))
                best = &sites[i];
        if (best == NULL)
            return;
        dprintf(STDOUT_FILENO, "%s 0x%lx %.4f %.4f\n", kind, (unsigned long)best->place,
                (double)best->count / (double)operations, (double)best->remote / (double)operations);
        best->count = 0;
    }
}

static void print_lines(unsigned most, uint64_t operations)
{
    for (unsigned n = 0; n < most; n++) {
        struct page *page = NULL;
        unsigned best = 0;
        for (unsigned i = 0; i < PAGE_SLOTS; i++)
            for (unsigned line = 0; pages[i] && line < LINES; line++)
                if (pages[i]->lines[line].transfers > (page ? page->lines[best].transfers : 0)) {
                    page = pages[i];
                    best = line;
                }
        if (page == NULL)
            return;
        dprintf(STDOUT_FILENO, "line 0x%lx %.4f\n",
                (unsigned long)(page->number << PAGE_SHIFT | (uintptr_t)best << LINE_SHIFT),
                (double)page->lines[best].transfers / (double)operations);
        page->lines[best].transfers = 0;
    }
}

void coherence_report(unsigned most, uint64_t operations)
{
    print_sites("code", codes, most, operations);
    print_sites("lock", locks, most, operations);
    print_lines(most, operations);
}
