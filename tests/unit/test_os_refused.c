/* Protects os/ when the system refuses a call or answers half of it, and the results of its small calls. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/file.h"
#include "os/os.h"
#include "os/process.h"
#include "refused.h"

static int begin(void **state)
{
    (void)state;
    refuse_nothing();
    errno = 4711;
    return 0;
}

/* ---- madvise ---- */

static int refused_advice[2]; /* they fail with EINVAL; 0: none */
static unsigned advised;      /* calls */

int __real_madvise(void *address, size_t size, int advice);
int __wrap_madvise(void *address, size_t size, int advice);
int __wrap_madvise(void *address, size_t size, int advice)
{
    advised++;
    if (advice != 0 && (advice == refused_advice[0] || advice == refused_advice[1])) {
        errno = EINVAL;
        return -1;
    }
    return __real_madvise(address, size, advice);
}

/* Memory that was unmapped is gone: another thread may have mapped something there, which nobody may purge. */
static void test_unmap_purges_nothing(void **state)
{
    size_t page = os_page_size();
    char *address = os_map(4 * page, page);

    (void)state;
    advised = 0;
    os_unmap(address, 4 * page);
    assert_int_equal(advised, 0);
    assert_int_equal(errno, 4711);
}

#ifndef UNIT_NOTHING_IS_LOCKED
/* Before Linux 5.18 locked memory can be purged only between munlock and mlock. */
static void test_purge_locked_by_an_old_kernel(void **state)
{
    enum { LOCKED_ADVICE = 24 }; /* MADV_DONTNEED_LOCKED */
    size_t page = os_page_size();
    char *address = os_map(2 * page, page);

    (void)state;
    memset(address, 1, 2 * page);
    assert_int_equal(mlock(address, 2 * page), 0);
    refused_advice[0] = LOCKED_ADVICE; /* the kernel itself refuses the ordinary advice for locked memory */
    assert_true(os_purge(address, 2 * page));
    assert_true(os_memory_is_locked());
    assert_int_equal(address[0] | address[page], 0);
    assert_int_equal(errno, 4711);

    /* Even between them the advice fails: the memory stays as it was. */
    memset(address, 1, 2 * page);
    refused_advice[1] = MADV_DONTNEED;
    assert_false(os_purge(address, 2 * page));
    assert_int_equal(address[0] & address[page], 1);
    assert_int_equal(errno, 4711);
    refused_advice[0] = refused_advice[1] = 0;
    os_unmap(address, 2 * page);
}
#endif

/* A kernel that does not know the advice is asked once. */
static void test_populate_unknown(void **state)
{
    enum { POPULATE = 23 }; /* MADV_POPULATE_WRITE */
    size_t page = os_page_size();
    char *address = os_map(page, page);

    (void)state;
    refused_advice[0] = POPULATE;
    assert_false(os_populate(address, page));
    refused_advice[0] = 0;
    assert_false(os_populate(address, page));
    assert_int_equal(errno, 4711);
    os_unmap(address, page);
}

/* ---- Numbers by chance ---- */

static void test_random_without_the_call(void **state)
{
    uint64_t seen[64], ones = 0, zeros = 0;

    (void)state;
    refusals[0] = (struct refusal){ .number = SYS_getrandom, .error = ENOSYS };
    for (unsigned i = 0; i < 64; i++) {
        seen[i] = os_random();
        for (unsigned k = 0; k < i; k++)
            assert_int_not_equal(seen[i], seen[k]);
        ones |= seen[i];
        zeros |= ~seen[i];
    }
    assert_int_equal(ones & zeros, UINT64_MAX); /* each bit was 0 and 1 */
    assert_int_equal(atomic_load(&calls_of[SYS_getrandom]), 2); /* once in a process: its key */
    assert_int_equal(errno, 4711);
}

/* ---- Files ---- */

