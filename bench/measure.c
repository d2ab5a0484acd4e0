/*
 * measure [-t SECONDS] [-v VARIABLE] [-i MILLISECONDS] [-p] OUTPUT WARM_MIB PRELOAD PROGRAM [ARGUMENT...]
 *
 * Runs one program and writes what it and its descendants used to OUTPUT as a line of key=value. This is a separate
 * program because the kernel carries the peak RSS of the process that calls execve over to the new program. This one is
 * small and static, so the figure is the program's own, down to about 1 MiB (a Python process has 30).
 *
 * Another process first writes and releases WARM_MIB of memory. On a virtual machine that returned free memory to its
 * host, the first touch of such a page costs milliseconds, which would otherwise count for the first program that runs.
 * PRELOAD becomes LD_PRELOAD for the program alone; empty means none. -v names another VARIABLE to put it into.
 *
 * Every -i milliseconds (10) measure reads the RSS of the program and its descendants. The average over time is
 * mean_rss_kib, the last reading end_rss_kib; both are -1 if the program ended before the first reading. Descendants
 * that outlive the program are killed and counted (left_behind). All die after -t seconds (timed_out=1), and when
 * measure or its parent dies.
 *
 * With -p measure also reads the largest process's private dirty memory (smaps_rollup), whenever its RSS has grown
 * since the last reading. The maximum is private_kib, -1 without a reading. The kernel walks all pages for a reading
 * and keeps the address space locked meanwhile, so readings take at most a twentieth of the time.
 *
 * The exit status is the program's, 128 + N if signal N ended it, and 125 if it could not be run.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES_MOST = 512, THREADS_LOOKED_AT = 64, ALL_THREADS_EVERY = 8, CANNOT_RUN = 125 };
enum { PRIVATE_REST = 20 /* the pause after a reading of private memory, in multiples of the reading's time */ };

static _Noreturn void fail(const char *what)
{
    dprintf(STDERR_FILENO, "measure: %s: %s\n", what, strerror(errno));
    _exit(CANNOT_RUN);
}

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* ---- Warming ---- */

/* Huge pages if possible: a host takes back whole ones, and touching them takes 512 times fewer faults. */
static void warm(size_t mebibytes)
{
    size_t size = mebibytes << 20;
    if (size == 0)
        return;
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            fail("mmap to warm memory");
        madvise(memory, size, MADV_HUGEPAGE);
        for (size_t at = 0; at < size; at += 4096)
            ((volatile char *)memory)[at] = 1;
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) {
        dprintf(STDERR_FILENO, "measure: warming %zu MiB failed\n", mebibytes);
        _exit(CANNOT_RUN);
    }
}

/* ---- The tree's RSS ---- */

/* A live process of the tree. Its files stay open: reading one again from the start gives its present content. */
struct process {
    pid_t pid;
    int statm;
    int children; /* file: the children that its main thread made */
};

static struct process processes[PROCESSES_MOST];
static size_t process_count;
static int own_children = -1;
static long page_kib;

static int open_process_file(pid_t pid, const char *format, pid_t thread)
{
    char path[64];
    snprintf(path, sizeof path, format, (int)pid, (int)thread);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void add_process(pid_t pid)
{
    for (size_t i = 0; i < process_count; i++)
        if (processes[i].pid == pid)
            return;
    if (process_count == PROCESSES_MOST)
        return;
    struct process process = {
        .pid = pid,
        .statm = open_process_file(pid, "/proc/%d/statm", pid),
        .children = open_process_file(pid, "/proc/%d/task/%d/children", pid),
    };
    if (process.statm >= 0) {
        processes[process_count++] = process;
    } else if (process.children >= 0) {
        close(process.children);
    }
}

/* Adds the processes that a `children` file lists. */
static void add_listed(int file)
{
    char text[4096];
    ssize_t length = file < 0 ? 0 : pread(file, text, sizeof text - 1, 0);
    if (length <= 0)
        return;
    text[length] = '\0';
    for (char *at = text; *at >= '0' && *at <= '9'; at += *at == ' ')
        add_process((pid_t)strtol(at, &at, 10));
}

/* Each thread has a file of the children it made. */
static void add_children_of_threads(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    struct dirent *entry;
    for (int seen = 0; seen < THREADS_LOOKED_AT && (entry = readdir(folder)) != NULL;) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        if (thread <= 0 || thread == pid)
            continue;
        seen++;
        int file = open_process_file(pid, "/proc/%d/task/%d/children", thread);
        add_listed(file);
        if (file >= 0)
            close(file);
    }
    closedir(folder);
}

/* The resident pages of one process; 0 if it has ended. */
static long resident_pages(const struct process *process)
{
    char text[128];
    ssize_t length = pread(process->statm, text, sizeof text - 1, 0);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *space = strchr(text, ' ');
    return space == NULL ? 0 : strtol(space, NULL, 10);
}

