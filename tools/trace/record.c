/* See record.h. */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { SMALLEST_SPARE = 16, MOST_FILES_OF_A_PID = 1000 };

/* Stands in until the process has its own. */
static struct record_process undecided;
struct record_process *record_process = &undecided;
_Thread_local struct record_thread record_thread __attribute__((tls_model("initial-exec")));

/* Not zeroed by fork: a child must differ from its parent and know its file's name. */
static uint64_t last_epoch = RECORD_IDLE;
static char base_path[4096];
static char path[4096 + 32];
static bool record_children;
static pthread_key_t end_key;
static bool end_key_made;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[sizeof path + 256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "hakmem trace: %s\n", line);
}

static void lock(void)
{
    while (atomic_exchange_explicit(&record_process->locked, 1, memory_order_acquire) != 0)
        sched_yield();
}

static void unlock(void)
{
    atomic_store_explicit(&record_process->locked, 0, memory_order_release);
}

static void set_epoch(uint64_t epoch)
{
    atomic_store_explicit(&record_process->epoch, epoch, memory_order_release);
}

/* Unmaps a chunk, which the room left in it identifies. */
static void unmap_chunk(struct record_room room)
{
    if (room.end != NULL)
        munmap(room.end - RAW_CHUNK_RECORDS, RAW_CHUNK_BYTES);
}

/* ---- Threads that end ---- */

static void thread_ends(void *unused)
{
    (void)unused;
    struct record_thread *self = &record_thread;
    struct record_process *process = record_process;
    record_note(TRACE_THREAD_END, 0, 0, 0);
    if (self->epoch == 0 || self->epoch != atomic_load(&process->epoch))
        return;
    self->ended = true;
    struct record_room room = self->room;
    self->room = (struct record_room){NULL, NULL};
    lock();
    bool kept = room.end - room.next >= SMALLEST_SPARE && process->spares < MOST_SPARES;
    if (kept)
        process->spare[process->spares++] = room;
    unlock();
    if (!kept)
        unmap_chunk(room);
}

/* ---- The file ---- */

/* Stops recording; the program goes on. The lock is held. */
static void stop_recording(const char *what, int error)
{
    atomic_store(&record_process->header->stopped, (uint32_t)error);
    set_epoch(RECORD_IDLE);
    say("recording stops: cannot %s %s: %s", what, path, strerror(error));
}

/* Reserves the file's space, so that no later write into the mapping can fail. Returns 0 or an errno. */
static int reserve_space(int file, off_t offset, off_t length)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        (rlim_t)(offset + length) > limit.rlim_cur)
        return EFBIG;
    if (fallocate(file, 0, offset, length) == 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return errno;
    return ftruncate(file, offset + length) == 0 ? 0 : errno;
}

/* Takes a new chunk of the file for the calling thread. The lock is held. */
static bool begin_chunk(struct record_room *room)
{
    struct raw_header *header = record_process->header;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        stop_recording("open", errno);
        return false;
    }
    off_t offset = RAW_HEADER_BYTES + (off_t)atomic_load(&header->chunks) * RAW_CHUNK_BYTES;
    int error = reserve_space(file, offset, RAW_CHUNK_BYTES);
    void *chunk = MAP_FAILED;
    if (error == 0) {
        chunk = mmap(NULL, RAW_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
        error = chunk == MAP_FAILED ? errno : 0;
    }
    close(file);
    if (error != 0) {
        stop_recording("extend", error);
        return false;
    }
    atomic_fetch_add(&header->chunks, 1);
    room->next = chunk;
    room->end = room->next + RAW_CHUNK_RECORDS;
    return true;
}

