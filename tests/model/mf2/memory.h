/*
 * The memory that the threads share, as C17 defines it. The compiler calls it at each access of the instrumented
 * sources (-fsanitize=thread; the hooks of ThreadSanitizer's interface are in hooks.c).
 *
 * An atomic object has a list of messages, in its modification order, each with the value and with what its writer had
 * seen, if the order of the write is release or stronger. A thread has a view: the oldest message of each object that
 * it may still read. A load reads this or a newer message; an acquire load joins what the message's writer had seen.
 * An update reads the message just before its own. Sequentially consistent accesses of one object see each other in
 * the order of their steps. The model is that of RC11 (Lahav and others, PLDI 2017), made operational as in Kang and
 * others, "A promising semantics for relaxed-memory concurrency", POPL 2017, without promises: no load reads a value
 * that a later step writes.
 *
 * Two accesses race if one is a write, one is not atomic, and neither happens before the other. The model reports it.
 */
#ifndef HAK_TESTS_MF2_MEMORY_H
#define HAK_TESTS_MF2_MEMORY_H

#include "base/base.h"

struct lock;

enum memory_operation { MEMORY_LOAD, MEMORY_STORE, MEMORY_EXCHANGE, MEMORY_ADD, MEMORY_SUB, MEMORY_AND, MEMORY_OR,
                        MEMORY_COMPARE };

/* Forgets which places two threads touch; before an exploration. */
void memory_forget(void);
/* Before a schedule. */
void memory_start(void);

/* An atomic access of `size` bytes. MEMORY_COMPARE: *expected, and the order after a failure. Returns what it read. */
uint64_t memory_atomic(void *address, unsigned size, enum memory_operation operation, uint64_t operand,
                       uint64_t *expected, int order, int failed_order);
/* An access that is not atomic. */
void memory_plain(const void *address, size_t size, bool write);

/* For code that is not instrumented: it stored the object's present value, relaxed. */
void memory_note_store(void *address, unsigned size);
/* The steps of a part that one lock guards and the model does not look into: each begins with memory_enter. */
void memory_enter(const struct lock *lock);
void memory_leave(const struct lock *lock);

/* Accesses to these bytes are no part of the model. */
void memory_exempt(const void *start, size_t size);
/* The results of additions to the object are not used. */
void memory_note_sum(const void *address);

/* A number for the values of all places that threads touched. */
uint64_t memory_digest(void);

/* The name of a place, for messages. Set by the program. */
extern void (*memory_describe)(const void *address, char *name, size_t size);

#endif
