/*
 * hakmem-replay [--threads-merged] [--no-touch] TRACE
 *
 * Repeats what a trace (trace_file.h) recorded, on whatever allocator is preloaded. Each recorded thread becomes a
 * thread that starts and ends at the same points and runs its own stream of operations. An operation on a block that
 * another thread made, resized or freed waits until that thread has done so. Memory is used as a program would: each
 * block gets a word at its start, in each page and at its end, which are checked before it is freed or resized.
 *
 * The replay's own tables are mapped and touched before the clock starts. Operations are read on demand into a buffer
 * on each thread's stack. REPLAY own_kib is the tables' part of the peak RSS.
 */
#define _GNU_SOURCE
#include "replay_ops.h"

#include "../../bench/drivers/common.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUFFER_OPS = 1024, MERGED_BUFFER_OPS = 128, RUNS_AT_ONCE = 512, THREAD_STACK_BYTES = 256 * 1024 };

static struct replay {
    const char *path;
    int file;
    struct trace_header header;
    struct trace_thread *threads;
    pthread_attr_t attributes;
    _Atomic uint32_t exited;   /* threads that ended as they did in the recording */
    _Atomic uint32_t finished; /* threads whose stream is done */
    _Atomic uint32_t over;     /* 1: all streams are done, and the clock is stopped */
} replay;

/* ---- The file ---- */

/* Reads `size` bytes at `offset`, all of them. */
static void read_at(void *bytes, size_t size, uint64_t offset)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(replay.file, (char *)bytes + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            bench_fail("cannot read %s: %s", replay.path, got < 0 ? strerror(errno) : "it became shorter");
        done += (size_t)got;
    }
}

static uint64_t op_offset(uint64_t index)
{
    return trace_ops_at(&replay.header) + index * sizeof(struct trace_op);
}

/* Maps a table of zeros, or of the file's content at `offset`, and makes it resident. */
static void *new_table(uint64_t count, size_t size, uint64_t offset)
{
    size_t bytes = count > 0 ? count * size : 1;
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (table == MAP_FAILED)
        bench_fail("no memory for a table of %zu bytes: %s", bytes, strerror(errno));
    if (offset != 0)
        read_at(table, count * size, offset);
    return table;
}

/* Runs in a separate process, because mapping the whole file would show in this one's peak RSS. It also leaves the file
 * in the page cache. */
static void check_file(uint64_t length)
{
    pid_t child = fork();
    if (child < 0)
        bench_fail("cannot fork to check %s: %s", replay.path, strerror(errno));
    if (child == 0) {
        void *bytes = mmap(NULL, length > 0 ? length : 1, PROT_READ, MAP_PRIVATE, replay.file, 0);
        if (bytes == MAP_FAILED)
            bench_fail("cannot map %s: %s", replay.path, strerror(errno));
        const char *wrong = trace_check(bytes, length);
        if (wrong != NULL)
            bench_fail("%s: %s", replay.path, wrong);
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) != child)
        if (errno != EINTR)
            bench_fail("waitpid: %s", strerror(errno));
    if (WIFSIGNALED(status))
        bench_fail("the check of %s ended with signal %d", replay.path, WTERMSIG(status));
    if (status != 0)
        _exit(1);
}

