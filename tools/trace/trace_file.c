/* See trace_file.h. */
#include "trace_file.h"

#include <stdlib.h>
#include <string.h>

static void fill_table(uint32_t table[256])
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t rest = byte;
        for (int bit = 0; bit < 8; bit++)
            rest = (rest >> 1) ^ (rest & 1 ? UINT32_C(0xEDB88320) : 0);
        table[byte] = rest;
    }
}

/* CRC-32 as in ISO 3309 and zlib. */
uint32_t trace_checksum(uint32_t so_far, const void *bytes, size_t count)
{
    static uint32_t table[256];
    if (table[1] == 0)
        fill_table(table);
    uint32_t sum = ~so_far;
    for (const unsigned char *at = bytes, *end = at + count; at < end; at++)
        sum = table[(sum ^ *at) & 0xff] ^ (sum >> 8);
    return ~sum;
}

/* Checks the header's figures against the file's length. No product below can overflow. */
static const char *check_header(const struct trace_header *header, uint64_t length)
{
    if (header->version != TRACE_VERSION)
        return "a trace of another version; record it anew";
    if (header->file_bytes != length)
        return length < header->file_bytes ? "truncated: shorter than its header says" : "longer than its header says";
    if (header->threads > length / sizeof(struct trace_thread) || header->runs > length / sizeof(struct trace_run) ||
        header->operations > length / sizeof(struct trace_op) || header->text_bytes > length ||
        trace_text_at(header) + header->text_bytes != length)
        return "damaged: its parts do not fill it";
    if (header->threads == 0 || header->threads > UINT32_MAX || header->slots > header->operations)
        return "damaged: no number of threads or slots can be this";
    return NULL;
}

static const char *check_threads(const struct trace_header *header, const struct trace_thread *threads)
{
    uint64_t first = 0;
    for (uint64_t i = 0; i < header->threads; i++) {
        if (threads[i].first != first || threads[i].count > header->operations - first)
            return "damaged: the threads' streams do not follow each other";
        first += threads[i].count;
    }
    return first == header->operations ? NULL : "damaged: operations that no thread does";
}

/* How far each thread has come, whether it was created, each slot's version and whether the slot is full. */
struct walk {
    uint64_t *done;
    bool *created;
    uint32_t *versions;
    bool *full;
    uint64_t exited;
};

static const char *check_slot(struct walk *walk, const struct trace_header *header, const struct trace_op *op)
{
    enum trace_kind kind = trace_kind(op);
    if (op->slot == TRACE_NO_SLOT && kind == TRACE_FREE)
        return NULL;
    if (op->slot >= header->slots)
        return "damaged: a slot beyond the last";
    if (op->version != walk->versions[op->slot])
        return "damaged: operations on a block out of order";
    bool frees = kind == TRACE_FREE || kind == TRACE_REALLOC_FREE;
    bool resizes = kind == TRACE_REALLOC || kind == TRACE_REALLOCARRAY;
    if (!resizes && frees != walk->full[op->slot])
        return frees ? "damaged: a block freed that is not there" : "damaged: a block in the place of another";
    walk->full[op->slot] = !frees;
    walk->versions[op->slot]++;
    return NULL;
}

static const char *check_op(struct walk *walk, const struct trace_header *header, const struct trace_op *op)
{
    enum trace_kind kind = trace_kind(op);
    if (kind < TRACE_MALLOC || kind > TRACE_THREAD || trace_alignment(op) > TRACE_MAX_ALIGNMENT)
        return "damaged: an operation of no known kind";
    if (kind != TRACE_THREAD)
        return check_slot(walk, header, op);
    if (op->slot >= header->threads || walk->created[op->slot] || op->version > walk->exited)
        return "damaged: a thread created twice, or after threads that never exit";
    walk->created[op->slot] = true;
    return NULL;
}

static const char *walk_runs(struct walk *walk, const struct trace_header *header, const struct trace_thread *threads,
                             const struct trace_op *ops, const struct trace_run *runs)
{
    walk->created[0] = true;
    uint64_t calls = 0;
    for (uint64_t i = 0; i < header->runs; i++) {
        uint32_t thread = runs[i].thread;
        if (thread >= header->threads || !walk->created[thread])
            return "damaged: a thread at work before it is created";
        if (runs[i].count > threads[thread].count - walk->done[thread])
            return "damaged: more operations in order than a thread does";
        for (uint32_t j = 0; j < runs[i].count; j++) {
            const struct trace_op *op = &ops[threads[thread].first + walk->done[thread]++];
            const char *wrong = check_op(walk, header, op);
            if (wrong != NULL)
                return wrong;
            calls += trace_kind(op) != TRACE_THREAD;
            /* A thread without operations exits as soon as it is created. */
            if (trace_kind(op) == TRACE_THREAD && threads[op->slot].count == 0)
                walk->exited += threads[op->slot].ended;
        }
        if (runs[i].count > 0 && walk->done[thread] == threads[thread].count)
            walk->exited += threads[thread].ended;
    }
    for (uint64_t i = 0; i < header->threads; i++)
        if (!walk->created[i] || walk->done[i] != threads[i].count)
            return "damaged: operations or threads that are in no order";
    return calls == header->calls ? NULL : "damaged: its number of calls is wrong";
}

static const char *check_order(const struct trace_header *header, const unsigned char *bytes)
{
    const struct trace_thread *threads = (const void *)(bytes + trace_threads_at());
    const char *wrong = check_threads(header, threads);
    if (wrong != NULL)
        return wrong;
    struct walk walk = {
        .done = calloc(header->threads, sizeof *walk.done),
        .created = calloc(header->threads, sizeof *walk.created),
        .versions = calloc(header->slots + 1, sizeof *walk.versions),
        .full = calloc(header->slots + 1, sizeof *walk.full),
    };
    if (walk.done == NULL || walk.created == NULL || walk.versions == NULL || walk.full == NULL)
        wrong = "too large to be checked in this memory";
    else
        wrong = walk_runs(&walk, header, threads, (const void *)(bytes + trace_ops_at(header)),
                          (const void *)(bytes + trace_runs_at(header)));
    free(walk.done);
    free(walk.created);
    free(walk.versions);
    free(walk.full);
    return wrong;
}

const char *trace_check(const unsigned char *bytes, uint64_t length)
{
    if (length < sizeof(struct trace_header) || memcmp(bytes, TRACE_MAGIC, 8) != 0)
        return length >= 8 && memcmp(bytes, TRACE_MAGIC, 8) == 0 ? "truncated: shorter than its header"
                                                                 : "no trace of 'hakmem trace record'";
    const struct trace_header *header = (const void *)bytes;
    const char *wrong = check_header(header, length);
    if (wrong != NULL)
        return wrong;
    size_t summed = offsetof(struct trace_header, file_bytes);
    if (trace_checksum(0, bytes + summed, length - summed) != header->checksum)
        return "damaged: its checksum is wrong";
    return check_order(header, bytes);
}