static void test_write(void **state)
{
    int ends[2];
    char text[8] = { 0 };

    (void)state;
    assert_int_equal(pipe(ends), 0);
    refusals[0] = (struct refusal){ .number = SYS_write, .error = EINTR, .fails = 2 };
    assert_int_equal(os_file_write(ends[1], "begun", 5), 0);
    assert_int_equal(read(ends[0], text, sizeof text), 5);
    assert_string_equal(text, "begun");
    refusals[0] = (struct refusal){ .number = SYS_write, .error = ENOSPC, .fails = 1 };
    assert_int_equal(os_file_write(ends[1], "begun", 5), ENOSPC);
    assert_int_equal(os_file_write(ends[1], "", 0), 0);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(os_file_write(ends[1], "begun", 5), EBADF);
    assert_int_equal(errno, 4711);
}

/* A file that cannot be opened is reported at once. An open that a signal interrupts begins anew. */
static void test_create(void **state)
{
    int file;

    (void)state;
    assert_int_equal(os_file_create("/no-such-folder/file"), -ENOENT);
    assert_int_equal(os_file_append("/no-such-folder/file"), -ENOENT);
    assert_int_equal(errno, 4711);
    refusals[0] = (struct refusal){ SYS_openat, "/null", EINTR, 0, 2 };
    file = os_file_create("/dev/null");
    assert_true(file >= 0);
    assert_int_equal(refusals[0].error, 0);
    assert_int_equal(os_file_close(file), 0);
    assert_int_equal(errno, 4711);
}

static void test_close(void **state)
{
    int file = os_file_create("/dev/null");

    (void)state;
    assert_true(file >= 0);
    refusals[0] = (struct refusal){ .number = SYS_close, .error = EINTR, .fails = 1 };
    assert_int_equal(os_file_close(file), 0); /* Linux closes a file even if a signal interrupts it */
    assert_int_equal(os_file_close(file), 0);
    assert_int_equal(os_file_close(file), EBADF);
    assert_int_equal(errno, 4711);
}

