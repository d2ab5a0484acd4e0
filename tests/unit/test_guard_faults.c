/* Protects profile/guard.c: a touch of a guarded block's closed pages is reported, and the program goes on or ends.
 * Each test runs in a process of its own, and each touch is a real fault. */
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "front/guarded.h"
#include "front/process.h"
#include "options/options.h"
#include "os/os.h"
#include "os/unwind.h"
#include "pool/misuse.h"
#include "profile/guard.h"
#include "profile/profile.h"

enum { SLOTS = 16 };

#define CHECK(condition) ((condition) ? (void)0 : _exit(__LINE__ % 200 + 1))

static const struct guard_origin nowhere = { .class = CLASS_NONE };

static char *take(size_t size)
{
    char *block = guard_allocate(size, 1, &nowhere);

    CHECK(block != NULL);
    return block;
}

static void give(void *block)
{
    struct guard_origin origin;

    CHECK(guard_free(block, "free", &origin));
}

static void write_at(char *address)
{
    *(volatile char *)address = 1;
    __asm__ volatile("" : : : "memory");
}

static char read_at(const char *address)
{
    char found = *(volatile const char *)address;

    __asm__ volatile("" : : : "memory");
    return found;
}

static unsigned number_of(const void *address)
{
    return (unsigned)(((uintptr_t)address - guard.start) / guard.page / 2);
}

static void begin(bool goes_on)
{
    CHECK(process_init());
    hak_options.guard_slots = SLOTS; /* options were read just now */
    hak_options.abort_on_misuse = 1;
    hak_options.guard_continue = goes_on;
    CHECK(front_guard_set(1) == 0);
}

/* Runs the body in a child, which must end with status 0. Returns its messages. */
static const char *said_by(void (*body)(void))
{
    int status;

    capture_begin();
    status = status_of(body);
    const char *said = capture_end();
    if (status != 0)
        fail_msg("the child ended with status %d and said: %s", status, said);
    return said;
}

/* As said_by, for a body that a fault ends. */
static const char *said_before_end(void (*body)(void))
{
    capture_begin();
    int ended_by = signal_of(body);
    const char *said = capture_end();
    assert_int_equal(ended_by, SIGSEGV);
    return said;
}

/* ---- The program goes on ---- */

/* An error is reported once for each block, and the page stays open until its slot is used again. */
static void overflow(void)
{
    begin(true);
    char *block = take(guard.page);
    unsigned number = number_of(block);
    write_at(block + guard.page);
    CHECK(guard.reports == 1 && guard.open[number + 1] && !guard.open[number]);
    write_at(block + guard.page + 10); /* the page is open */
    write_at(block - 1);               /* and this one is closed: the block's error is known */
    CHECK(guard.reports == 1 && guard.open[number]);
    give(block);
    CHECK(!guard.open[number] && !guard.open[number + 1]);
    for (unsigned i = 0; i < SLOTS; i++) { /* the slot's next block can be in error again */
        block = take(guard.page);
        if (number_of(block) == number) {
            write_at(block + guard.page);
            CHECK(guard.reports == 2);
        }
        give(block);
    }
    CHECK(guard.reports == 2);
}

static void test_overflow(void **state)
{
    const char *said = said_by(overflow);

    (void)state;
    assert_int_equal(count_of(said, "hakmem: guard: write at "), 2);
    assert_int_equal(count_of(said, ", 0 bytes behind the end of a block of "), 2);
    assert_int_equal(count_of(said, "hakmem: guard: allocated by thread "), 2);
    assert_int_equal(count_of(said, "hakmem: guard: accessed by thread "), 2);
    assert_int_equal(count_of(said, "freed by"), 0);
}

static void after_free(void)
{
    begin(true);
    char *block = take(100);
    memset(block, 'x', 100);
    give(block);
    CHECK(read_at(block + 99) == 'x'); /* the contents stay for a program that goes on */
    CHECK(guard.reports == 1);
    CHECK(read_at(block) == 'x' && guard.reports == 1);
    CHECK(!guard.open[number_of(block)]); /* it is no guard page that was opened */
    give(take(100));
}

static void test_after_free(void **state)
{
    const char *said = said_by(after_free);

    (void)state;
    assert_has(said, "hakmem: guard: read at ");
    assert_has(said, ", at byte 99 of a block of 100 bytes at ");
    assert_has(said, " that was freed\n");
    assert_int_equal(count_of(said, "hakmem: guard: freed by thread "), 1);
}

