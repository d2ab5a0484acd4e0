/* Protects os/fault.h: which faults are settled, and which handler of the program gets other faults. Each test runs in
 * a child, which ends with a status, or by the signal. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/fault.h"
#include "os/os.h"

#define CHECK(condition) ((condition) ? (void)0 : _exit(__LINE__ % 200 + 1))

static char *page; /* without access at first */
/* Volatile: the compiler does not know that an access runs a handler, which changes them. */
static volatile struct os_fault last;
static volatile int settled_count;
static char order[16];

static void open_page(int protection) { CHECK(mprotect(page, os_page_size(), protection) == 0); }
static void close_page(void) { open_page(PROT_NONE); }
static void after_access(void) { __asm__ volatile("" : : : "memory"); }

static void touch(void)
{
    *(volatile char *)page = 1;
    after_access();
}

static bool settle(const struct os_fault *fault)
{
    last = *fault;
    settled_count++;
    errno = EIO;
    open_page(fault->access == OS_ACCESS_EXECUTE ? PROT_READ | PROT_EXEC : PROT_READ | PROT_WRITE);
    return true;
}

static bool leave(const struct os_fault *fault)
{
    last = *fault;
    return false;
}

static void add_to_order(char letter) { order[strlen(order)] = letter; }

/* ---- Settled ---- */

static void settle_faults(void)
{
    CHECK(os_fault_take(settle) == 0);
    CHECK(os_fault_take(settle) == 0); /* the handler is in force: nothing changes */
    errno = 4711;
    ((volatile char *)page)[5] = 1;
    after_access();
    CHECK(errno == 4711 && settled_count == 1);
    CHECK(last.address == (uintptr_t)page + 5 && last.access == OS_ACCESS_WRITE && last.instruction != 0);
    close_page();
    CHECK(((volatile char *)page)[5] == 1);
    after_access();
    CHECK(settled_count == 2 && last.access == OS_ACCESS_READ && last.address == (uintptr_t)page + 5);
#if defined(__x86_64__)
    union {
        void *address;
        void (*function)(void);
    } code = { page };
    page[0] = (char)0xc3; /* ret */
    open_page(PROT_READ);
    code.function();
    CHECK(settled_count == 3 && last.access == OS_ACCESS_EXECUTE && last.address == (uintptr_t)page);
    CHECK(last.caller - (uintptr_t)settle_faults < 4096);
#endif
}

static void test_settled(void **state)
{
    (void)state;
    assert_int_equal(status_of(settle_faults), 0);
}

/* ---- Passed on to the system ---- */

static void leave_to_default(void)
{
    CHECK(os_fault_take(leave) == 0);
    touch();
}

static void leave_to_ignored(void)
{
    signal(SIGSEGV, SIG_IGN);
    CHECK(os_fault_take(leave) == 0);
    raise(SIGSEGV); /* sent, not met */
    raise(SIGSEGV);
    order[0] = 1;
    if (page[0] == order[0]) /* the system ignores no fault of an instruction */
        _exit(1);
}

static void sent_to_default(void)
{
    CHECK(os_fault_take(settle) == 0);
    raise(SIGSEGV);
    for (int i = 0; i < 1000; i++)
        usleep(1000);
}

static void test_defaults(void **state)
{
    (void)state;
    assert_int_equal(status_of(leave_to_default), 1000 + SIGSEGV);
    assert_int_equal(status_of(leave_to_ignored), 1000 + SIGSEGV);
    assert_int_equal(status_of(sent_to_default), 1000 + SIGSEGV);
}

static void ignore_sent(void)
{
    signal(SIGSEGV, SIG_IGN);
    CHECK(os_fault_take(settle) == 0);
    raise(SIGSEGV);
    CHECK(settled_count == 0);
    touch();
    CHECK(settled_count == 1);
}

static void test_ignored(void **state)
{
    (void)state;
    assert_int_equal(status_of(ignore_sent), 0);
}

/* ---- Passed on to the program ---- */

static volatile int expected_blocked, handled;

static void check_mask(void)
{
    sigset_t mask;

    CHECK(sigprocmask(SIG_BLOCK, NULL, &mask) == 0);
    CHECK(sigismember(&mask, SIGUSR1) == (expected_blocked & 1));
    CHECK(sigismember(&mask, SIGSEGV) == (expected_blocked >> 1));
    CHECK(!sigismember(&mask, SIGUSR2));
}

static void plain_handler(int number)
{
    CHECK(number == SIGSEGV);
    check_mask();
    handled++;
    open_page(PROT_READ | PROT_WRITE);
}

static void info_handler(int number, siginfo_t *info, void *context)
{
    CHECK(info->si_addr == page && context != NULL);
    plain_handler(number);
}

/* Both faults reach the handler, with its mask. */
static void pass_to(int flags)
{
    struct sigaction action = { .sa_flags = flags };

    sigaddset(&action.sa_mask, SIGUSR1);
    if (flags & SA_SIGINFO)
        action.sa_sigaction = info_handler;
    else
        action.sa_handler = plain_handler;
    expected_blocked = flags & SA_NODEFER ? 1 : 3;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    CHECK(os_fault_take(leave) == 0);
    for (int i = 1; i <= 2; i++) {
        touch();
        CHECK(handled == i);
        close_page();
    }
}

static void pass_plain(void) { pass_to(0); }
static void pass_info(void) { pass_to(SA_SIGINFO); }
static void pass_undeferred(void) { pass_to(SA_NODEFER); }
static void pass_once(void) { pass_to(SA_RESETHAND); }

static void test_handlers(void **state)
{
    (void)state;
    assert_int_equal(status_of(pass_plain), 0);
    assert_int_equal(status_of(pass_info), 0);
    assert_int_equal(status_of(pass_undeferred), 0);
    assert_int_equal(status_of(pass_once), 1000 + SIGSEGV); /* by the second fault */
}

/* ---- A handler in front of ours that passes faults back ---- */

static struct sigaction ours;

static void first_handler(int number)
{
    (void)number;
    add_to_order('1');
    open_page(PROT_READ | PROT_WRITE);
}

static void latest_handler(int number, siginfo_t *info, void *context)
{
    add_to_order('2');
    ours.sa_sigaction(number, info, context);
}

static void pass_back(void)
{
    struct sigaction latest = { .sa_sigaction = latest_handler, .sa_flags = SA_SIGINFO };

    signal(SIGSEGV, first_handler);
    CHECK(os_fault_take(leave) == 0);
    CHECK(sigaction(SIGSEGV, &latest, &ours) == 0);
    CHECK(os_fault_take(leave) == 0); /* ours is in front again */
    touch();
    CHECK(strcmp(order, "21") == 0);
    close_page();
    touch();
    CHECK(strcmp(order, "2121") == 0);
}

static void test_passed_back(void **state)
{
    (void)state;
    assert_int_equal(status_of(pass_back), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settled), cmocka_unit_test(test_defaults),    cmocka_unit_test(test_ignored),
        cmocka_unit_test(test_handlers), cmocka_unit_test(test_passed_back),
    };
    page = mmap(NULL, os_page_size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
