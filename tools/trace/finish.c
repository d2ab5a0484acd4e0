/*
 * hakmem-trace-finish RAW OUTPUT [TEXT]
 *
 * Makes a trace (trace_file.h) from a recorder's raw file (raw.h): sorts the records of all threads by ticket, tells
 * apart the blocks that had the same address, and gives each operation its slot and version. TEXT is JSON about the
 * recording, kept unchanged. `hakmem trace record` runs this program.
 */
#include "blocks.h"
#include "raw.h"
#include "write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static _Noreturn __attribute__((format(printf, 1, 2))) void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("hakmem trace: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

/* A record with its fields unpacked. */
struct note {
    uint64_t ticket, address, size;
    uint32_t thread;
    unsigned log2_alignment;
    enum trace_kind kind;
};

/* What is known of a recorded thread. */
struct source {
    uint64_t last_ticket;
    bool ended, failed, created;
    bool in_realloc, had_slot;
    uint32_t slot;    /* of the block that its realloc works on */
    uint64_t address; /* of that block */
    uint32_t number;  /* in the trace */
};

struct maker {
    const char *raw_path;
    const struct raw_record **order; /* by ticket; NULL if the process ended between ticket and record */
    uint64_t last_ticket, records;
    struct source *sources;
    uint32_t source_count;

    struct address_table addresses;
    struct slots slots;
    struct trace_op *ops; /* in the recorded order */
    uint32_t *op_threads;
    uint64_t op_count, op_capacity, allocated_bytes;
    struct trace_thread *threads;
    uint32_t thread_count, exited;
    struct trace_header header;
};

static struct note read_note(const struct raw_record *record)
{
    uint64_t ticket_thread = atomic_load_explicit(&record->ticket_thread, memory_order_relaxed);
    return (struct note){
        .ticket = ticket_thread >> RAW_THREAD_BITS,
        .thread = (uint32_t)(ticket_thread & ((1u << RAW_THREAD_BITS) - 1)),
        .address = record->address_kind >> 8,
        .kind = (enum trace_kind)(record->address_kind & 0xff),
        .size = record->size_alignment >> 8,
        .log2_alignment = (unsigned)(record->size_alignment & 0xff),
    };
}

/* ---- Reading ---- */

static const unsigned char *map_raw(const char *path, uint64_t *length)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0)
        fail("cannot open %s: %s", path, strerror(errno));
    if (about.st_size < RAW_HEADER_BYTES)
        fail("%s is no recording: it has %lld bytes", path, (long long)about.st_size);
    void *bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (bytes == MAP_FAILED)
        fail("cannot map %s: %s", path, strerror(errno));
    close(file);
    *length = (uint64_t)about.st_size;
    return bytes;
}

/* Calls visit for every record that was written. */
static void for_each_record(struct maker *maker, const unsigned char *bytes, uint64_t length,
                            void (*visit)(struct maker *maker, const struct raw_record *record))
{
    for (uint64_t chunk = RAW_HEADER_BYTES; chunk < length; chunk += RAW_CHUNK_BYTES) {
        uint64_t room = length - chunk < RAW_CHUNK_BYTES ? length - chunk : RAW_CHUNK_BYTES;
        const struct raw_record *records = (const void *)(bytes + chunk);
        for (uint64_t i = 0; i < room / sizeof *records; i++)
            if (atomic_load_explicit(&records[i].ticket_thread, memory_order_relaxed) != 0)
                visit(maker, &records[i]);
    }
}

static void measure_record(struct maker *maker, const struct raw_record *record)
{
    struct note note = read_note(record);
    maker->records++;
    if (note.ticket > maker->last_ticket)
        maker->last_ticket = note.ticket;
    if (note.thread >= maker->source_count)
        maker->source_count = note.thread + 1;
}

static void place_record(struct maker *maker, const struct raw_record *record)
{
    struct note note = read_note(record);
    if (note.ticket == 0 || maker->order[note.ticket] != NULL)
        fail("%s is damaged: ticket %llu is there twice", maker->raw_path, (unsigned long long)note.ticket);
    maker->order[note.ticket] = record;
    struct source *source = &maker->sources[note.thread];
    if (note.ticket > source->last_ticket)
        source->last_ticket = note.ticket;
    source->ended |= note.kind == TRACE_THREAD_END;
    if (note.kind == TRACE_THREAD_FAILED && note.address < maker->source_count)
        maker->sources[note.address].failed = true;
}

