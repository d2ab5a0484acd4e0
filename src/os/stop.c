#define _GNU_SOURCE
#include "os/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"

/* If the program uses the signal that the caller names, a real-time signal between these two serves, the highest
 * first. Tools use higher ones. */
#define SIGNAL_HIGH 62
#define SIGNAL_LOW 40
/* glibc keeps this signal for pthread_cancel, and lets no program block it. Threads that block the other one get it. */
#define SIGNAL_OPEN 32
#define STOPPED_MOST 8192u /* in the table; further ones are deaf */
#define PASSES_MOST 32u
/* After so many passes, deaf threads are asked again. */
#define ASK_AGAIN 2u
#define HALF 2048u
#define WAIT_NS UINT64_C(1000000)

enum entry_state { ENTRY_UNUSED = 0, ENTRY_SIGNALLED, ENTRY_DEAF, ENTRY_GONE };

/* A thread's entry, in a hash table by its id with open addressing. It counts only in the stop of its number. */
struct stop_entry {
    _Atomic uint32_t thread, number; /* number: of the stop. Order: release as it is stored last, acquire, read first */
    _Atomic uint32_t answered; /* the stop in which the thread waits. Order: release by it, acquire: its writes */
    uint32_t state;                  /* enum entry_state; the caller's alone */
};
_Static_assert(OS_STOP_BYTES >= STOPPED_MOST * sizeof(struct stop_entry) + (size_t)2 * HALF, "the table and a buffer");

static struct stop_entry *stop_entries;
static _Atomic uint32_t stop_current; /* odd: a stop is in force. Order: release, acquire in on_stop: `stop_entries` */
static _Atomic uint32_t stop_answers; /* for the caller to sleep on. Order: release after `answered`, acquire */
static _Atomic int stop_process; /* os_stop_prepare. Order: any; set before the first sweep */
static _Atomic uint32_t stop_own_thread; /* os_stop_pass_over_me; 0: none. Order: any; a hint */
static _Atomic int stop_signal; /* the signal; 0: none yet. Order: any; for the sweeping thread, one at a time */

/* ---- The stopped thread ---- */

static struct stop_entry *find_entry(uint32_t thread, uint32_t number)
{
    uint32_t index = thread * UINT32_C(2654435761) % STOPPED_MOST;

    for (unsigned tries = 0; tries < STOPPED_MOST; tries++) {
        struct stop_entry *entry = &stop_entries[(index + tries) % STOPPED_MOST];
        if (atomic_load(&entry->number) != number)
            return NULL;
        if (atomic_load(&entry->thread) == thread)
            return entry;
    }
    return NULL;
}

/* A signal that comes late finds no stop, or one that has not asked this thread. */
static void on_stop(int unused)
{
    int saved_errno = errno;
    uint32_t number = atomic_load(&stop_current);
    struct stop_entry *entry = number & 1 ? find_entry((uint32_t)syscall(SYS_gettid), number) : NULL;

    (void)unused;
    if (entry) {
        atomic_store(&entry->answered, number);
        atomic_fetch_add(&stop_answers, 1);
        os_futex_wake(&stop_answers, 1);
        while (atomic_load(&stop_current) == number)
            os_futex_wait(&stop_current, number, UINT64_MAX);
    }
    errno = saved_errno;
}

/* ---- The signal ---- */

static bool stop_is_ours(const struct sigaction *action)
{
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == on_stop;
}

