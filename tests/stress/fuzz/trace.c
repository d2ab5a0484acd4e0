/* Protects trace_check from any trace: what it accepts passes a second, plain walk.
 *
 * The target `trace`: the input is a trace (tools/trace/trace_file.h), whose magic, version, length and checksum are
 * corrected. A trace that trace_check accepts must pass a second, plain walk in the recorded order.
 */
#include "fuzz.h"

#include "../../../tools/trace/trace_file.h"

#include <stdlib.h>
#include <string.h>

static const struct trace_op *next_op(const struct trace_header *header, const unsigned char *bytes, uint64_t *done,
                                      uint32_t thread)
{
    const struct trace_thread *threads = (const void *)(bytes + trace_threads_at());
    const struct trace_op *ops = (const void *)(bytes + trace_ops_at(header));

    FUZZ_CHECK(thread < header->threads && done[thread] < threads[thread].count, "thread %u has no more", thread);
    return &ops[threads[thread].first + done[thread]++];
}

/* A block is made before it is freed, and a slot has one block. */
static void walk(const struct trace_header *header, const unsigned char *bytes)
{
    const struct trace_run *runs = (const void *)(bytes + trace_runs_at(header));
    uint64_t *done = calloc(header->threads, sizeof *done), all = 0;
    bool *full = calloc(header->slots + 1, sizeof *full);

    for (uint64_t i = 0; i < header->runs; i++) {
        for (uint32_t j = 0; j < runs[i].count; j++, all++) {
            const struct trace_op *op = next_op(header, bytes, done, runs[i].thread);
            enum trace_kind kind = trace_kind(op);
            bool frees = kind == TRACE_FREE || kind == TRACE_REALLOC_FREE;
            if (kind == TRACE_THREAD || (kind == TRACE_FREE && op->slot == TRACE_NO_SLOT))
                continue;
            FUZZ_CHECK(op->slot < header->slots, "slot %u", op->slot);
            FUZZ_CHECK(!frees || full[op->slot], "slot %u is freed and empty", op->slot);
            full[op->slot] = !frees;
        }
    }
    FUZZ_CHECK(all == header->operations, "%llu operations in order", (unsigned long long)all);
    free(done);
    free(full);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *bytes = malloc(size > 0 ? size : 1);
    struct trace_header header;

    memcpy(bytes, data, size);
    if (size >= sizeof header) {
        memcpy(&header, bytes, sizeof header);
        memcpy(header.magic, TRACE_MAGIC, sizeof header.magic);
        header.version = TRACE_VERSION;
        header.file_bytes = size;
        memcpy(bytes, &header, sizeof header);
        const size_t summed = offsetof(struct trace_header, file_bytes);
        header.checksum = trace_checksum(0, bytes + summed, size - summed);
        memcpy(bytes, &header, sizeof header);
    }
    if (trace_check(bytes, size) == NULL)
        walk((const void *)bytes, bytes);
    free(bytes);
    return 0;
}
