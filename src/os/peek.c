#define _GNU_SOURCE
#include "os/peek.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/errno.h"
#include "os/os.h"

static uintptr_t self_offset; /* from os_thread_token(); the same in every thread */

/* ---- Pages that could be read ---- */

enum { PAGE_SHIFT = 12, PAGES_KEPT = 1024, SECOND_SHIFT = 30, STAMP_BITS = 12 };

/* Each word has a page's number, and below it the stamp of the time when the page was read. Pages have at
 * least 4 KiB. */
static _Atomic uint64_t pages_read[PAGES_KEPT]; /* Order: relaxed; a word is whole by itself */

static _Atomic uint64_t *page_place(uintptr_t page) { return &pages_read[(page * UINT64_C(0x9e3779b97f4a7c15)) >> 54]; }

_Static_assert(PAGES_KEPT == 1 << (64 - 54), "page_place gives a place");

static uint64_t stamp_now(void) { return (os_now_coarse() >> SECOND_SHIFT) & ((1u << STAMP_BITS) - 1); }

static uint64_t page_mark(uintptr_t page, uint64_t stamp) { return (uint64_t)page << STAMP_BITS | stamp; }

/* The first page never counts as known: a place that is still 0 would name it whenever the stamp is 0. */
static bool is_known(const struct os_piece *piece, uint64_t stamp)
{
    uintptr_t last = (piece->address + piece->size - 1) >> PAGE_SHIFT;

    if (piece->address >> PAGE_SHIFT == 0)
        return false;
    for (uintptr_t page = piece->address >> PAGE_SHIFT; page <= last; page++)
        if (atomic_load_explicit(page_place(page), memory_order_relaxed) != page_mark(page, stamp))
            return false;
    return piece->address + piece->size > piece->address;
}

static void note_pages(const struct os_piece *piece, uint64_t stamp)
{
    uintptr_t last = (piece->address + piece->size - 1) >> PAGE_SHIFT;

    for (uintptr_t page = piece->address >> PAGE_SHIFT; page <= last; page++)
        atomic_store_explicit(page_place(page), page_mark(page, stamp), memory_order_relaxed);
}

/* ---- Reading ---- */

/* Another thread may write it meanwhile; words are read whole. */
static void copy(const struct os_piece *piece)
{
    const volatile unsigned char *from = (const volatile unsigned char *)piece->address;
    unsigned char *into = piece->into;
    size_t at = 0;

    if (piece->address % sizeof(uint64_t) == 0)
        for (; at + sizeof(uint64_t) <= piece->size; at += sizeof(uint64_t)) {
            uint64_t word = *(const volatile uint64_t *)(piece->address + at);
            memcpy(into + at, &word, sizeof word);
        }
    for (; at < piece->size; at++)
        into[at] = from[at];
}

bool os_peek(const struct os_piece *pieces, unsigned count)
{
    struct iovec local[OS_PIECES_MOST], remote[OS_PIECES_MOST];
    BASE_KEEP_ERRNO;
    size_t wanted = 0;
    long got;

    HAK_ASSERT(count <= OS_PIECES_MOST);
    for (unsigned i = 0; i < count; i++) {
        local[i] = (struct iovec){ pieces[i].into, pieces[i].size };
        remote[i] = (struct iovec){ (void *)pieces[i].address, pieces[i].size };
        wanted += pieces[i].size;
    }
    /* By the thread: the first one, which the process's number names, may have ended. */
    got = syscall(SYS_process_vm_readv, syscall(SYS_gettid), local, (unsigned long)count, remote,
                  (unsigned long)count, 0L);
    return got >= 0 && (size_t)got == wanted;
}

bool os_peek_at(uintptr_t address, void *into, size_t size)
{
    struct os_piece piece = { address, into, size };

    return os_peek(&piece, 1);
}

bool os_peek_live(const struct os_piece *pieces, unsigned count)
{
    struct os_piece unknown[OS_PIECES_MOST];
    unsigned unknown_count = 0;
    uint64_t stamp = stamp_now();

    for (unsigned i = 0; i < count; i++) {
        if (is_known(&pieces[i], stamp))
            copy(&pieces[i]);
        else
            unknown[unknown_count++] = pieces[i];
    }
    if (unknown_count && !os_peek(unknown, unknown_count))
        return false;
    for (unsigned i = 0; i < unknown_count; i++)
        note_pages(&unknown[i], stamp);
    return true;
}

bool os_peek_live_at(uintptr_t address, void *into, size_t size)
{
    struct os_piece piece = { address, into, size };

    return os_peek_live(&piece, 1);
}

/* FUTEX_WAIT reads the word, and fails with EFAULT if it cannot. It does not sleep: the timeout is 0, and the word
 * seldom has the expected value. */
bool os_can_read(uintptr_t address)
{
    enum { SELDOM = 0x5bd1e995 };
    static const struct timespec no_time;
    BASE_KEEP_ERRNO;
    return syscall(SYS_futex, base_align_down(address, 4), FUTEX_WAIT_PRIVATE, SELDOM, &no_time, NULL, 0) == 0 ||
               errno != EFAULT;
}

void os_peek_prepare(void) { self_offset = (uintptr_t)pthread_self() - os_thread_token(); }

uintptr_t os_thread_self(void) { return os_thread_token() + self_offset; }
