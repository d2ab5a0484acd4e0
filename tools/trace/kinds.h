/* The kinds of operations, in the recorder's raw file and in the finished trace. Both formats contain the numbers. */
#ifndef TRACE_KINDS_H
#define TRACE_KINDS_H

enum trace_kind {
    TRACE_MALLOC = 1,
    TRACE_CALLOC = 2,
    TRACE_REALLOC = 3,
    TRACE_REALLOCARRAY = 4,
    TRACE_POSIX_MEMALIGN = 5,
    TRACE_ALIGNED_ALLOC = 6,
    TRACE_MEMALIGN = 7,
    TRACE_VALLOC = 8,
    TRACE_PVALLOC = 9,
    TRACE_FREE = 10,
    TRACE_REALLOC_FREE = 11, /* finished trace only: realloc(block, 0) that freed the block */
    TRACE_THREAD = 12,       /* a thread is created */
    /* Raw file only. */
    TRACE_REALLOC_BEGIN = 13, /* realloc's arguments; its result follows in the same thread */
    TRACE_THREAD_END = 14,
    TRACE_THREAD_FAILED = 15, /* the thread announced by TRACE_THREAD was not created */
};

#endif