static void read_raw(struct maker *maker)
{
    uint64_t length;
    const unsigned char *bytes = map_raw(maker->raw_path, &length);
    const struct raw_header *header = (const void *)bytes;
    if (memcmp(header->magic, RAW_MAGIC, sizeof header->magic) != 0 || header->chunk_bytes != RAW_CHUNK_BYTES)
        fail("%s is no recording of this version", maker->raw_path);
    maker->header.stopped = atomic_load(&header->stopped);
    maker->header.pid = header->pid;
    maker->source_count = atomic_load(&header->threads) > 0 ? atomic_load(&header->threads) : 1;
    for_each_record(maker, bytes, length, measure_record);
    /* At most one operation of each thread is in flight. */
    if (maker->last_ticket - maker->records > maker->source_count)
        fail("%s is damaged: %llu of %llu records are missing", maker->raw_path,
             (unsigned long long)(maker->last_ticket - maker->records), (unsigned long long)maker->last_ticket);
    maker->header.in_flight = maker->last_ticket - maker->records;
    maker->order = blocks_new_table(maker->last_ticket + 1, sizeof(const struct raw_record *));
    maker->sources = blocks_new_table(maker->source_count, sizeof *maker->sources);
    for_each_record(maker, bytes, length, place_record);
}

/* ---- Operations ---- */

static struct trace_op *add_op(struct maker *maker, uint32_t thread)
{
    if (maker->op_count == maker->op_capacity) {
        maker->op_capacity = maker->op_capacity > 0 ? 2 * maker->op_capacity : maker->records + 64;
        maker->ops = blocks_grow_table(maker->ops, maker->op_capacity, sizeof *maker->ops);
        maker->op_threads = blocks_grow_table(maker->op_threads, maker->op_capacity, sizeof *maker->op_threads);
    }
    maker->op_threads[maker->op_count] = thread;
    maker->threads[thread].count++;
    return &maker->ops[maker->op_count++];
}

/* Adds an operation on a block, with its order relative to the slot's previous operation. */
static void add_call(struct maker *maker, uint32_t thread, enum trace_kind kind, uint32_t slot, const struct note *note)
{
    uint64_t index = maker->op_count;
    /* No allocator has a block of such a size or alignment, and it would overflow into the operation's kind. */
    if (note->size > TRACE_MAX_SIZE || note->log2_alignment > TRACE_MAX_ALIGNMENT)
        fail("%s is damaged: a block of %llu bytes, alignment 2^%u", maker->raw_path, (unsigned long long)note->size,
             note->log2_alignment);
    struct trace_op *op = add_op(maker, thread);
    maker->header.calls++;
    maker->allocated_bytes += note->size;
    *op = (struct trace_op){slot, 0, trace_pack(kind, note->size, note->log2_alignment)};
    if (slot == TRACE_NO_SLOT)
        return;
    struct slot_state *state = &maker->slots.states[slot];
    op->version = state->version++;
    if (op->version != 0 && state->last_thread != thread) {
        op->packed |= TRACE_WAITS;
        maker->ops[state->last_op].packed |= TRACE_SIGNALS;
    }
    state->last_op = index;
    state->last_thread = thread;
}

static void add_thread(struct maker *maker, uint32_t creator, struct source *created)
{
    created->created = true;
    created->number = maker->thread_count++;
    maker->threads[created->number].creator = creator;
    struct trace_op *op = add_op(maker, creator);
    *op = (struct trace_op){created->number, maker->exited, trace_pack(TRACE_THREAD, 0, 0)};
}

static struct slot_time now(const struct maker *maker)
{
    return (struct slot_time){maker->op_count, maker->allocated_bytes};
}

static void add_free(struct maker *maker, uint32_t thread, enum trace_kind kind, uint32_t slot)
{
    static const struct note nothing;
    add_call(maker, thread, kind, slot, &nothing);
    slots_give(&maker->slots, slot, thread, now(maker));
}

/* Makes the address that of a block. If it was a block's already, that block was freed unseen. */
static void put_address(struct maker *maker, uint32_t thread, uint64_t address, uint32_t slot)
{
    uint32_t old;
    if (addresses_take(&maker->addresses, address, &old)) {
        maker->header.lost_frees++;
        add_free(maker, thread, TRACE_FREE, old);
    }
    addresses_put(&maker->addresses, address, slot);
}

static void make_allocation(struct maker *maker, uint32_t thread, const struct note *note)
{
    if (note->address == 0 || note->size > TRACE_MAX_SIZE) {
        maker->header.failed++;
        return;
    }
    uint32_t slot = slots_take(&maker->slots, thread, now(maker));
    put_address(maker, thread, note->address, slot);
    add_call(maker, thread, note->kind, slot, note);
}