static void open_trace(const char *path)
{
    struct stat about;
    replay.path = path;
    replay.file = open(path, O_RDONLY | O_CLOEXEC);
    if (replay.file < 0 || fstat(replay.file, &about) != 0)
        bench_fail("cannot open %s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        bench_fail("%s is no file", path);
    check_file((uint64_t)about.st_size);
    read_at(&replay.header, sizeof replay.header, 0);
    replay.threads = new_table(replay.header.threads, sizeof *replay.threads, trace_threads_at());
    replay_slots = new_table(replay.header.slots, sizeof *replay_slots, 0);
}

/* ---- Threads ---- */

static void announce(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    replay_wake(word);
}

static void *run_thread(void *argument);

/* Creates a thread once as many have exited as in the recording, so that no more threads live at once than then. */
static void create_thread(const struct trace_op *op)
{
    uint32_t exited;
    while ((int32_t)((exited = atomic_load(&replay.exited)) - op->version) < 0)
        replay_sleep(&replay.exited, exited);
    pthread_t thread;
    int error = pthread_create(&thread, &replay.attributes, run_thread, (void *)(uintptr_t)op->slot);
    if (error != 0)
        bench_fail("cannot create thread %u: %s", op->slot, strerror(error));
}

static void run_stream(uint32_t number)
{
    const struct trace_thread *thread = &replay.threads[number];
    struct trace_op ops[BUFFER_OPS];
    for (uint64_t done = 0; done < thread->count;) {
        uint64_t count = thread->count - done < BUFFER_OPS ? thread->count - done : BUFFER_OPS;
        read_at(ops, count * sizeof ops[0], op_offset(thread->first + done));
        for (uint64_t i = 0; i < count; i++) {
            if (trace_kind(&ops[i]) == TRACE_THREAD)
                create_thread(&ops[i]);
            else
                replay_do(&ops[i]);
        }
        done += count;
    }
}

static void *run_thread(void *argument)
{
    uint32_t number = (uint32_t)(uintptr_t)argument;
    bool ends = replay.threads[number].ended != 0;
    run_stream(number);
    if (ends)
        announce(&replay.exited);
    announce(&replay.finished);
    while (!ends && atomic_load(&replay.over) == 0)
        replay_sleep(&replay.over, 0);
    return NULL;
}

static void run_threads(void)
{
    run_stream(0);
    uint32_t finished;
    while ((finished = atomic_load(&replay.finished)) != (uint32_t)(replay.header.threads - 1))
        replay_sleep(&replay.finished, finished);
}

/* ---- All streams in one thread, in the recorded order ---- */

struct cursor {
    uint64_t done;
    struct trace_op ops[MERGED_BUFFER_OPS];
};

static void run_ordered(struct cursor *cursor, const struct trace_thread *thread, uint32_t count)
{
    for (; count > 0; count--) {
        uint64_t at = cursor->done % MERGED_BUFFER_OPS;
        if (at == 0) {
            uint64_t rest = thread->count - cursor->done;
            read_at(cursor->ops, (rest < MERGED_BUFFER_OPS ? rest : MERGED_BUFFER_OPS) * sizeof cursor->ops[0],
                    op_offset(thread->first + cursor->done));
        }
        if (trace_kind(&cursor->ops[at]) != TRACE_THREAD)
            replay_do(&cursor->ops[at]);
        cursor->done++;
    }
}

static void run_merged(struct cursor *cursors)
{
    struct trace_run runs[RUNS_AT_ONCE];
    for (uint64_t done = 0; done < replay.header.runs;) {
        uint64_t count = replay.header.runs - done < RUNS_AT_ONCE ? replay.header.runs - done : RUNS_AT_ONCE;
        read_at(runs, count * sizeof runs[0], trace_runs_at(&replay.header) + done * sizeof runs[0]);
        for (uint64_t i = 0; i < count; i++)
            run_ordered(&cursors[runs[i].thread], &replay.threads[runs[i].thread], runs[i].count);
        done += count;
    }
}

/* ---- Main ---- */

static const char usage[] =
    "[--threads-merged] [--no-touch] TRACE\n"
    "  --threads-merged  all operations in one thread, in the order in which they were recorded\n"
    "  --no-touch        do not write into the blocks, and check nothing";

int main(int argc, char **argv)
{
    bool merged = false;
    replay_touches = true;
    bench_usage(argc, argv, 3, usage);
    const char *path = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads-merged") == 0)
            merged = true;
        else if (strcmp(argv[i], "--no-touch") == 0)
            replay_touches = false;
        else if (argv[i][0] == '-' || path != NULL)
            bench_usage(argc, argv, 0, usage);
        else
            path = argv[i];
    }
    if (path == NULL) {
        bench_usage(argc, argv, -1, usage);
        return 2; /* bench_usage ends the program, which its type does not say */
    }
    open_trace(path);
    if (pthread_attr_init(&replay.attributes) != 0 ||
        pthread_attr_setstacksize(&replay.attributes, THREAD_STACK_BYTES) != 0 ||
        pthread_attr_setdetachstate(&replay.attributes, PTHREAD_CREATE_DETACHED) != 0)
        bench_fail("cannot set the attributes of threads");
    struct cursor *cursors = merged ? new_table(replay.header.threads, sizeof *cursors, 0) : NULL;
    uint64_t own = replay.header.slots * sizeof *replay_slots + replay.header.threads * sizeof *replay.threads +
                   (merged ? replay.header.threads * sizeof *cursors : 0);

    struct bench_run run;
    bench_begin(&run, "replay");
    if (merged)
        run_merged(cursors);
    else
        run_threads();
    bench_end(&run, replay.header.calls);
    atomic_store(&replay.over, 1);
    replay_wake(&replay.over);
    dprintf(STDOUT_FILENO, "REPLAY threads=%llu slots=%llu own_kib=%llu waits=%llu\n",
            (unsigned long long)(merged ? 1 : replay.header.threads), (unsigned long long)replay.header.slots,
            (unsigned long long)(own >> 10), (unsigned long long)atomic_load(&replay_waits));
    bench_report(&run);
    return 0;
}
