/* See write.h. */
#include "write.h"

#include "blocks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct output {
    FILE *file;
    const char *path;
    uint32_t checksum;
};

static _Noreturn void fail_to(const char *what, const char *path)
{
    fprintf(stderr, "hakmem trace: cannot %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static void put(struct output *output, const void *bytes, size_t size, uint64_t count)
{
    if (count == 0)
        return; /* an empty part has no table */
    output->checksum = trace_checksum(output->checksum, bytes, size * count);
    if (fwrite(bytes, size, count, output->file) != count)
        fail_to("write", output->path);
}

/* Sorts the operations by thread into a table of their own. */
static struct trace_op *sort_into_streams(const struct write_source *source)
{
    const struct trace_header *header = source->header;
    uint64_t first = 0;
    uint64_t *next = blocks_new_table(header->threads, sizeof *next);
    for (uint64_t i = 0; i < header->threads; i++) {
        source->threads[i].first = next[i] = first;
        first += source->threads[i].count;
    }
    struct trace_op *sorted = blocks_new_table(header->operations, sizeof *sorted);
    for (uint64_t i = 0; i < header->operations; i++)
        sorted[next[source->op_threads[i]]++] = source->ops[i];
    free(next);
    return sorted;
}

static struct trace_run *find_runs(const struct write_source *source, uint64_t *count)
{
    struct trace_run *runs = NULL;
    uint64_t capacity = 0;
    *count = 0;
    for (uint64_t i = 0; i < source->header->operations; i++) {
        struct trace_run *last = *count > 0 ? &runs[*count - 1] : NULL;
        if (last != NULL && last->thread == source->op_threads[i] && last->count < UINT32_MAX) {
            last->count++;
            continue;
        }
        if (*count == capacity) {
            capacity = capacity > 0 ? 2 * capacity : 1024;
            runs = blocks_grow_table(runs, capacity, sizeof *runs);
        }
        runs[(*count)++] = (struct trace_run){source->op_threads[i], 1};
    }
    return runs;
}

void write_trace(const struct write_source *source, const char *path, const char *text)
{
    struct trace_header *header = source->header;
    struct trace_op *streams = sort_into_streams(source);
    struct trace_run *runs = find_runs(source, &header->runs);
    memcpy(header->magic, TRACE_MAGIC, sizeof header->magic);
    header->version = TRACE_VERSION;
    header->text_bytes = strlen(text);
    header->file_bytes = trace_text_at(header) + header->text_bytes;

    struct output output = {fopen(path, "wb"), path, 0};
    if (output.file == NULL)
        fail_to("create", path);
    const size_t summed = offsetof(struct trace_header, file_bytes);
    put(&output, header, summed, 1);
    output.checksum = 0;
    put(&output, (const char *)header + summed, sizeof *header - summed, 1);
    put(&output, source->threads, sizeof *source->threads, header->threads);
    put(&output, streams, sizeof *streams, header->operations);
    put(&output, runs, sizeof *runs, header->runs);
    put(&output, text, 1, header->text_bytes);
    if (fseek(output.file, offsetof(struct trace_header, checksum), SEEK_SET) != 0 ||
        fwrite(&output.checksum, sizeof output.checksum, 1, output.file) != 1 || fclose(output.file) != 0)
        fail_to("write", path);
    free(streams);
    free(runs);
}
