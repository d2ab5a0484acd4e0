/*
 * foreign_streams KIND FORKS: threads call libc functions that allocate under libc's own locks, while main forks. fork
 * takes those locks too, some of them after the allocator's. A child allocates and ends by _exit.
 *
 * KIND: flush    fflush(NULL) beside getline
 *       streams  fopen, fprintf, getline and fclose, beside fflush(NULL)
 *       cookie   fflush(NULL) of streams whose write function allocates
 *       names    getpwnam and getaddrinfo
 *       library  dlopen and dlclose
 *       locale   setlocale and newlocale
 *       spawn    posix_spawn, popen and system
 *       exit     main's children fork in threads, and meanwhile end by exit, which flushes such streams
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <locale.h>
#include <netdb.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/socket.h>

#include "foreign.h"

extern char **environ;

enum { LINE = 50000, LINE_UNBUFFERED = 2000 }; /* the latter is read byte by byte */

static char path[] = "streams-XXXXXX"; /* in the working folder */
static atomic_bool done;
static ssize_t line_length = LINE;
static atomic_uint rounds; /* of all threads, while main forks */

static void *read_lines(void *unbuffered)
{
    FILE *file = fopen(path, "r");

    if (!file || (unbuffered && setvbuf(file, NULL, _IONBF, 0)))
        fail("fopen");
    while (!atomic_load(&done)) {
        char *line = NULL;
        size_t size = 0;
        rewind(file);
        if (getline(&line, &size, file) != line_length + 1)
            fail("getline");
        free(line);
        atomic_fetch_add(&rounds, 1);
        usleep(20); /* otherwise no other thread would get the stream's lock */
    }
    fclose(file);
    return NULL;
}

static void *flush(void *unused)
{
    while (!atomic_load(&done)) {
        if (fflush(NULL))
            fail("fflush");
        atomic_fetch_add(&rounds, 1);
        usleep(50);
    }
    return unused;
}

static void *open_and_print(void *unused)
{
    while (!atomic_load(&done)) {
        char *text = NULL;
        size_t size = 0;
        FILE *file = fopen("/dev/null", "w"), *memory = open_memstream(&text, &size);
        if (!file || !memory)
            fail("fopen");
        fprintf(file, "%5000d %.300f", 1, 1e300);
        fprintf(memory, "%5000d", 1);
        fclose(file);
        fclose(memory);
        if (size != 5000)
            fail("open_memstream");
        free(text);
        atomic_fetch_add(&rounds, 1);
    }
    return unused;
}

static ssize_t write_and_allocate(void *cookie, const char *text, size_t size)
{
    (void)cookie;
    (void)text;
    use_all_sizes();
    return (ssize_t)size;
}

/* A stream that writes through a function of this program, under the stream's lock or the lock of all streams. */
static FILE *open_cookie(void)
{
    FILE *file = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = write_and_allocate });
    if (!file)
        fail("fopencookie");
    return file;
}

static void *write_cookies(void *unused)
{
    FILE *file = open_cookie();

    while (!atomic_load(&done)) {
        fputs("pending", file);
        if (fflush(NULL))
            fail("fflush");
        atomic_fetch_add(&rounds, 1);
        usleep(200);
    }
    fclose(file);
    return unused;
}

static void *look_up_names(void *unused)
{
    while (!atomic_load(&done)) {
        struct addrinfo *found = NULL, hints = { .ai_flags = AI_NUMERICHOST };
        struct passwd entry, *result = NULL;
        char buffer[2000];
        if (getpwnam_r("root", &entry, buffer, sizeof(buffer), &result) || !result)
            fail("getpwnam_r");
        if (getaddrinfo("127.0.0.1", "80", &hints, &found))
            fail("getaddrinfo");
        freeaddrinfo(found);
        setpwent();
        if (!getpwent())
            fail("getpwent");
        endpwent();
        atomic_fetch_add(&rounds, 1);
    }
    return unused;
}

static void *open_library(void *unused)
{
    while (!atomic_load(&done)) {
        void *library = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
        if (!library || dlsym(library, "no such name") || !dlerror() || dlclose(library))
            fail("dlopen");
        atomic_fetch_add(&rounds, 1);
    }
    return unused;
}