static void test_names(void **state)
{
    char folder[] = "/tmp/hakmem-unit-XXXXXX", one[64], other[64];
    int file;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(one, sizeof one, "%s/one", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    errno = 4711;
    assert_int_equal(os_file_rename(one, other, true), ENOENT);
    for (int round = 0; round < 3; round++) {
        file = os_file_create(one);
        assert_int_equal(os_file_close(file), 0);
        assert_int_equal(os_file_rename(one, other, round == 2), round == 1 ? EEXIST : 0);
    }
    os_file_remove(one); /* there is none */
    assert_int_equal(errno, 4711);
    assert_int_equal(access(other, F_OK), 0);
    os_file_remove(other);
    assert_int_not_equal(access(other, F_OK), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* A file gets its name by its descriptor, or through /proc where the kernel wants a privilege for that. Without both it
 * gets none. */
static void test_nameless(void **state)
{
    char folder[] = "/tmp/hakmem-unit-XXXXXX", name[64];

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(name, sizeof name, "%s/name", folder);
    errno = 4711;
    for (int refused = 0; refused < 3; refused++) {
        int file = os_file_create_nameless(folder);
        if (file == -EOPNOTSUPP)
            skip(); /* the file system has no such files */
        assert_true(file >= 0);
        assert_int_equal(os_file_write(file, "bytes", 5), 0);
        refusals[0] = (struct refusal){ .number = SYS_linkat, .error = refused ? ENOENT : 0, .fails = refused };
        assert_int_equal(os_file_name(file, name), refused < 2 ? 0 : ENOENT);
        assert_int_equal(access(name, F_OK), refused < 2 ? 0 : -1);
        assert_int_equal(os_file_name(file, folder), EEXIST);
        assert_int_equal(os_file_close(file), 0);
        os_file_remove(name);
        errno = 4711;
    }
    assert_true(os_file_create_nameless("/no-such-folder") == -ENOENT);
    refusals[0] = (struct refusal){ SYS_openat, folder, EINTR, 0, 2 };
    assert_int_equal(os_file_close(os_file_create_nameless(folder)), 0);
    assert_int_equal(errno, 4711);
    assert_int_equal(rmdir(folder), 0);
}

static void test_error_texts(void **state)
{
    (void)state;
    assert_string_equal(os_error_text(ENOSPC), strerror(ENOSPC));
    assert_string_equal(os_error_text(EPERM), strerror(EPERM));
    assert_string_equal(os_error_text(EDQUOT), strerror(EDQUOT));
    assert_string_equal(os_error_text(123456), "an unknown error");
}

/* ---- Signals ---- */

static void test_signal_names(void **state)
{
    static const struct {
        const char *text;
        int number;
    } rows[] = {
        { "USR1", SIGUSR1 }, { "usr2", SIGUSR2 }, { "SIGHUP", SIGHUP }, { "sigpwr", SIGPWR }, { "10", 10 }, { "1", 1 },
        { "0", 0 }, { "", 0 }, { "SIG", 0 }, { "KILL", 0 }, { "SEGV", 0 }, { "USR12", 0 }, { "9", 0 }, { "19", 0 },
        { "1x", 0 }, { "1000", 0 }, { "100000000000", 0 }, { "-1", 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (os_signal_number(rows[i].text) != rows[i].number)
            fail_msg("%s is %d", rows[i].text, os_signal_number(rows[i].text));
    for (int number = SIGRTMAX; number <= SIGRTMAX + 1; number++) {
        char text[16];
        snprintf(text, sizeof text, "%d", number);
        assert_int_equal(os_signal_number(text), number == SIGRTMAX ? number : 0);
    }
}

static volatile sig_atomic_t taken;

static void on_taken(int number) { taken = number; }
static void on_info(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
}

/* Only a signal that the program leaves to the system is taken. */
static void test_signal_take(void **state)
{
    struct sigaction with_info = { .sa_sigaction = on_info, .sa_flags = SA_SIGINFO };

    (void)state;
    assert_int_equal(os_signal_take(SIGUSR1, on_taken), 0);
    raise(SIGUSR1);
    assert_int_equal(taken, SIGUSR1);
    assert_int_equal(os_signal_take(SIGUSR1, on_taken), EBUSY);
    signal(SIGUSR2, SIG_IGN);
    assert_int_equal(os_signal_take(SIGUSR2, on_taken), EBUSY);
    assert_int_equal(sigaction(SIGALRM, &with_info, NULL), 0);
    assert_int_equal(os_signal_take(SIGALRM, on_taken), EBUSY);
    assert_int_equal(os_signal_take(SIGKILL, on_taken), EINVAL);
    assert_int_equal(os_signal_take(-1, on_taken), EINVAL);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
    signal(SIGALRM, SIG_DFL);
    assert_int_equal(errno, 4711);
}

/* ---- Threads ---- */

static int refused_starts;
static size_t stack_of_start;
static _Atomic int ran;

static int start(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
    pthread_attr_getstacksize(attributes, &stack_of_start);
    if (refused_starts > 0) {
        refused_starts--;
        return EINVAL;
    }
    return pthread_create(thread, attributes, function, argument);
}

static void run_thread(void) { ran = 1; }

/* A library's static thread-local storage may need more than the usual stack; then a larger one serves. */
static void test_thread_with_a_larger_stack(void **state)
{
    size_t usual;

    (void)state;
    assert_true(os_thread_start(start, run_thread, "unit"));
    usual = stack_of_start;
    refused_starts = 1;
    assert_true(os_thread_start(start, run_thread, "unit"));
    assert_int_equal(stack_of_start, 16 * usual);
    refused_starts = 2;
    assert_false(os_thread_start(start, run_thread, "unit"));
    assert_int_equal(refused_starts, 0);
    assert_int_equal(errno, 4711);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_unmap_purges_nothing, begin),
#ifndef UNIT_NOTHING_IS_LOCKED
        cmocka_unit_test_setup(test_purge_locked_by_an_old_kernel, begin),
#endif
        cmocka_unit_test_setup(test_populate_unknown, begin),
        cmocka_unit_test_setup(test_random_without_the_call, begin),
        cmocka_unit_test_setup(test_write, begin),
        cmocka_unit_test_setup(test_create, begin),
        cmocka_unit_test_setup(test_close, begin),
        cmocka_unit_test_setup(test_names, begin),
        cmocka_unit_test_setup(test_nameless, begin),
        cmocka_unit_test_setup(test_error_texts, begin),
        cmocka_unit_test_setup(test_signal_names, begin),
        cmocka_unit_test_setup(test_signal_take, begin),
        cmocka_unit_test_setup(test_thread_with_a_larger_stack, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