/* Puts the handler there, unless the program has one or ignores the signal. */
static bool take_signal(int number)
{
    struct sigaction action = { .sa_handler = on_stop, .sa_flags = SA_RESTART | SA_ONSTACK }, before;

    /* those of the thread library, too, which sigfillset leaves out */
    memset(&action.sa_mask, 0xff, sizeof action.sa_mask);
    if (sigaction(number, NULL, &before) != 0)
        return false;
    return stop_is_ours(&before) ||
           (!(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL && sigaction(number, &action, NULL) == 0);
}

static bool kernel_action(int number, const uint64_t *action, uint64_t *before)
{
    return syscall(SYS_rt_sigaction, number, action, before, sizeof(uint64_t)) == 0;
}

/* Puts the handler there for SIGNAL_OPEN too, unless the program has called pthread_cancel. glibc's sigaction refuses
 * the number. So the kernel's own words for `number`, whose handler take_signal has set, serve for both. */
static bool take_open_signal(int number)
{
    uint64_t before[8] = { 0 }, ours[8] = { 0 }; /* the first word is the handler; four in all */

    if (number == 0 || !kernel_action(SIGNAL_OPEN, NULL, before))
        return false;
    if (before[0] == (uintptr_t)on_stop)
        return true;
    if (before[0] != (uintptr_t)SIG_DFL || !kernel_action(number, NULL, ours) || ours[0] != (uintptr_t)on_stop ||
        !kernel_action(SIGNAL_OPEN, ours, before))
        return false;
    if (before[0] == (uintptr_t)SIG_DFL)
        return true;
    (void)kernel_action(SIGNAL_OPEN, before, NULL); /* a first pthread_cancel in another thread came between */
    return false;
}

/* The signal to send; 0: none can be had. */
static int settle_signal(int wanted)
{
    int number = atomic_load(&stop_signal);

    if (wanted == 0 || (number != 0 && take_signal(number)))
        return wanted == 0 ? 0 : number;
    number = wanted;
    for (int next = SIGNAL_HIGH; number != 0 && !take_signal(number); next--)
        number = next >= SIGNAL_LOW ? next : 0;
    atomic_store(&stop_signal, number);
    return number;
}

/* ---- The other threads ---- */

static bool stop_read_whole(const char *path, char *buffer, size_t size)
{
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    size_t held = 0;
    long got = 0;

    if (file < 0)
        return false;
    while (held < size - 1 && (got = syscall(SYS_read, file, buffer + held, size - 1 - held)) > 0)
        held += (size_t)got;
    syscall(SYS_close, file);
    buffer[held] = '\0';
    return held != 0 && got >= 0;
}

enum stop_hearing { HEARS, HEARS_OPEN /* SIGNAL_OPEN alone */, HEARS_NOT, IS_GONE };

struct stop_pass {
    uint32_t number, self;
    int process, signal;
    char *buffer; /* a half for names, and one for a status */
    bool full, own, open; /* open: SIGNAL_OPEN is ours */
    unsigned fresh; /* threads that this pass found */
};

/* Reads /proc/self/task/ID/NAME into the half of the buffer for a status. `name` begins with the slash. */
static bool read_of_thread(const struct stop_pass *pass, uint32_t thread, const char *name)
{
    char path[48] = "/proc/self/task/", digits[12];
    size_t at = sizeof "/proc/self/task/" - 1, count = 0;

    for (uint32_t rest = thread; rest || count == 0; rest /= 10)
        digits[count++] = (char)('0' + rest % 10);
    while (count)
        path[at++] = digits[--count];
    memcpy(path + at, name, strlen(name) + 1);
    return stop_read_whole(path, pass->buffer + HALF, HALF);
}

/* Whether the thread is in a call of sigwait() or the like. Such a call takes the signal, so that no handler runs.
 * Meanwhile the signals that it waits for do not count as blocked in the thread's status. False: also if the system
 * does not tell. */
static bool waits_for_signals(const struct stop_pass *pass, uint32_t thread)
{
    const char *digit = pass->buffer + HALF;
    long call = 0;

    if (!read_of_thread(pass, thread, "/syscall") || *digit < '0' || *digit > '9')
        return false;
    for (; *digit >= '0' && *digit <= '9'; digit++)
        call = call * 10 + (*digit - '0');
    return call == SYS_rt_sigtimedwait;
}

/* What /proc/self/task/ID/status says of the thread. */
static enum stop_hearing ask_thread(const struct stop_pass *pass, const struct stop_entry *entry)
{
    uint32_t thread = atomic_load(&((struct stop_entry *)(uintptr_t)entry)->thread);
    const char *found, *buffer = pass->buffer + HALF;
    uint64_t blocked = 0;

    if (!read_of_thread(pass, thread, "/status"))
        return errno == ENOENT || errno == ESRCH ? IS_GONE : HEARS_NOT;
    found = strstr(buffer, "\nState:\t");
    if (found && (found[8] == 'Z' || found[8] == 'X'))
        return IS_GONE;
    found = strstr(buffer, "\nSigBlk:\t");
    if (found == NULL)
        return HEARS_NOT;
    for (found += 9; (*found >= '0' && *found <= '9') || (*found >= 'a' && *found <= 'f'); found++)
        blocked = blocked << 4 | (uint64_t)(*found <= '9' ? *found - '0' : *found - 'a' + 10);
    if (!((blocked >> (pass->signal - 1)) & 1) && !waits_for_signals(pass, thread))
        return HEARS;
    return pass->open && !((blocked >> (SIGNAL_OPEN - 1)) & 1) ? HEARS_OPEN : HEARS_NOT;
}

/* Sends the signal that the thread hears. False: errno tells why not. SI_QUEUE: the program may call pthread_cancel
 * before the signal arrives, and glibc's handler ignores all signals that tgkill has not sent. */
static bool send_signal(const struct stop_pass *pass, uint32_t thread, enum stop_hearing hearing)
{
    siginfo_t told;

    if (hearing == HEARS)
        return syscall(SYS_tgkill, pass->process, thread, pass->signal) == 0;
    memset(&told, 0, sizeof told);
    told.si_signo = SIGNAL_OPEN;
    told.si_code = SI_QUEUE;
    told.si_pid = pass->process;
    return syscall(SYS_rt_tgsigqueueinfo, pass->process, thread, SIGNAL_OPEN, &told) == 0;
}

/* The place for a thread that is new to the stop. NULL: the thread is not new, or the table is full. */
static struct stop_entry *new_entry(uint32_t thread, uint32_t number, bool *full)
{
    uint32_t index = thread * UINT32_C(2654435761) % STOPPED_MOST;

    for (unsigned tries = 0; tries < STOPPED_MOST; tries++) {
        struct stop_entry *entry = &stop_entries[(index + tries) % STOPPED_MOST];
        if (atomic_load(&entry->number) != number) {
            entry->state = ENTRY_UNUSED;
            atomic_store(&entry->answered, 0);
            atomic_store(&entry->thread, thread);
            atomic_store(&entry->number, number);
            return entry;
        }
        if (atomic_load(&entry->thread) == thread)
            return NULL;
    }
    *full = true;
    return NULL;
}

struct directory_entry {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

static void meet_thread(struct stop_pass *pass, uint32_t thread)
{
    bool own = thread == atomic_load_explicit(&stop_own_thread, memory_order_relaxed);
    struct stop_entry *entry = thread == pass->self || own ? NULL : new_entry(thread, pass->number, &pass->full);
    enum stop_hearing hearing;

    pass->own |= own;
    if (entry == NULL)
        return;
    pass->fresh++;
    hearing = pass->signal ? ask_thread(pass, entry) : HEARS_NOT;
    if (hearing == HEARS || hearing == HEARS_OPEN) {
        entry->state = ENTRY_SIGNALLED;
        if (!send_signal(pass, thread, hearing))
            entry->state = errno == ESRCH ? ENTRY_GONE : ENTRY_DEAF;
    } else {
        entry->state = hearing == IS_GONE ? ENTRY_GONE : ENTRY_DEAF;
    }
}

/* Sends the signal to all threads that are new. False: the system does not tell which there are. */
static bool meet_threads(struct stop_pass *pass)
{
    int directory = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    long got = -1;

    pass->fresh = 0;
    while (directory >= 0 && (got = syscall(SYS_getdents64, directory, pass->buffer, HALF)) > 0) {
        for (long at = 0; at < got;) {
            const struct directory_entry *name = (const struct directory_entry *)(const void *)(pass->buffer + at);
            uint32_t thread = 0;
            for (const char *digit = name->name; *digit >= '0' && *digit <= '9'; digit++)
                thread = thread * 10 + (uint32_t)(*digit - '0');
            if (thread)
                meet_thread(pass, thread);
            at += name->length;
        }
    }
    if (directory >= 0)
        syscall(SYS_close, directory);
    return got == 0;
}

/* Waits until all that were sent the signal have answered, or it takes too long. */
static void await_answers(const struct stop_pass *pass, uint64_t deadline)
{
    for (bool missing = true; missing;) {
        uint32_t before = atomic_load(&stop_answers);
        missing = false;
        for (unsigned i = 0; i < STOPPED_MOST && !missing; i++)
            missing = atomic_load(&stop_entries[i].number) == pass->number &&
                      stop_entries[i].state == ENTRY_SIGNALLED &&
                      atomic_load(&stop_entries[i].answered) != pass->number;
        if (!missing)
            return;
        os_futex_wait(&stop_answers, before, WAIT_NS);
        for (unsigned i = 0; i < STOPPED_MOST; i++) {
            struct stop_entry *entry = &stop_entries[i];
            if (atomic_load(&entry->number) != pass->number || entry->state != ENTRY_SIGNALLED ||
                atomic_load(&entry->answered) == pass->number)
                continue;
            if (syscall(SYS_tgkill, pass->process, atomic_load(&entry->thread), 0) != 0)
                entry->state = ENTRY_GONE;
            else if (os_now() > deadline)
                entry->state = ask_thread(pass, entry) == IS_GONE ? ENTRY_GONE : ENTRY_DEAF;
        }
    }
}

static _Atomic uint32_t stop_never; /* to sleep on. Order: any; nobody stores it */

/* A thread that was taken for deaf may hear by now: threads begin with all signals blocked. Returns whether a thread
 * was asked; the caller awaits its answer. */
static bool ask_again(struct stop_pass *pass)
{
    bool asked = false;

    for (unsigned i = 0; i < STOPPED_MOST && pass->signal != 0; i++) {
        struct stop_entry *entry = &stop_entries[i];
        if (atomic_load(&entry->number) != pass->number || entry->state != ENTRY_DEAF)
            continue;
        os_futex_wait(&stop_never, 0, WAIT_NS);
        enum stop_hearing hearing = ask_thread(pass, entry);
        switch (hearing) {
        case IS_GONE:
            entry->state = ENTRY_GONE;
            break;
        case HEARS:
        case HEARS_OPEN:
            if (atomic_load(&entry->answered) == pass->number ||
                send_signal(pass, atomic_load(&entry->thread), hearing)) {
                entry->state = ENTRY_SIGNALLED;
                asked = true;
            }
            break;
        case HEARS_NOT:
            break;
        }
    }
    return asked;
}

static void stop_all(struct os_stop *stop, struct stop_pass *pass)
{
    uint64_t deadline = os_now() + OS_STOP_PATIENCE_NS;
    bool complete = true, asked = false;

    for (unsigned passes = 0; passes < PASSES_MOST; passes++) {
        complete = meet_threads(pass);
        if (!complete || (pass->fresh == 0 && !asked)) /* no thread runs that could make another one */
            break;
        await_answers(pass, deadline);
        asked = passes < ASK_AGAIN && ask_again(pass);
    }
    if (pass->fresh || asked)
        await_answers(pass, deadline);
    for (unsigned i = 0; i < STOPPED_MOST; i++) {
        if (atomic_load(&stop_entries[i].number) != pass->number)
            continue;
        stop->stopped += stop_entries[i].state == ENTRY_SIGNALLED;
        stop->deaf += stop_entries[i].state == ENTRY_DEAF;
    }
    stop->deaf += !complete || pass->full || pass->fresh != 0;
    stop->own = pass->own;
}

void os_stop_begin(struct os_stop *stop, int number, void *memory)
{
    int saved_errno = errno;
    uint8_t all[8];
    struct stop_pass pass = { .self = (uint32_t)syscall(SYS_gettid), .process = (int)syscall(SYS_getpid) };

    memset(all, 0xff, sizeof all);
    memset(stop, 0, sizeof *stop);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, all, stop->mask, sizeof all);
    stop_entries = memory;
    pass.buffer = (char *)memory + STOPPED_MOST * sizeof(struct stop_entry);
    pass.signal = settle_signal(number);
    pass.open = take_open_signal(pass.signal);
    pass.number = atomic_fetch_add(&stop_current, 1) + 1;
    stop_all(stop, &pass);
    stop->deaf += pass.process != atomic_load_explicit(&stop_process, memory_order_relaxed);
    errno = saved_errno;
}

void os_stop_end(const struct os_stop *stop)
{
    int saved_errno = errno;

    atomic_fetch_add(&stop_current, 1);
    if (stop->stopped || stop->deaf) /* a thread that answered too late waits, too */
        os_futex_wake(&stop_current, INT32_MAX);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, stop->mask, NULL, sizeof stop->mask);
    errno = saved_errno;
}

void os_stop_prepare(void) { atomic_store(&stop_process, (int)syscall(SYS_getpid)); }

void os_stop_pass_over_me(void) { atomic_store(&stop_own_thread, (uint32_t)syscall(SYS_gettid)); }

void os_stop_reset_in_child(void)
{
    atomic_store(&stop_own_thread, 0);
    os_stop_prepare();
    uint32_t number = atomic_load(&stop_current);

    if (number & 1)
        atomic_store(&stop_current, number + 1);
}