static void *change_locale(void *unused)
{
    while (!atomic_load(&done)) {
        locale_t made = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
        if (!made || !setlocale(LC_ALL, "C") || !setlocale(LC_ALL, "C.UTF-8"))
            fail("setlocale");
        freelocale(made);
        atomic_fetch_add(&rounds, 1);
    }
    return unused;
}

static void *start_programs(void *unused)
{
    static char *const quiet[] = { "true", NULL };

    while (!atomic_load(&done)) {
        pid_t pid = 0;
        int status = -1;
        if (posix_spawnp(&pid, "true", NULL, NULL, quiet, environ) || waitpid(pid, &status, 0) != pid || status)
            fail("posix_spawnp");
        FILE *pipe = popen("exec echo spoken", "r");
        char line[20];
        if (!pipe || !fgets(line, sizeof(line), pipe) || pclose(pipe))
            fail("popen");
        if (system("exit 0"))
            fail("system");
        atomic_fetch_add(&rounds, 1);
    }
    return unused;
}

struct kind {
    const char *name;
    void *(*threads[6])(void *);
};

static const struct kind kinds[] = {
    { "flush", { flush, read_lines, read_lines, read_lines } },
    { "streams", { flush, open_and_print, open_and_print, read_lines } },
    { "cookie", { write_cookies, write_cookies } },
    { "names", { look_up_names, look_up_names } },
    { "library", { open_library, open_library } },
    { "locale", { change_locale, change_locale } },
    { "spawn", { start_programs, start_programs } },
};

static void fork_and_allocate(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (unsigned i = 0; i < ALL_SIZES - 1; i++)
            free(malloc(size_number(i)));
        _exit(0);
    }
    expect_child(pid, "a child");
}

static void *fork_for_ever(void *unused)
{
    for (;;)
        fork_and_allocate();
    return unused;
}

static void *freed_at_exit;

static void at_exit(void)
{
    free(freed_at_exit);
    use_all_sizes();
}

static void end_in_the_midst(unsigned number)
{
    atexit(at_exit);
    freed_at_exit = malloc(1000);
    begin_thread(fork_for_ever, NULL);
    begin_thread(fork_for_ever, NULL);
    /* Unbuffered: glibc's exit takes a stream's buffer, without its lock if a thread keeps it, and getline fails. */
    begin_thread(read_lines, path);
    for (int i = 0; i < 50; i++)
        fputs("pending", open_cookie());
    while (atomic_load(&rounds) < 5 + number % 7)
        usleep(100);
    exit(0);
}

static void write_file(void)
{
    static char line[LINE + 2];
    int file = mkstemp(path);

    memset(line, 'x', LINE);
    line[line_length] = '\n';
    if (file < 0 || write(file, line, (size_t)line_length + 1) != line_length + 1 || close(file))
        fail("mkstemp");
}

static void fork_beside(const struct kind *kind, int forks)
{
    pthread_t threads[6];
    int count = 0;

    while (count < 6 && kind->threads[count]) {
        threads[count] = begin_thread(kind->threads[count], NULL);
        count++;
    }
    for (int i = 0; i < forks; i++)
        fork_and_allocate();
    while (atomic_load(&rounds) < 10)
        usleep(100);
    atomic_store(&done, true);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    const struct kind *kind = kinds;

    if (argc != 3)
        return 2;
    bool ends = strcmp(argv[1], "exit") == 0;
    if (ends)
        line_length = LINE_UNBUFFERED;
    write_file();
    if (ends) {
        for (unsigned i = 0; i < (unsigned)atoi(argv[2]); i++) {
            pid_t pid = fork();
            if (pid == 0)
                end_in_the_midst(i);
            expect_child(pid, "a child that ends by exit");
        }
    } else {
        while (strcmp(kind->name, argv[1]) != 0)
            if (++kind == kinds + sizeof(kinds) / sizeof(*kinds))
                return 2;
        fork_beside(kind, atoi(argv[2]));
    }
    unlink(path);
    puts("done");
    return 0;
}
