/* Reads of the process's own memory at addresses that may be wrong. No call allocates or changes errno. */
#ifndef HAK_OS_PEEK_H
#define HAK_OS_PEEK_H

#include "base/base.h"

struct os_piece {
    uintptr_t address;
    void *into;
    size_t size;
};

#define OS_PIECES_MOST 8u

/* Copies all pieces with one system call (process_vm_readv), which fails where nothing is mapped. False: a piece could
 * not be read. */
HAK_HIDDEN bool os_peek(const struct os_piece *pieces, unsigned count);
HAK_HIDDEN bool os_peek_at(uintptr_t address, void *into, size_t size);

/* As os_peek, for memory that is mapped if its address is right: nobody unmaps it during the call. The system call
 * costs microseconds, so the call reads pages directly if a call could read them within the last second. A wrong
 * address can at worst name a page that was unmapped within that second. */
HAK_HIDDEN bool os_peek_live(const struct os_piece *pieces, unsigned count);
HAK_HIDDEN bool os_peek_live_at(uintptr_t address, void *into, size_t size);

/* Whether the word of 4 bytes at the address can be read now. Every sandbox allows the call, which changes nothing. */
HAK_HIDDEN bool os_can_read(uintptr_t address);

/* What pthread_self() returns in the calling thread, without calling it. os_peek_prepare() calls the C library, and
 * comes first. */
HAK_HIDDEN void os_peek_prepare(void);
HAK_HIDDEN uintptr_t os_thread_self(void);

#endif