/* The largest process of the last reading. */
static struct {
    pid_t pid;
    long pages;
} largest;

static long tree_rss_kib(unsigned reading)
{
    long pages = 0;
    largest.pages = 0;
    add_listed(own_children);
    for (size_t i = 0; i < process_count;) {
        long own = resident_pages(&processes[i]);
        if (own == 0) {
            close(processes[i].statm);
            if (processes[i].children >= 0)
                close(processes[i].children);
            processes[i] = processes[--process_count];
            continue;
        }
        pages += own;
        if (own > largest.pages) {
            largest.pid = processes[i].pid;
            largest.pages = own;
        }
        add_listed(processes[i].children);
        if (reading % ALL_THREADS_EVERY == 0)
            add_children_of_threads(processes[i].pid);
        i++;
    }
    return pages * page_kib;
}

/* ---- Private dirty memory ---- */

struct private_memory {
    bool wanted;
    long most_kib;
    long pages; /* RSS of the process at the last reading */
    double next;
};

/* The private dirty memory of a process in KiB; -1 if it cannot be read, for example because the process has ended. */
static long private_dirty_kib(pid_t pid)
{
    static const char field[] = "\nPrivate_Dirty:";
    char text[4096];
    int file = open_process_file(pid, "/proc/%d/smaps_rollup", pid);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    const char *at = strstr(text, field);
    return at == NULL ? -1 : strtol(at + sizeof field - 1, NULL, 10);
}

static void note_private(struct private_memory *private)
{
    double began = now(CLOCK_MONOTONIC);
    if (!private->wanted || largest.pages <= private->pages || began < private->next)
        return;
    long kib = private_dirty_kib(largest.pid);
    private->pages = largest.pages;
    if (kib > private->most_kib)
        private->most_kib = kib;
    double ended = now(CLOCK_MONOTONIC);
    private->next = ended + PRIVATE_REST * (ended - began);
}

/* ---- Running ---- */

static void watch_signals(sigset_t *watched)
{
    sigemptyset(watched);
    sigaddset(watched, SIGCHLD);
    sigaddset(watched, SIGTERM);
    sigaddset(watched, SIGINT);
    sigaddset(watched, SIGHUP);
    sigprocmask(SIG_BLOCK, watched, NULL);
}

static pid_t start(char **command, const char *variable, const char *preload, const sigset_t *watched)
{
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0)
        fail("pipe");
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        sigprocmask(SIG_UNBLOCK, watched, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setsid();
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        if (preload[0] != '\0')
            setenv(variable, preload, 1);
        else
            unsetenv(variable);
        execvp(command[0], command);
        int error = errno;
        _exit(write(failure[1], &error, sizeof error) == sizeof error ? CANNOT_RUN : CANNOT_RUN + 1);
    }
    close(failure[1]);
    int error;
    if (read(failure[0], &error, sizeof error) == sizeof error) {
        errno = error;
        fail(command[0]);
    }
    close(failure[0]);
    return child;
}

struct outcome {
    int status;
    bool ended, timed_out, interrupted;
    struct rusage usage;
};

static void add_usage(struct rusage *total, const struct rusage *part)
{
    timeradd(&total->ru_utime, &part->ru_utime, &total->ru_utime);
    timeradd(&total->ru_stime, &part->ru_stime, &total->ru_stime);
    total->ru_minflt += part->ru_minflt;
    total->ru_majflt += part->ru_majflt;
    total->ru_nvcsw += part->ru_nvcsw;
    total->ru_nivcsw += part->ru_nivcsw;
    if (total->ru_maxrss < part->ru_maxrss)
        total->ru_maxrss = part->ru_maxrss;
}

/* Takes the figures of every child that has ended. wait4 counts the child and the children it waited for. */
static pid_t reap(struct outcome *outcome, pid_t program, int flags)
{
    struct rusage usage;
    int status;
    pid_t pid = wait4(-1, &status, flags, &usage);
    if (pid > 0) {
        add_usage(&outcome->usage, &usage);
        if (pid == program) {
            outcome->status = status;
            outcome->ended = true;
        }
    }
    return pid;
}

/* Kills the rest of the tree, generation by generation: orphans become children of this process. Returns how many. */
static long end_tree(struct outcome *outcome, pid_t program)
{
    long killed = 0;
    for (;;) {
        pid_t reaped;
        while ((reaped = reap(outcome, program, WNOHANG)) > 0) {
        }
        if (reaped < 0)
            return killed;
        process_count = 0;
        add_listed(own_children);
        if (process_count == 0)
            kill(program, SIGKILL);
        for (size_t i = 0; i < process_count; i++)
            kill(processes[i].pid, SIGKILL);
        killed += (long)process_count;
        reap(outcome, program, 0);
    }
}

