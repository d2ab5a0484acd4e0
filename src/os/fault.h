/*
 * Pages that nobody may touch, and the SIGSEGV handler of sampled guards (profile/guard.h), which runs when somebody
 * does.
 *
 * The handler passes a fault that it does not settle to the handler that was there before it, as the kernel would have
 * called that one. Without one, the kernel's default ends the process at the same instruction. No call allocates or
 * changes errno.
 */
#ifndef HAK_OS_FAULT_H
#define HAK_OS_FAULT_H

#include "base/base.h"

/* Reserves addresses without memory that nobody may touch. NULL: the system refused. Whole pages, here and below. */
HAK_HIDDEN void *os_fault_reserve(size_t size);
/* Makes pages of it readable and writable, or untouchable. False: the kernel refused (vm.max_map_count), and nothing
 * changed. */
HAK_HIDDEN bool os_fault_open(void *address, size_t size);
HAK_HIDDEN bool os_fault_close(void *address, size_t size);
/* Gives the memory of open pages back. Locked memory stays. */
HAK_HIDDEN void os_fault_empty(void *address, size_t size);

enum os_access { OS_ACCESS_UNKNOWN = 0, OS_ACCESS_READ, OS_ACCESS_WRITE, OS_ACCESS_EXECUTE };

struct os_fault {
    uintptr_t address;     /* that the instruction touched */
    enum os_access access;
    uintptr_t instruction; /* that faulted; 0: not known on this processor */
    uintptr_t frame;       /* its frame pointer register */
    uintptr_t caller;      /* after a jump to the address: where the call came from, if known; else 0 */
};

/* True: the fault is settled, and the instruction runs again. Runs in the signal handler, perhaps on an alternate stack
 * of 8 KiB. */
typedef bool os_fault_settle(const struct os_fault *fault);

/* Puts the handler in front of the one in force; does nothing if it is in force itself. Returns 0 or the errno. Calls
 * must not race. Waits for nothing. Call it at the exit of a slow call (front/housekeeping.h, K1), not elsewhere within
 * malloc or free. */
HAK_HIDDEN int os_fault_take(os_fault_settle *settle);

/* The name of the calling thread, at most 15 characters, into a buffer of 16. */
HAK_HIDDEN void os_fault_thread_name(char name[16]);

/* The kernel's id of the calling thread, by a system call: a signal handler must not ask the C library. */
HAK_HIDDEN uint32_t os_fault_thread_id(void);

#endif
