/*
 * Stops the other threads of the process, so that one thread sees memory, stacks and registers as of one moment. It
 * sends each thread a signal, and the thread waits in the handler. The kernel saves the thread's registers in the
 * signal's frame, on its stack.
 *
 * A thread that blocks the signal, waits in sigwait(), or does not answer within OS_STOP_PATIENCE_NS, runs on: it is
 * deaf. The signal interrupts a system call. The kernel restarts the call, except those that SA_RESTART does not cover
 * (poll, select, epoll_wait, sleeps, sockets with a timeout): they fail with EINTR, as POSIX allows.
 */
#ifndef HAK_OS_STOP_H
#define HAK_OS_STOP_H

#include "base/base.h"

#define OS_STOP_PATIENCE_NS UINT64_C(200000000)
#define OS_STOP_BYTES (8192 * 16u + 4096u)

struct os_stop {
    unsigned stopped; /* threads that wait */
    unsigned deaf;    /* other threads that run on */
    bool own;         /* HAKMEM's own thread runs; it may end, and its stack be unmapped */
    uint8_t mask[8];  /* the caller's signal mask before */
};

/* Notes the process's id. A child of vfork shares this memory, and finds by the id that it cannot see the running
 * threads. */
HAK_HIDDEN void os_stop_prepare(void);

/* Blocks the caller's signals and stops the other threads by the signal of that number, or by another signal if the
 * program handles that one; 0: all other threads are deaf. A thread that blocks it gets signal 32, unless the program
 * has called pthread_cancel. `memory` is OS_STOP_BYTES, zeroed at first, aligned to 16, and the same in all calls,
 * because a signal may arrive late. One caller at a time. Between the two calls the caller takes no lock and does not
 * allocate. */
HAK_HIDDEN void os_stop_begin(struct os_stop *stop, int number, void *memory);
HAK_HIDDEN void os_stop_end(const struct os_stop *stop);

/* The calling thread is HAKMEM's own and blocks all signals. It runs on, and does not count as deaf: it holds no
 * pointer of the program. */
HAK_HIDDEN void os_stop_pass_over_me(void);

/* In the child of a fork, which is another process and has no other threads. */
HAK_HIDDEN void os_stop_reset_in_child(void);

#endif
