/*
 * Debug builds: a bit for each page of slabs, in the SuperSlab's header. The bit is set when a block on the page is
 * handed out, also to a thread's cache, and cleared when the page is given back. When the header is given back with all
 * its units, the bits become 0 with it. A Bloom filter would be as large, and could not forget a page.
 *
 * E1: the bits of a unit in use change under the lock of the heap that owns it, those of a free unit under pool.lock.
 */
#ifndef HAK_SUPERSLAB_TOUCHED_H
#define HAK_SUPERSLAB_TOUCHED_H

#include "os/os.h"
#include "superslab/superslab.h"

/* Sets or clears the bits of the pages of [start, start + size), which lies in slabs of one SuperSlab. */
HAK_INLINE void touched_note(char *start, size_t size, bool touched)
{
    size_t page = base_max(os_page_size(), UNIT_SIZE / 16);
    struct superslab *superslab = superslab_of(start);
    size_t at = (size_t)(start - (char *)superslab) / page,
           end = ((size_t)(start - (char *)superslab) + size - 1) / page;

    for (; at <= end; at++) {
        _Atomic uint16_t *word = &superslab->touched[at * page / UNIT_SIZE];
        uint16_t bit = (uint16_t)(1u << (at * page % UNIT_SIZE / page)),
                 old = atomic_load_explicit(word, memory_order_relaxed);
        atomic_store_explicit(word, (uint16_t)(touched ? old | bit : old & ~bit), memory_order_relaxed);
    }
}

HAK_INLINE size_t touched_count(struct superslab *superslab)
{
    size_t pages = 0;

    for (unsigned unit = 0; unit < SUPERSLAB_UNITS; unit++)
        pages += base_count_bits(atomic_load_explicit(&superslab->touched[unit], memory_order_relaxed));
    return pages;
}

#endif
