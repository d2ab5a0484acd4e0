/* Protects the walk of os/unwind.c by unwind tables: it reads the stack near its start without /proc/self/maps. */
#define _GNU_SOURCE
#include "support.h"

#include <alloca.h>
#include <pthread.h>
#include <stdlib.h>

#include "os/unwind.h"
#include "refused.h"

enum { DEPTH = 20, MOST = 100 };

static struct unwind_frame frames[MOST];
static unsigned count;

/* Calls itself, and then walks. The outermost call has `room` bytes of stack between it and the others. */
static __attribute__((noinline)) void descend(unsigned depth, size_t room)
{
    volatile char memory[room + 1];

    memory[0] = memory[room] = 1;
    if (depth > 0)
        descend(depth - 1, 0);
    else
        count = os_unwind(frames, MOST);
    __asm__ volatile("" : : "r"(memory) : "memory"); /* no tail call */
}

static size_t room_in_thread;

static void *descend_in_thread(void *unused)
{
    descend(DEPTH, room_in_thread);
    return unused;
}

/* Frames that a new thread's walk finds. */
static unsigned frames_with(size_t room)
{
    pthread_t thread;

    room_in_thread = room;
    count = 0;
    assert_int_equal(pthread_create(&thread, NULL, descend_in_thread, NULL), 0);
    pthread_join(thread, NULL);
    return count;
}

static void test_near_and_far(void **state)
{
    unsigned near;

    (void)state;
    assert_true(os_unwind_prepare(UNWIND_TABLES, false));
    near = frames_with(0);
    assert_in_range(near, DEPTH + 2, MOST - 1);
    assert_int_equal(frames_with(1 << 20), near);
    refusals[0] = (struct refusal){ SYS_openat, "/maps", EACCES, 0, 0 };
    assert_int_equal(frames_with(0), near);
    assert_in_range(frames_with(1 << 20), DEPTH - 2, near - 1);
    refuse_nothing();
}

/* A chain of frames on the stack, each with the next one's address and a return address. It ends at an address that is
 * no code, and where the next frame does not lie above.
 */
static void test_frame_pointers(void **state)
{
    uintptr_t chain[8] = { 0 };
    unsigned first = 4711;

    (void)state;
    assert_true(os_unwind_prepare(UNWIND_POINTERS, false));
    assert_false(os_unwind_by_tables());
    chain[0] = (uintptr_t)&chain[3];
    chain[1] = 0x401000;
    chain[3] = (uintptr_t)&chain[5];
    chain[4] = 0x402000;
    chain[6] = 4095;
    assert_int_equal(os_unwind_fault(0, (uintptr_t)chain, frames, MOST, &first), 2);
    assert_int_equal(first, 0);
    assert_true(frames[0].address == 0x401000 && frames[0].slot == &chain[1]);
    assert_true(frames[1].address == 0x402000 && frames[1].slot == &chain[4]);
    chain[6] = 4096;
    assert_int_equal(os_unwind_fault(0, (uintptr_t)chain, frames, MOST, &first), 3);
    assert_true(frames[2].address == 4096 && frames[2].slot == &chain[6]);
    assert_int_equal(os_unwind_fault(0, (uintptr_t)chain, frames, 2, &first), 2);
    chain[3] = (uintptr_t)chain;
    assert_int_equal(os_unwind_fault(0, (uintptr_t)chain, frames, MOST, &first), 2);
    assert_int_equal(os_unwind_fault(0, (uintptr_t)chain + 1, frames, MOST, &first), 0);
    assert_int_equal(os_unwind_fault(0, 4096, frames, MOST, &first), 0); /* nothing is mapped there */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_near_and_far),
                                        cmocka_unit_test(test_frame_pointers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
