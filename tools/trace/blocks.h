/*
 * Maps addresses to slots: which block an address is at a moment of the recording, and which slot of the replay's table
 * holds it. For the finishing program, which has one thread.
 */
#ifndef TRACE_BLOCKS_H
#define TRACE_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* calloc and realloc that end the program with a message if there is no memory. */
void *blocks_new_table(uint64_t count, size_t size);
void *blocks_grow_table(void *table, uint64_t count, size_t size);

/* ---- Live addresses ---- */

struct address_table {
    struct address_entry {
        uint64_t address; /* 0: empty */
        uint32_t slot;
    } *entries;
    uint64_t capacity; /* a power of two */
    uint64_t used;
};

void addresses_init(struct address_table *table);
void addresses_put(struct address_table *table, uint64_t address, uint32_t slot);
/* Removes the address and tells which slot it had. */
bool addresses_take(struct address_table *table, uint64_t address, uint32_t *slot);

/* ---- Slots ---- */

/* A moment of the recording. */
struct slot_time {
    uint64_t operations, allocated_bytes;
};

/* A slot that a thread freed goes to that thread's next block, so that reuse makes no thread wait for another. Surplus
 * slots of a thread go through a queue. Another thread uses one only if it was freed a while ago, so the replay seldom
 * waits for it. When it waits, a thread cannot run far ahead of those that free its blocks, so the memory in use stays
 * about as recorded. */
struct slot_state {
    uint64_t last_op; /* index of the slot's last operation */
    struct slot_time freed_at;
    uint32_t version;
    uint32_t last_thread;
    uint32_t next; /* in the list or queue of free slots */
};

struct slot_list {
    uint32_t first;
    uint32_t count;
};

struct slots {
    struct slot_state *states;
    uint64_t capacity;
    uint32_t used;
    struct slot_list *free_of_thread;
    struct {
        uint32_t first, last;
    } queue;
};

void slots_init(struct slots *slots, uint64_t threads);
uint32_t slots_take(struct slots *slots, uint32_t thread, struct slot_time now);
void slots_give(struct slots *slots, uint32_t slot, uint32_t thread, struct slot_time now);
/* Gives the free slots of an ending thread to all threads. */
void slots_thread_ends(struct slots *slots, uint32_t thread);

#endif
