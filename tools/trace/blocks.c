/* See blocks.h. */
#include "blocks.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_OF_A_THREAD = 256, A_WHILE_IN_OPERATIONS = 2048, A_WHILE_IN_BYTES = 1 << 20, FIRST_CAPACITY = 4096 };

#define NO_SLOT UINT32_MAX

static _Noreturn void fail_memory(uint64_t count, size_t size)
{
    fprintf(stderr, "hakmem trace: no memory for a table of %llu entries of %zu bytes\n", (unsigned long long)count,
            size);
    exit(1);
}

void *blocks_new_table(uint64_t count, size_t size)
{
    void *table = calloc(count > 0 ? count : 1, size);
    if (table == NULL)
        fail_memory(count, size);
    return table;
}

void *blocks_grow_table(void *table, uint64_t count, size_t size)
{
    void *grown = count <= SIZE_MAX / size ? realloc(table, count * size) : NULL;
    if (grown == NULL)
        fail_memory(count, size);
    return grown;
}

/* ---- Live addresses: open addressing. Removing an entry closes its gap, so no probe meets a deleted mark ---- */

static uint64_t home_of(const struct address_table *table, uint64_t address)
{
    uint64_t mixed = (address >> 3) * UINT64_C(0x9E3779B97F4A7C15);
    return (mixed >> 20) & (table->capacity - 1);
}

void addresses_init(struct address_table *table)
{
    table->capacity = FIRST_CAPACITY;
    table->used = 0;
    table->entries = blocks_new_table(table->capacity, sizeof *table->entries);
}

static void insert(struct address_table *table, struct address_entry entry)
{
    uint64_t at = home_of(table, entry.address);
    while (table->entries[at].address != 0)
        at = (at + 1) & (table->capacity - 1);
    table->entries[at] = entry;
}

void addresses_put(struct address_table *table, uint64_t address, uint32_t slot)
{
    if (2 * (table->used + 1) > table->capacity) {
        struct address_table old = *table;
        table->capacity *= 2;
        table->entries = blocks_new_table(table->capacity, sizeof *table->entries);
        for (uint64_t i = 0; i < old.capacity; i++)
            if (old.entries[i].address != 0)
                insert(table, old.entries[i]);
        free(old.entries);
    }
    insert(table, (struct address_entry){address, slot});
    table->used++;
}

bool addresses_take(struct address_table *table, uint64_t address, uint32_t *slot)
{
    uint64_t mask = table->capacity - 1;
    uint64_t gap = home_of(table, address);
    while (table->entries[gap].address != address) {
        if (table->entries[gap].address == 0)
            return false;
        gap = (gap + 1) & mask;
    }
    *slot = table->entries[gap].slot;
    for (uint64_t at = (gap + 1) & mask; table->entries[at].address != 0; at = (at + 1) & mask) {
        /* An entry may move back into the gap unless its home lies behind the gap. */
        if (((at - home_of(table, table->entries[at].address)) & mask) < ((at - gap) & mask))
            continue;
        table->entries[gap] = table->entries[at];
        gap = at;
    }
    table->entries[gap].address = 0;
    table->used--;
    return true;
}

/* ---- Slots ---- */

void slots_init(struct slots *slots, uint64_t threads)
{
    slots->capacity = FIRST_CAPACITY;
    slots->used = 0;
    slots->states = blocks_new_table(slots->capacity, sizeof *slots->states);
    slots->free_of_thread = blocks_new_table(threads, sizeof *slots->free_of_thread);
    slots->queue.first = slots->queue.last = NO_SLOT;
}

static uint32_t new_slot(struct slots *slots)
{
    if (slots->used == slots->capacity) {
        slots->capacity *= 2;
        slots->states = blocks_grow_table(slots->states, slots->capacity, sizeof *slots->states);
    }
    if (slots->used == NO_SLOT) {
        fprintf(stderr, "hakmem trace: more than %u blocks live at once\n", NO_SLOT - 1);
        exit(1);
    }
    slots->states[slots->used] = (struct slot_state){.next = NO_SLOT};
    return slots->used++;
}

uint32_t slots_take(struct slots *slots, uint32_t thread, struct slot_time now)
{
    struct slot_list *own = &slots->free_of_thread[thread];
    if (own->count > 0) {
        uint32_t slot = own->first;
        own->first = slots->states[slot].next;
        own->count--;
        return slot;
    }
    uint32_t oldest = slots->queue.first;
    if (oldest == NO_SLOT)
        return new_slot(slots);
    const struct slot_state *state = &slots->states[oldest];
    if (state->last_thread != thread && now.operations - state->freed_at.operations < A_WHILE_IN_OPERATIONS &&
        now.allocated_bytes - state->freed_at.allocated_bytes < A_WHILE_IN_BYTES)
        return new_slot(slots);
    slots->queue.first = state->next;
    if (slots->queue.first == NO_SLOT)
        slots->queue.last = NO_SLOT;
    return oldest;
}

static void enqueue(struct slots *slots, uint32_t slot)
{
    slots->states[slot].next = NO_SLOT;
    if (slots->queue.last == NO_SLOT)
        slots->queue.first = slot;
    else
        slots->states[slots->queue.last].next = slot;
    slots->queue.last = slot;
}

void slots_give(struct slots *slots, uint32_t slot, uint32_t thread, struct slot_time now)
{
    struct slot_list *own = &slots->free_of_thread[thread];
    slots->states[slot].freed_at = now;
    if (own->count >= MOST_OF_A_THREAD) {
        enqueue(slots, slot);
        return;
    }
    slots->states[slot].next = own->first;
    own->first = slot;
    own->count++;
}

void slots_thread_ends(struct slots *slots, uint32_t thread)
{
    struct slot_list *own = &slots->free_of_thread[thread];
    for (; own->count > 0; own->count--) {
        uint32_t slot = own->first;
        own->first = slots->states[slot].next;
        enqueue(slots, slot);
    }
}