/* Creates the file and maps its header. Returns 0 or an errno. */
static int create_file(void)
{
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return errno;
    int error = reserve_space(file, 0, RAW_HEADER_BYTES);
    void *page = MAP_FAILED;
    if (error == 0) {
        page = mmap(NULL, RAW_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        error = page == MAP_FAILED ? errno : 0;
    }
    close(file);
    if (error != 0)
        return error;
    struct raw_header *header = page;
    header->chunk_bytes = RAW_CHUNK_BYTES;
    header->pid = (uint32_t)getpid();
    memcpy(header->magic, RAW_MAGIC, sizeof header->magic);
    record_process->header = header;
    return 0;
}

static void name_own_path(int turn)
{
    if (turn == 1)
        snprintf(path, sizeof path, "%s.%d", base_path, (int)getpid());
    else
        snprintf(path, sizeof path, "%s.%d-%d", base_path, (int)getpid(), turn);
}

/* Whether this process wrote the file, as another program before it called exec. */
static bool is_from_before_exec(const char *name)
{
    struct raw_header header;
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    bool complete = pread(file, &header, sizeof header, 0) == (ssize_t)sizeof header;
    close(file);
    return complete && header.pid == (uint32_t)getpid();
}

/* Keeps what the process recorded before exec as that of a child, or drops it if children are not recorded. */
static int move_aside(void)
{
    if (!record_children)
        return unlink(base_path) == 0 ? 0 : errno;
    for (int turn = 1; turn < MOST_FILES_OF_A_PID; turn++) {
        name_own_path(turn);
        if (access(path, F_OK) != 0)
            return rename(base_path, path) == 0 ? 0 : errno;
    }
    return EEXIST;
}

/* The process that was started gets the plain file name, for the program that it became last: a shell or wrapper that
 * calls exec is not the program that the user means. Other processes append their number, or get no file. */
static int create_own_file(bool is_child)
{
    if (!is_child) {
        snprintf(path, sizeof path, "%s", base_path);
        int error = create_file();
        if (error == EEXIST && is_from_before_exec(base_path)) {
            error = move_aside();
            snprintf(path, sizeof path, "%s", base_path);
            return error == 0 ? create_file() : error;
        }
        if (error != EEXIST)
            return error;
    }
    if (!record_children)
        return EEXIST;
    int error = EEXIST;
    for (int turn = 1; error == EEXIST && turn < MOST_FILES_OF_A_PID; turn++) {
        name_own_path(turn);
        error = create_file();
    }
    return error;
}

/* ---- The process begins ---- */

static bool read_settings(void)
{
    const char *file = getenv("HKTRACE_FILE");
    const char *children = getenv("HKTRACE_CHILDREN");
    if (file == NULL || file[0] != '/' || strlen(file) >= sizeof base_path)
        return false;
    strcpy(base_path, file);
    record_children = children != NULL && strcmp(children, "1") == 0;
    return true;
}

static bool make_process(void)
{
    size_t size = sizeof(struct record_process);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    if (madvise(memory, size, MADV_WIPEONFORK) != 0) {
        munmap(memory, size);
        return false;
    }
    record_process = memory;
    return true;
}

/* Decides whether this process records. The first call of malloc, and the first one after a fork, call this while there
 * is only one thread. */
static void begin_process(void)
{
    /* Before libc is ready there is no environment to read. */
    if (environ == NULL)
        return;
    bool is_child = record_process != &undecided;
    if (!is_child && !read_settings()) {
        set_epoch(RECORD_IDLE);
        return;
    }
    if (!is_child && !make_process()) {
        say("nothing is recorded: no memory that fork wipes: %s", strerror(errno));
        set_epoch(RECORD_IDLE);
        return;
    }
    if (!end_key_made) {
        int error = pthread_key_create(&end_key, thread_ends);
        if (error != 0) {
            say("nothing is recorded: pthread_key_create: %s", strerror(error));
            set_epoch(RECORD_IDLE);
            return;
        }
        end_key_made = true;
    }
    int error = is_child && !record_children ? EEXIST : create_own_file(is_child);
    if (error != 0) {
        if (error != EEXIST)
            say("nothing is recorded: cannot create %s: %s", path, strerror(error));
        set_epoch(RECORD_IDLE);
        return;
    }
    set_epoch(++last_epoch);
}

bool record_attach(void)
{
    struct record_thread *self = &record_thread;
    if (atomic_load(&record_process->epoch) == RECORD_IDLE)
        return false;
    int saved_errno = errno;
    self->inside++;
    if (atomic_load(&record_process->epoch) == 0)
        begin_process();
    uint64_t epoch = atomic_load(&record_process->epoch);
    bool on = epoch > RECORD_IDLE;
    if (on && self->epoch != epoch) {
        self->number = self->reserved != 0 ? self->reserved : record_reserve_thread();
        self->reserved = 0;
        self->ended = false;
        self->room = (struct record_room){NULL, NULL};
        self->epoch = epoch;
    }
    self->inside--;
    errno = saved_errno;
    return on;
}

uint32_t record_reserve_thread(void)
{
    uint32_t number = atomic_fetch_add(&record_process->threads, 1);
    atomic_store(&record_process->header->threads, number + 1);
    return number;
}

bool record_more_room(void)
{
    struct record_thread *self = &record_thread;
    struct record_process *process = record_process;
    int saved_errno = errno;
    bool found = false;
    self->inside++;
    lock();
    struct record_room old = self->room;
    if (self->number >> RAW_THREAD_BITS != 0) {
        stop_recording("number the threads in", EOVERFLOW);
    } else if (process->spares > 0) {
        self->room = process->spare[--process->spares];
        found = true;
    } else if (atomic_load(&process->epoch) == self->epoch) {
        found = begin_chunk(&self->room);
    }
    unlock();
    if (found)
        unmap_chunk(old);
    /* Armed again each time, because a thread may allocate after its end was first noted. */
    if (found && pthread_setspecific(end_key, self) != 0)
        say("the end of a thread is not recorded: no memory for pthread_setspecific");
    self->inside--;
    errno = saved_errno;
    return found;
}