static void make_free(struct maker *maker, uint32_t thread, const struct note *note)
{
    uint32_t slot;
    if (note->address == 0)
        add_call(maker, thread, TRACE_FREE, TRACE_NO_SLOT, note);
    else if (addresses_take(&maker->addresses, note->address, &slot))
        add_free(maker, thread, TRACE_FREE, slot);
    else
        maker->header.foreign_frees++;
}

static void begin_realloc(struct maker *maker, struct source *source, const struct note *note)
{
    source->in_realloc = true;
    source->address = note->address;
    source->had_slot = note->address != 0 && addresses_take(&maker->addresses, note->address, &source->slot);
}

static void end_realloc(struct maker *maker, struct source *source, const struct note *note)
{
    uint32_t thread = source->number;
    bool was_foreign = source->in_realloc && !source->had_slot && source->address != 0;
    bool has_slot = source->in_realloc && source->had_slot;
    source->in_realloc = false;
    if (note->address == 0 && has_slot) {
        if (note->size == 0) {
            add_free(maker, thread, TRACE_REALLOC_FREE, source->slot);
        } else {
            maker->header.failed++;
            addresses_put(&maker->addresses, source->address, source->slot);
        }
        return;
    }
    if (was_foreign && (note->address != 0 || note->size == 0))
        maker->header.foreign_frees++;
    if (!has_slot) {
        if (note->address != 0 || note->size != 0 || !was_foreign)
            make_allocation(maker, thread, note);
        return;
    }
    put_address(maker, thread, note->address, source->slot);
    add_call(maker, thread, note->kind, source->slot, note);
}

static void make_op(struct maker *maker, struct source *source, const struct note *note)
{
    switch (note->kind) {
    case TRACE_MALLOC:
    case TRACE_CALLOC:
    case TRACE_POSIX_MEMALIGN:
    case TRACE_ALIGNED_ALLOC:
    case TRACE_MEMALIGN:
    case TRACE_VALLOC:
    case TRACE_PVALLOC:
        make_allocation(maker, source->number, note);
        return;
    case TRACE_FREE:
        make_free(maker, source->number, note);
        return;
    case TRACE_REALLOC_BEGIN:
        begin_realloc(maker, source, note);
        return;
    case TRACE_REALLOC:
    case TRACE_REALLOCARRAY:
        end_realloc(maker, source, note);
        return;
    case TRACE_THREAD:
        if (note->address >= maker->source_count)
            fail("%s is damaged: thread %llu is created beyond the last", maker->raw_path,
                 (unsigned long long)note->address);
        if (!maker->sources[note->address].failed && !maker->sources[note->address].created)
            add_thread(maker, source->number, &maker->sources[note->address]);
        return;
    case TRACE_THREAD_END:
    case TRACE_THREAD_FAILED:
        return;
    case TRACE_REALLOC_FREE:
        break;
    }
    fail("%s is damaged: a record of kind %d", maker->raw_path, (int)note->kind);
}

static void make_ops(struct maker *maker)
{
    maker->threads = blocks_new_table(maker->source_count, sizeof *maker->threads);
    addresses_init(&maker->addresses);
    slots_init(&maker->slots, maker->source_count);
    maker->sources[0].created = true;
    maker->thread_count = 1;
    for (uint64_t ticket = 1; ticket <= maker->last_ticket; ticket++) {
        if (maker->order[ticket] == NULL)
            continue;
        struct note note = read_note(maker->order[ticket]);
        struct source *source = &maker->sources[note.thread];
        /* A thread that was not announced counts as created by the first one. */
        if (!source->created)
            add_thread(maker, 0, source);
        make_op(maker, source, &note);
        if (ticket == source->last_ticket && source->ended && source->number != 0) {
            maker->threads[source->number].ended = 1;
            maker->exited++;
            slots_thread_ends(&maker->slots, source->number);
        }
    }
}

/* ---- Main ---- */

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fputs("usage: hakmem-trace-finish RAW OUTPUT [TEXT]\n", stderr);
        return 2;
    }
    struct maker maker = {.raw_path = argv[1]};
    read_raw(&maker);
    make_ops(&maker);
    maker.header.operations = maker.op_count;
    maker.header.slots = maker.slots.used;
    maker.header.threads = maker.thread_count;
    const struct write_source source = {&maker.header, maker.threads, maker.ops, maker.op_threads};
    write_trace(&source, argv[2], argc > 3 ? argv[3] : "{}");
    return 0;
}
