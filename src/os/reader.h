/*
 * Reads the process's own memory that another thread may unmap at any moment. The kernel copies it and returns an error
 * where an instruction would fault. Also tells which pages hold anything, so that reading faults in no page. No call
 * allocates or changes errno.
 */
#ifndef HAK_OS_READER_H
#define HAK_OS_READER_H

#include "base/base.h"

#define OS_READER_ENTRIES 4096u

struct os_reader {
    int thread; /* the caller of os_reader_begin, by which the kernel finds the memory: the first thread may be gone */
    int memory;        /* /proc/self/mem, where process_vm_readv is refused; else negative */
    int pagemap;       /* /proc/self/pagemap; negative: every page counts as one that holds something */
    uint64_t *entries; /* OS_READER_ENTRIES of pagemap, or regions */
    uintptr_t first, end; /* addresses that `entries` cover */
    bool regions;         /* `entries` come from PAGEMAP_SCAN (Linux 6.7), which is faster than pagemap */
    bool guards;          /* PAGEMAP_SCAN knows guarded pages */
    bool failed;          /* a copy failed though its pages may be readable: what was read is incomplete */
    bool anonymous;       /* set by the caller: none of the pages is an unchanged page of a file */
    size_t count, at;     /* how many regions there are, and the one that was found last */
    size_t page;
};

/* `entries` has room for OS_READER_ENTRIES. False: the system does not let the process read its memory this way. Call
 * os_reader_end in either case. */
HAK_HIDDEN bool os_reader_begin(struct os_reader *reader, uint64_t *entries);
HAK_HIDDEN void os_reader_end(struct os_reader *reader);

/* Copies [from, from + size) up to the first page that cannot be read. Returns the bytes copied. */
HAK_HIDDEN size_t os_reader_copy(struct os_reader *reader, uintptr_t from, void *into, size_t size);

/* The next run of pages in [from, to) that the process has written: it skips untouched pages, and unchanged pages of a
 * file, and guarded pages where the kernel tells of them. Both bounds are multiples of the page size. False: there is
 * none. *present: the pages are in memory; else they are swapped out, guarded in a way that mappings do not show, or
 * unknown. */
HAK_HIDDEN bool os_reader_next(struct os_reader *reader, uintptr_t from, uintptr_t to, uintptr_t *run,
                               uintptr_t *run_end, bool *present);

/* Call before looking for runs in parts of [from, to): asks the kernel about all of it at once, and about what follows
 * up to `far`, unless an earlier call did. */
HAK_HIDDEN void os_reader_look(struct os_reader *reader, uintptr_t from, uintptr_t to, uintptr_t far);

/* Opens memory that protection keys close to the calling thread. os_reader_close_keys takes the result, and closes it
 * again. Between the two calls only HAKMEM's code may run in the thread. False: the processor may have keys that this
 * function does not know. */
HAK_HIDDEN bool os_reader_open_keys(uint32_t *keys);
HAK_HIDDEN void os_reader_close_keys(uint32_t keys);

#endif
