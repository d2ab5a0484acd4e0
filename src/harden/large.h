/*
 * Huge blocks of libhakmem-secure: each ends in inaccessible pages, from the first page behind the requested size on,
 * with its guard word before them. A freed one's memory serves other blocks at other addresses (pool/huge.h), and waits
 * inaccessible by chance (superslab/ranges.h).
 *
 * B5: the bytes between the guard word and the inaccessible pages are not checked. If the kernel refused these pages
 *     (vm.max_map_count), the request's `guard` is 0, and the guard word is whole.
 */
#ifndef HAK_HARDEN_LARGE_H
#define HAK_HARDEN_LARGE_H

#include "harden/ledger.h"
#include "os/os.h"
#include "pool/huge.h"

/* Bytes to map for a request: at least one page is behind it. */
HAK_INLINE size_t large_mapping(size_t size) { return size + os_page_size(); }

/* heap: first-class, or NULL. *zero: the block reads as zero. NULL: memory is out. Any thread without a lock, as
 * below. */
HAK_HIDDEN void *large_allocate(struct heap *heap, size_t alignment, size_t size, bool *zero);

/* Reads the request of the huge block at the address. *changed: the first byte that changed, when SEAL_BROKEN. */
HAK_HIDDEN enum seal_state large_read(const void *block, struct huge_request *request, size_t *changed);

/* Resizes a block whose request was read, by `resize`: huge_resize, or a wrapper of it. NULL: unchanged. */
HAK_HIDDEN void *large_resize(void *block, const struct huge_request *request, size_t size, bool may_move,
                              void *(*resize)(void *block, size_t size, bool may_move));

#endif
