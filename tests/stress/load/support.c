#define _GNU_SOURCE
#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

uint64_t support_seed = 1;

_Noreturn void support_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    char message[512];
    char text[1024];
    va_list arguments;
    int length;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    length = snprintf(text, sizeof text, "FAILED %s:%d: %s: %s (seed %llu, thread %d, errno %d)\n", file, line,
                      condition, message, (unsigned long long)support_seed, (int)gettid(), errno);
    if (write(STDERR_FILENO, text, (size_t)length) < 0)
        _exit(3);
    abort();
}

/* ---- Chance ---- */

uint64_t chance_mix(uint64_t value)
{
    value ^= value >> 30;
    value *= UINT64_C(0xbf58476d1ce4e5b9);
    value ^= value >> 27;
    value *= UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

void chance_start(struct chance *chance, uint64_t stream)
{
    chance->state = chance_mix(support_seed * UINT64_C(0x9e3779b97f4a7c15) + chance_mix(stream + 1));
}

uint64_t chance_next(struct chance *chance)
{
    chance->state += UINT64_C(0x9e3779b97f4a7c15);
    return chance_mix(chance->state);
}

size_t chance_below(struct chance *chance, size_t bound)
{
    return (size_t)(chance_next(chance) % bound);
}

bool chance_is(struct chance *chance, unsigned per_mille)
{
    return chance_below(chance, 1000) < per_mille;
}

size_t chance_log(struct chance *chance, size_t low, size_t high)
{
    double from = log2(low == 0 ? 1.0 : (double)low);
    double to = log2((double)high);
    double at = from + (to - from) * ((double)(chance_next(chance) >> 11) * 0x1p-53);
    size_t result = (size_t)exp2(at);

    if (low == 0 && result == 1)
        return chance_below(chance, 2);
    return result < low ? low : result > high ? high : result;
}

/* ---- Memory and threads ---- */

void *support_map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(memory != MAP_FAILED, "the test's own mmap of %zu bytes", size);
    return memory;
}

void *support_map_shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED, "the test's own shared mmap of %zu bytes", size);
    return memory;
}

void support_unmap(void *memory, size_t size)
{
    CHECK(munmap(memory, size) == 0, "the test's own munmap of %zu bytes", size);
}

pthread_t support_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, argument);

    CHECK(error == 0, "pthread_create: %s", strerror(error));
    return thread;
}

void support_join(pthread_t thread)
{
    int error = pthread_join(thread, NULL);

    CHECK(error == 0, "pthread_join: %s", strerror(error));
}

void support_sleep_ms(unsigned ms)
{
    struct timespec rest = { ms / 1000, (long)(ms % 1000) * 1000000 };

    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
    }
}

bool support_has_thread(const char *name)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    bool found = false;

    CHECK(folder != NULL, "/proc/self/task: %s", strerror(errno));
    while (!found && (entry = readdir(folder)) != NULL) {
        char path[300], comm[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            continue;
        if (read(file, comm, sizeof comm - 1) > 0)
            found = strncmp(comm, name, strlen(name)) == 0;
        close(file);
    }
    closedir(folder);
    return found;
}

double support_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- Readings ---- */

static void read_file(const char *path, char *buffer, size_t capacity)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length;
    size_t filled = 0;

    CHECK(file >= 0, "open %s", path);
    while (filled < capacity - 1 && (length = read(file, buffer + filled, capacity - 1 - filled)) > 0)
        filled += (size_t)length;
    close(file);
    CHECK(filled > 0, "read %s", path);
    buffer[filled] = 0;
}

size_t support_rss(void)
{
    char text[4096];
    const char *line;

    read_file("/proc/self/smaps_rollup", text, sizeof text);
    line = strstr(text, "\nRss:");
    CHECK(line != NULL, "no Rss in smaps_rollup");
    return (size_t)strtoull(line + 5, NULL, 10) * KIB;
}

size_t support_rss_fast(void)
{
    char text[256];
    char *rest;

    read_file("/proc/self/statm", text, sizeof text);
    strtoull(text, &rest, 10);
    return (size_t)strtoull(rest, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- Arguments ---- */

uint64_t support_option(int argc, char **argv, const char *name, uint64_t otherwise)
{
    for (int i = 1; i < argc; i++) {
        char *end;
        uint64_t value;

        if (strncmp(argv[i], "--", 2) != 0 || strcmp(argv[i] + 2, name) != 0)
            continue;
        CHECK(i + 1 < argc, "--%s needs a value", name);
        value = strtoull(argv[i + 1], &end, 0);
        CHECK(end != argv[i + 1], "--%s %s is no number", name, argv[i + 1]);
        if (*end == 'K' || *end == 'k')
            value *= KIB;
        else if (*end == 'M' || *end == 'm')
            value *= MIB;
        else if (*end == 'G' || *end == 'g')
            value *= GIB;
        return value;
    }
    return otherwise;
}

void support_options_known(int argc, char **argv, const char *const *names)
{
    for (int i = 1; i < argc; i++) {
        const char *const *name = names;

        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        while (*name != NULL && strcmp(*name, argv[i] + 2) != 0)
            name++;
        CHECK(*name != NULL, "unknown option %s", argv[i]);
    }
}
