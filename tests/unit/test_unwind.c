/* Protects the walk by unwind tables: it must match libgcc's walk of the same stack. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unwind.h>

#include "os/unwind.h"
#include "os/unwind_tables.h"
#include "support.h"

#define MOST 200u

static uintptr_t stack_low, stack_high;

static bool anywhere(uintptr_t address) { return address >= 4096; }

static bool within(uintptr_t address) { return address >= stack_low && address < stack_high; }

struct walk {
    uintptr_t addresses[MOST];
    unsigned count;
};

static _Unwind_Reason_Code add(struct _Unwind_Context *context, void *argument)
{
    struct walk *walk = argument;

    if (walk->count == MOST || _Unwind_GetIP(context) == 0)
        return _URC_END_OF_STACK;
    walk->addresses[walk->count++] = _Unwind_GetIP(context);
    return _URC_NO_REASON;
}

/* Walks the stack twice. The walks match from this function's caller on, and each slot holds its return address. */
static __attribute__((noinline)) void compare(void)
{
    struct unwind_frame ours[MOST];
    struct walk theirs = { .count = 0 };
    unsigned count = os_tables_walk(ours, MOST, anywhere), left;

    _Unwind_Backtrace(add, &theirs);
    assert_true(count > 4);
    /* Each walk begins in this function, at another instruction. */
    left = count - 1;
    assert_int_equal(theirs.count - 1, left);
    for (unsigned i = 0; i < left; i++) {
        assert_int_equal(ours[count - left + i].address, theirs.addresses[theirs.count - left + i]);
        if (ours[count - left + i].slot)
            assert_int_equal(*ours[count - left + i].slot, ours[count - left + i].address);
    }
}

static __attribute__((noinline)) void descend(unsigned depth, size_t size)
{
    char space[size];
    volatile char *room = space;

    room[0] = 1;
    if (depth)
        descend(depth - 1, size * 2 % 1500 + 16);
    else
        compare();
    room[size - 1] = 2; /* prevents a tail call */
}

static void test_plain(void **state)
{
    (void)state;
    compare();
    descend(0, 16);
    descend(60, 100);
}

static int by_compare(const void *a, const void *b)
{
    static bool done;

    if (!done)
        descend(2, 40);
    done = true;
    return *(const int *)a - *(const int *)b;
}

static void test_through_libc(void **state)
{
    int numbers[] = { 4, 2, 9, 7, 1 };

    (void)state;
    qsort(numbers, 5, sizeof *numbers, by_compare);
    assert_int_equal(numbers[0], 1);
}

static void on_signal(int number)
{
    (void)number;
    descend(1, 50);
}

static void test_through_signals(void **state)
{
    static char other[65536];
    stack_t stack = { .ss_sp = other, .ss_size = sizeof other };

    (void)state;
    for (int flags = 0; flags <= 1; flags++) {
        struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags ? SA_ONSTACK : 0 };
        assert_int_equal(sigaltstack(&stack, NULL), 0);
        assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
        raise(SIGUSR1);
    }
}

/* The walk ends at memory that it may not read, and takes no frame from there. */
static void test_bounds(void **state)
{
    struct unwind_frame frames[MOST];
    unsigned all = os_tables_walk(frames, MOST, anywhere);

    (void)state;
    stack_low = (uintptr_t)frames;
    stack_high = (uintptr_t)frames[2].slot;
    if (frames[2].slot == NULL) /* a processor that signs return addresses */
        return;
    assert_true(os_tables_walk(frames, MOST, within) <= 2);
    stack_low = stack_high = 0;
    assert_true(os_tables_walk(frames, MOST, within) <= 1); /* at most the frame of a link register */
    assert_int_equal(os_tables_walk(frames, 3, anywhere), 3);
    assert_true(all >= 3);
}

/* Code as a compiler makes it at run time: without tables, but with a frame pointer. It calls its argument. */
static void (*make_code(void))(void (*)(void))
{
#if defined(__x86_64__)
    static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
#else
    static const uint32_t code[] = { 0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0 };
#endif
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    union {
        void *memory;
        void (*function)(void (*)(void));
    } made = { memory };

    assert_true(memory != MAP_FAILED);
    memcpy(memory, code, sizeof code);
    __builtin___clear_cache(memory, (char *)memory + sizeof code);
    assert_int_equal(mprotect(memory, 4096, PROT_READ | PROT_EXEC), 0);
    return made.function;
}

static struct unwind_frame through[MOST];
static unsigned through_count;

static __attribute__((noinline)) void walk_own(void) { through_count = os_tables_walk(through, MOST, anywhere); }
static __attribute__((noinline)) void walk_any(void) { through_count = os_unwind(through, MOST); }

/* Both the code and the frames behind it are found, by HAKMEM's walk and by the one that begins with libgcc's. */
static void test_through_code_without_tables(void **state)
{
    void (*const walks[])(void) = { walk_own, walk_any };
    void (*code)(void (*)(void)) = make_code();

    (void)state;
    assert_true(os_unwind_prepare(UNWIND_TABLES, false));
    for (unsigned i = 0; i < 2; i++) {
        struct unwind_frame direct[MOST];
        unsigned count, behind = 0;

        walks[i]();
        count = through_count;
        memcpy(direct, through, sizeof direct);
        code(walks[i]);
        while (through[behind].address - (uintptr_t)code >= 4096)
            assert_true(++behind < through_count);
        assert_false(os_tables_have(through[behind].address));
        assert_true(os_tables_have(through[behind + 1].address));
        /* Behind this function the frames are the same. */
        for (unsigned k = 1; k < through_count - behind - 1; k++)
            assert_int_equal(through[through_count - k].address, direct[count - k].address);
        assert_true(through_count - behind > 4); /* cmocka's frames, and main's */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_through_libc),
        cmocka_unit_test(test_through_signals),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_through_code_without_tables),
    };
    if (!os_tables_can())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
