/* See common.h. */
#define _GNU_SOURCE
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

enum { PAGE_STEP = 4096, STAMP_BYTES = 16, IDLE_CALL_BYTES = 3000 };

_Noreturn void bench_fail(const char *format, ...)
{
    char line[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "%s: %s\n", program_invocation_short_name, line);
    _exit(1);
}

uint64_t bench_argument(int argc, char **argv, int index, const char *name, uint64_t fallback, uint64_t lowest,
                        uint64_t highest)
{
    if (index >= argc)
        return fallback;
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(argv[index], &end, 10);
    if (errno != 0 || end == argv[index] || *end != '\0' || argv[index][0] == '-' || value < lowest ||
        value > highest) {
        dprintf(STDERR_FILENO, "%s: %s must be a number from %llu to %llu, not '%s'\n", program_invocation_short_name,
                name, (unsigned long long)lowest, (unsigned long long)highest, argv[index]);
        _exit(2);
    }
    return value;
}

void bench_usage(int argc, char **argv, int most, const char *text)
{
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (!help && argc - 1 <= most)
        return;
    dprintf(help ? STDOUT_FILENO : STDERR_FILENO, "usage: %s %s\n", program_invocation_short_name, text);
    _exit(help ? 0 : 2);
}

unsigned bench_choice(int argc, char **argv, int index, const char *name, unsigned fallback, const char *const *words)
{
    if (index >= argc)
        return fallback;
    for (unsigned i = 0; words[i] != NULL; i++)
        if (strcmp(argv[index], words[i]) == 0)
            return i;
    dprintf(STDERR_FILENO, "%s: %s must be", program_invocation_short_name, name);
    for (unsigned i = 0; words[i] != NULL; i++)
        dprintf(STDERR_FILENO, "%s %s", i == 0 ? "" : words[i + 1] == NULL ? " or" : ",", words[i]);
    dprintf(STDERR_FILENO, ", not '%s'\n", argv[index]);
    _exit(2);
}

bool bench_verify_wanted(void)
{
    const char *value = getenv("BENCH_VERIFY");
    return value != NULL && strcmp(value, "1") == 0;
}

uint64_t bench_seed(uint64_t seed, uint64_t stream)
{
    uint64_t x = seed * UINT64_C(0x9E3779B97F4A7C15) + (stream + 1) * UINT64_C(0xD1B54A32D192ED03);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (x ^ (x >> 31)) | 1;
}

/* ---- Blocks ---- */

static uint64_t block_key(const void *block, uint64_t head)
{
    uint64_t x = head ^ ((uint64_t)(uintptr_t)block * UINT64_C(0x9E3779B97F4A7C15));
    return x ^ (x >> 29);
}

static void store_word(char *at, uint64_t word)
{
    memcpy(at, &word, sizeof word);
}

static uint64_t load_word(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* The stamp: bytes 0..7 hold size (low 40 bits) and serial, bytes 8..15 a key made of these and the address. The key is
 * repeated in each page and at the end of a block, if there is room. */
void bench_block_stamp(void *memory, size_t size, uint64_t serial)
{
    char *block = memory;
    uint64_t head = (uint64_t)size | serial << 40;
    uint64_t key = block_key(block, head);
    store_word(block, head);
    store_word(block + 8, key);
    for (size_t at = PAGE_STEP; at + 8 <= size; at += PAGE_STEP)
        store_word(block + at, key);
    if (size >= STAMP_BYTES + 8)
        store_word(block + size - 8, key);
}

void *bench_block_new(size_t size, uint64_t serial)
{
    void *block = malloc(size);
    if (block == NULL)
        bench_fail("malloc(%zu) failed", size);
    bench_block_stamp(block, size, serial);
    return block;
}

size_t bench_block_check(const void *memory)
{
    const char *block = memory;
    uint64_t head = load_word(block);
    size_t size = (size_t)(head & ((UINT64_C(1) << 40) - 1));
    uint64_t key = block_key(block, head);
    bool intact = load_word(block + 8) == key;
    /* A page's word that overlaps the last 8 bytes was overwritten by the one at the end. */
    for (size_t at = PAGE_STEP; intact && at + 16 <= size; at += PAGE_STEP)
        intact = load_word(block + at) == key;
    if (intact && size >= STAMP_BYTES + 8)
        intact = load_word(block + size - 8) == key;
    if (!intact)
        bench_fail("block %p of %zu bytes lost its contents", memory, size);
    return size;
}

unsigned bench_block_free(void *memory)
{
    char *block = memory;
    if (block == NULL)
        return 0;
    bench_block_check(block);
    /* If a block was given to two owners, only the first free finds a sound stamp. */
    store_word(block + 8, ~load_word(block + 8));
    free(block);
    return 1;
}

/* ---- Measuring ---- */

uint64_t bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

long bench_own_kib(const char *path, const char *field)
{
    char text[8192];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    const char *at = strstr(text, field);
    return at == NULL ? -1 : strtol(at + strlen(field), NULL, 10);
}

static long status_kib(const char *field)
{
    return bench_own_kib("/proc/self/status", field);
}

long bench_rss_kib(void)
{
    return status_kib("VmRSS:");
}

void bench_begin(struct bench_run *run, const char *name)
{
    memset(run, 0, sizeof *run);
    run->name = name;
    run->rss_before_kib = status_kib("VmRSS:");
    getrusage(RUSAGE_SELF, &run->before);
    run->started_ns = bench_now_ns();
}

void bench_end(struct bench_run *run, uint64_t operations)
{
    run->ended_ns = bench_now_ns();
    getrusage(RUSAGE_SELF, &run->after);
    run->operations = operations;
    run->rss_after_kib = status_kib("VmRSS:");
    run->rss_peak_kib = status_kib("VmHWM:");
    /* The kernel updates the peak only from time to time. */
    if (run->rss_peak_kib < run->rss_after_kib)
        run->rss_peak_kib = run->rss_after_kib;
}

void bench_extra(struct bench_run *run, const char *key, uint64_t value)
{
    size_t used = strlen(run->extra);
    int length = snprintf(run->extra + used, sizeof run->extra - used, " %s=%llu", key, (unsigned long long)value);
    if (length < 0 || (size_t)length >= sizeof run->extra - used)
        bench_fail("no room for %s in the RESULT line", key);
}

static double seconds_between(struct timeval from, struct timeval to)
{
    return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_usec - from.tv_usec) / 1e6;
}