/* A touch that is near no block is reported once in a process. */
static void near_no_block(void)
{
    begin(true);
    write_at((char *)guard.start);
    CHECK(guard.reports == 1);
    CHECK(read_at((char *)guard.start + 2 * 5 * guard.page) == 0);
    CHECK(guard.reports == 1);
    write_at(take(guard.page) + guard.page); /* a block's error is reported all the same */
    CHECK(guard.reports == 2);
}

static void test_near_no_block(void **state)
{
    const char *said = said_by(near_no_block);

    (void)state;
    assert_int_equal(count_of(said, ", near no block\n"), 1);
    assert_int_equal(count_of(said, "behind the end"), 1);
}

static char *block_to_open;

static void *open_soon(void *unused)
{
    usleep(50000);
    CHECK(mprotect(block_to_open, guard.page, PROT_READ | PROT_WRITE) == 0);
    return unused;
}

/* The slot was taken again after the fault: the access is repeated, and nothing is reported. */
static void inside(void)
{
    begin(false);
    for (unsigned i = 0; i < 2; i++) {
        pthread_t thread;
        block_to_open = (char *)base_align_down((uintptr_t)take(guard.page), guard.page);
        CHECK(mprotect(block_to_open, guard.page, PROT_NONE) == 0);
        CHECK(pthread_create(&thread, NULL, open_soon, NULL) == 0);
        if (i)
            write_at(block_to_open);
        else
            (void)read_at(block_to_open);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(guard.reports == 0);
}

static void test_inside(void **state)
{
    (void)state;
    assert_string_equal(said_by(inside), "");
}

/* ---- The program ends ---- */

static void overflow_ends(void)
{
    begin(false);
    write_at(take(guard.page) + guard.page);
}

static void after_free_ends(void)
{
    begin(false);
    char *block = take(100);
    give(block);
    (void)read_at(block);
}

static void execute_inside(void)
{
    begin(true);
    union {
        char *block;
        void (*code)(void);
    } code = { take(guard.page) };
    *code.block = (char)0xc3;
    code.code();
}

static void outside(void)
{
    begin(true);
    write_at(mmap(NULL, guard.page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

/* A fault in the middle of guarded blocks' own code must not wait for its own lock. */
static void under_the_lock(void)
{
    begin(true);
    char *block = take(guard.page);
    lock_acquire(&guard_lock);
    alarm(UNIT_HANG);
    write_at(block + guard.page);
}

static void under_the_report_lock(void)
{
    begin(true);
    char *block = take(guard.page);
    lock_acquire(&guard_report_lock);
    alarm(UNIT_HANG);
    write_at(block + guard.page);
}

static void test_ends(void **state)
{
    (void)state;
    assert_has(said_before_end(overflow_ends), "hakmem: guard: write at ");
    assert_has(said_before_end(after_free_ends), " that was freed\n");
    assert_string_equal(said_before_end(execute_inside), "");
    assert_string_equal(said_before_end(outside), "");
    assert_string_equal(said_before_end(under_the_lock), "");
    assert_string_equal(said_before_end(under_the_report_lock), "");
}

/* ---- Which block a touch counts for ---- */

/* A touch of the page between two blocks counts for the nearer one; if only one of the two slots was ever used, for its
 * block. */
static void between(void)
{
    begin(true);
    char *blocks[2] = { NULL, NULL }, *page;
    for (unsigned i = 0; i < 2; i++)
        blocks[i] = take(guard.page);
    CHECK(number_of(blocks[1]) == number_of(blocks[0]) + 1);
    page = blocks[0] + guard.page;
    CHECK(blocks[1] == page + guard.page);
    write_at(page + guard.page / 2 - 1); /* nearer to the first */
    CHECK(guard.reports == 1 && guard.slots[number_of(blocks[0])].reported);
    CHECK(!guard.slots[number_of(blocks[1])].reported);
    CHECK(mprotect(page, guard.page, PROT_NONE) == 0);
    write_at(page + guard.page / 2 + 1);
    CHECK(guard.reports == 2 && guard.slots[number_of(blocks[1])].reported);
    write_at(blocks[0] - 1); /* reported already */
    CHECK(guard.reports == 2);
    write_at((char *)guard.start + guard.bytes - 1); /* the last page: its block was never used */
    CHECK(guard.reports == 3);
}

static void test_between(void **state)
{
    const char *said = said_by(between);

    (void)state;
    assert_has(said, " bytes behind the end of a block of ");
    assert_has(said, " bytes before the start of a block of ");
    assert_int_equal(count_of(said, "near no block"), 1);
}

/* ---- Calls ---- */

/* The process ends after a wrong call, unless it is to go on. A wrong call within a report is not reported. */
static void condemned(void)
{
    begin(false);
    char *block = take(100);
    CHECK(misuse_culprit == 0);
    guard_misused(block + 1, "free");
    CHECK(misuse_culprit == os_thread_token());
    misuse_culprit = 0;
    hak_options.guard_continue = 1;
    guard_misused(block + 1, "free");
    CHECK(misuse_culprit == 0);
    hak_options.guard_continue = 0;
    hak_options.abort_on_misuse = 0;
    guard_misused(block + 1, "free");
    CHECK(misuse_culprit == 0 && guard.reports == 3);
    hak_options.abort_on_misuse = 1;
    lock_acquire(&guard_report_lock);
    guard_misused(block + 1, "free");
    lock_release(&guard_report_lock);
    CHECK(misuse_culprit == 0 && guard.reports == 3);
}

static void test_condemned(void **state)
{
    (void)state;
    assert_int_equal(count_of(said_by(condemned), "free("), 3);
}

/* ---- Stacks ---- */

/* Fills the stack below with ones, so that a word that is not set there is seen. */
static HAK_NOINLINE void dirty_stack(void)
{
    volatile char bytes[16384];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)-1;
}

static HAK_NOINLINE char *take_dirty(void)
{
    dirty_stack();
    return take(100);
}

/* The frames are those of the caller, and in front of them is the program's own site. */
static void stacks(void)
{
    static const char site[1];
    const struct guard_stack *stack;
    char *block;

    begin(true);
    block = take_dirty();
    stack = &guard.slots[number_of(block)].allocated;
    CHECK(stack->thread == os_thread_id() && stack->count > 2 && stack->count <= GUARD_FRAMES);
    CHECK(guard.slots[number_of(block)].freed.thread == 0);
    for (unsigned i = 0; i < stack->count; i++)
        CHECK(stack->frames[i] != (uintptr_t)site && stack->frames[i] > 4096);
    dirty_stack();
    give(block);
    stack = &guard.slots[number_of(block)].freed;
    CHECK(stack->thread == os_thread_id() && stack->count > 2 && stack->count <= GUARD_FRAMES);
    profile_site = site;
    block = take_dirty();
    stack = &guard.slots[number_of(block)].allocated;
    CHECK(stack->frames[0] == (uintptr_t)site && stack->count > 3);
    profile_set_busy(true); /* inside the profiler no stack is taken */
    block = take_dirty();
    stack = &guard.slots[number_of(block)].allocated;
    CHECK(stack->thread == os_thread_id() && stack->count == 0);
    profile_set_busy(false);
    CHECK(!profile_busy());
    give(take(100));
    CHECK(!profile_busy());
}

/* Takes a block below `depth` frames. */
static HAK_NOINLINE char *take_below(unsigned depth)
{
    volatile unsigned more = depth;
    char *block = more ? take_below(more - 1) : take_dirty();

    return more == depth ? block : NULL;
}

/* A stack ends with the thread's first frame, or after 24 frames. */
static void ends_of_stacks(void)
{
    struct unwind_frame frames[100];
    const struct guard_stack *stack;
    unsigned count;

    begin(true);
    count = os_unwind(frames, 100);
    CHECK(count > 2 && count < GUARD_FRAMES);
    stack = &guard.slots[number_of(take_below(0))].allocated;
    CHECK(stack->count < GUARD_FRAMES && stack->frames[stack->count - 1] == frames[count - 1].address - 1);
    CHECK(stack->frames[stack->count - 2] == frames[count - 2].address - 1);
    stack = &guard.slots[number_of(take_below(100))].allocated;
    CHECK(stack->count == GUARD_FRAMES);
    CHECK(stack->frames[GUARD_FRAMES - 1] == stack->frames[GUARD_FRAMES - 2]); /* take_below's call of itself */
}

static void test_stacks(void **state)
{
    (void)state;
    assert_string_equal(said_by(stacks), "");
    assert_string_equal(said_by(ends_of_stacks), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overflow), cmocka_unit_test(test_after_free), cmocka_unit_test(test_near_no_block),
        cmocka_unit_test(test_inside),   cmocka_unit_test(test_ends),       cmocka_unit_test(test_between),
        cmocka_unit_test(test_condemned), cmocka_unit_test(test_stacks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
