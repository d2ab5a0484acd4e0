/* Protects tools/trace/finish.c from any raw recording: it refuses it, or makes a trace that a replay accepts.
 *
 * The target `recording`: the input is the records of a recorder's raw file (tools/trace/raw.h). tools/trace/finish.c
 * makes a trace of them, which a replay must accept, or refuses them. This file includes finish.c.
 *
 * Bytes 0 to 2: the number of threads in the file's header, and how much of its last record is missing. Then come the
 * records, 24 bytes each.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#define main finish_main
#include "../../../tools/trace/finish.c"
#undef main

enum { THREADS_MOST = 1 << 10, MISSING_MOST = 24 };

static char raw_path[64], trace_path[64];
static int raw_file, trace_file;

/* A recorder numbers its threads from 0. Larger numbers make long tables, which are slow and no fault. */
static void bound_threads(unsigned char *records, size_t size)
{
    for (size_t at = 0; at + sizeof(struct raw_record) <= size; at += sizeof(struct raw_record)) {
        uint64_t word;
        memcpy(&word, records + at, sizeof word);
        uint64_t thread = word & ((UINT64_C(1) << RAW_THREAD_BITS) - 1);
        word = word - thread + thread % THREADS_MOST;
        memcpy(records + at, &word, sizeof word);
    }
}

static void run(const uint8_t *data, size_t size)
{
    struct fuzz_input input = { data, data + size };
    unsigned threads = fuzz_take(&input), scale = fuzz_take(&input) % 4, missing = fuzz_take(&input);
    size_t length = (size_t)(input.end - input.at);
    unsigned char *raw = calloc(1, RAW_HEADER_BYTES + length);
    struct raw_header header = { .magic = RAW_MAGIC, .chunk_bytes = RAW_CHUNK_BYTES, .threads = threads << scale };

    memcpy(raw, &header, sizeof header);
    if (length > 0)
        memcpy(raw + RAW_HEADER_BYTES, input.at, length);
    bound_threads(raw + RAW_HEADER_BYTES, length);
    missing = missing % MISSING_MOST < length ? missing % MISSING_MOST : 0;
    fuzz_file_set(raw_file, raw, RAW_HEADER_BYTES + length - missing);
    char *arguments[] = { "finish", raw_path, trace_path, NULL };
    FUZZ_CHECK(finish_main(3, arguments) == 0, "finish");

    struct stat about;
    FUZZ_CHECK(fstat(trace_file, &about) == 0 && about.st_size > 0, "there is no trace");
    unsigned char *trace = malloc((size_t)about.st_size);
    FUZZ_CHECK(pread(trace_file, trace, (size_t)about.st_size, 0) == about.st_size, "pread");
    const char *wrong = trace_check(trace, (uint64_t)about.st_size);
    FUZZ_CHECK(wrong == NULL, "what finish wrote is %s", wrong);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (raw_path[0] == '\0') {
        raw_file = fuzz_file(raw_path);
        trace_file = fuzz_file(trace_path);
    }
    fuzz_in_child(run, data, size);
    return 0;
}