/* Reports the memory held some time after everything was freed. Makes one call with a size that no program here uses,
 * so that it reaches the slow path, where an allocator may give memory back. */
static long idle_rss_kib(void)
{
    const char *value = getenv("BENCH_IDLE_MS");
    long milliseconds = value == NULL ? 0 : strtol(value, NULL, 10);
    if (milliseconds <= 0)
        return -1;
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
    char *volatile block = malloc(IDLE_CALL_BYTES);
    if (block == NULL)
        bench_fail("malloc(%d) failed", (int)IDLE_CALL_BYTES);
    *block = 1;
    free(block);
    return status_kib("VmRSS:");
}

void bench_report(const struct bench_run *run)
{
    double seconds = (double)(run->ended_ns - run->started_ns) / 1e9;
    double operations = (double)run->operations;
    double rate = seconds > 0 ? operations / seconds : 0;
    double nanoseconds = run->operations > 0 ? seconds * 1e9 / operations : 0;
    double user = seconds_between(run->before.ru_utime, run->after.ru_utime);
    double system = seconds_between(run->before.ru_stime, run->after.ru_stime);
    long soft = run->after.ru_minflt - run->before.ru_minflt;
    long hard = run->after.ru_majflt - run->before.ru_majflt;
    long delta = run->rss_after_kib - run->rss_before_kib;
    long idle = idle_rss_kib();
    long idle_private = idle < 0 ? -1 : bench_own_kib("/proc/self/smaps_rollup", "Private_Dirty:");

    dprintf(STDOUT_FILENO, "%s: %.0f ops in %.3f s, throughput = %.0f ops/s, %.2f ns/op\n", run->name, operations,
            seconds, rate, nanoseconds);
    dprintf(STDOUT_FILENO, "  cpu: user %.3f s, system %.3f s; page faults: %ld soft, %ld hard\n", user, system, soft,
            hard);
    dprintf(STDOUT_FILENO, "  memory: peak RSS %ld KiB, RSS delta %ld KiB", run->rss_peak_kib, delta);
    if (idle >= 0)
        dprintf(STDOUT_FILENO, ", idle RSS %ld KiB, private dirty %ld KiB", idle, idle_private);
    dprintf(
        STDOUT_FILENO,
        "\nRESULT name=%s ops=%llu seconds=%.6f ops_per_s=%.0f ns_per_op=%.3f user_s=%.6f sys_s=%.6f soft_faults=%ld "
        "hard_faults=%ld rss_peak_kib=%ld rss_delta_kib=%ld rss_idle_kib=%ld private_idle_kib=%ld%s\n",
        run->name, (unsigned long long)run->operations, seconds, rate, nanoseconds, user, system, soft, hard,
        run->rss_peak_kib, delta, idle, idle_private, run->extra);
}

/* ---- Threads ---- */

static struct {
    pthread_t threads[BENCH_THREADS_MOST];
    unsigned count;
    void (*body)(void *worker);
    pthread_barrier_t gate;
} group;

static void *group_main(void *worker)
{
    pthread_barrier_wait(&group.gate);
    group.body(worker);
    return NULL;
}

void bench_begin_threads(struct bench_run *run, const char *name, unsigned count, void (*body)(void *worker),
                         void *workers, size_t step)
{
    if (count > BENCH_THREADS_MOST)
        bench_fail("%u threads are more than %d", count, (int)BENCH_THREADS_MOST);
    group.count = count;
    group.body = body;
    pthread_barrier_init(&group.gate, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        int error = pthread_create(&group.threads[i], NULL, group_main, (char *)workers + i * step);
        if (error != 0)
            bench_fail("pthread_create: %s", strerror(error));
    }
    bench_begin(run, name);
    pthread_barrier_wait(&group.gate);
}

void bench_join_threads(void)
{
    for (unsigned i = 0; i < group.count; i++)
        pthread_join(group.threads[i], NULL);
    pthread_barrier_destroy(&group.gate);
}