struct average {
    double weighted, weight;
    double last; /* an ending process has no memory left, so its reading says nothing about what it held */
    unsigned readings;
};

/* Waits for the program and reads the tree's RSS at every interval. Each stands for the time since the last one. */
static void watch(struct outcome *outcome, pid_t program, const sigset_t *watched, double interval, double limit,
                  struct average *rss, struct private_memory *private)
{
    double began = now(CLOCK_MONOTONIC);
    double last = began;
    double next = began + interval;
    while (!outcome->ended) {
        double wait = next - now(CLOCK_MONOTONIC);
        if (wait > 0) {
            struct timespec pause = { (time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9) };
            int signal = sigtimedwait(watched, NULL, &pause);
            if (signal == SIGCHLD) {
                pid_t reaped;
                while (!outcome->ended && (reaped = reap(outcome, program, WNOHANG)) > 0) {
                }
                continue;
            }
            if (signal > 0) {
                outcome->interrupted = true;
                return;
            }
        }
        double at = now(CLOCK_MONOTONIC);
        if (at < next)
            continue;
        double kib = (double)tree_rss_kib(rss->readings++);
        if (kib > 0)
            rss->last = kib;
        note_private(private);
        rss->weighted += kib * (at - last);
        rss->weight += at - last;
        last = at;
        next = at + interval;
        if (limit > 0 && at - began >= limit) {
            outcome->timed_out = true;
            return;
        }
    }
}

static double number_argument(const char *text, const char *name)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !(value >= 0 && value <= 1e6)) {
        dprintf(STDERR_FILENO, "measure: %s must be a number from 0 to 1000000, not '%s'\n", name, text);
        _exit(CANNOT_RUN);
    }
    return value;
}

int main(int argc, char **argv)
{
    double limit = 0;
    double interval = 0.010;
    const char *variable = "LD_PRELOAD";
    struct private_memory private = { .most_kib = -1 };
    int option;
    while ((option = getopt(argc, argv, "+t:v:i:p")) != -1) {
        if (option == 't')
            limit = number_argument(optarg, "-t SECONDS");
        else if (option == 'i')
            interval = number_argument(optarg, "-i MILLISECONDS") / 1e3;
        else if (option == 'v')
            variable = optarg;
        else if (option == 'p')
            private.wanted = true;
        else
            return CANNOT_RUN;
    }
    if (argc - optind < 4 || interval <= 0) {
        dprintf(STDERR_FILENO,
                "usage: measure [-t SECONDS] [-v VARIABLE] [-i MILLISECONDS] [-p] OUTPUT WARM_MIB PRELOAD "
                "PROGRAM [ARGUMENT...]\n");
        return CANNOT_RUN;
    }
    char **command = argv + optind + 3;
    size_t warm_mib = (size_t)number_argument(argv[optind + 1], "WARM_MIB");
    int output = open(argv[optind], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (output < 0)
        fail(argv[optind]);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    warm(warm_mib);

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    page_kib = sysconf(_SC_PAGESIZE) / 1024;
    own_children = open_process_file(getpid(), "/proc/%d/task/%d/children", getpid());
    sigset_t watched;
    watch_signals(&watched);

    struct outcome outcome = { 0 };
    struct average rss = { 0 };
    double before = now(CLOCK_MONOTONIC);
    double own_before = now(CLOCK_PROCESS_CPUTIME_ID);
    pid_t program = start(command, variable, argv[optind + 2], &watched);
    add_process(program);
    watch(&outcome, program, &watched, interval, limit, &rss, &private);
    double wall = now(CLOCK_MONOTONIC) - before;
    double own = now(CLOCK_PROCESS_CPUTIME_ID) - own_before;
    long left_behind = end_tree(&outcome, program);
    if (outcome.interrupted)
        return 128 + SIGTERM;

    int status = outcome.status;
    const struct rusage *usage = &outcome.usage;
    dprintf(output,
            "wall_s=%.6f user_s=%.6f sys_s=%.6f peak_rss_kib=%ld mean_rss_kib=%.0f end_rss_kib=%.0f private_kib=%ld "
            "readings=%u "
            "soft_faults=%ld hard_faults=%ld waits=%ld preemptions=%ld left_behind=%ld timed_out=%d own_s=%.6f "
            "signal=%d status=%d\n",
            wall, seconds(usage->ru_utime), seconds(usage->ru_stime), usage->ru_maxrss,
            rss.weight > 0 ? rss.weighted / rss.weight : -1, rss.last > 0 ? rss.last : -1, private.most_kib,
            rss.readings, usage->ru_minflt, usage->ru_majflt, usage->ru_nvcsw, usage->ru_nivcsw, left_behind,
            outcome.timed_out, own, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
