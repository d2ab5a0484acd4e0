/* Protects harden/sweep.h on the real system: a freed block is used again once no pointer to it is left, not before.
 *
 * Each test runs in a child with the sweep on. tests/process/hardening has the same for every place of a pointer.
 */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "front/fast.h"
#include "front/front.h"
#include "front/process.h"
#include "front/thread.h"
#include "harden/sweep.h"
#include "machine.h"
#include "pool/misuse.h"
#include "wrapped_syscall.h"

#define CHECK(condition) ((condition) ? (void)0 : failed(__LINE__, #condition))

static void failed(int line, const char *condition)
{
    dprintf(STDERR_FILENO, "test_sweep.c:%d: %s\n", line, condition);
    _exit(1);
}

static void in_child(void (*run)(void))
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        setenv("HAKMEM_HARDENED", "1", 1);
        setenv("HAKMEM_SWEEP", "1", 1);
        setenv("HAKMEM_SWEEP_MIN", "65536", 1);
        CHECK(process_init() && harden.sweep && thread_cache_get() != NULL);
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- Blocks ---- */

static size_t size;
static uintptr_t hidden; /* complement of the victim's address, which a sweep does not recognize */
static char *volatile held;

static __attribute__((noinline)) char *victim(void) { return (char *)~*(volatile uintptr_t *)&hidden; }
static __attribute__((noinline)) void make_victim(void) { hidden = ~(uintptr_t)front_malloc(size); }
static __attribute__((noinline)) void hold_victim(size_t offset) { held = victim() + offset; }
static __attribute__((noinline)) void free_victim(void) { front_free(victim()); }

/* Clears the stack below, where earlier calls left words. */
static __attribute__((noinline)) void wipe_stack(void)
{
    char wiped[16384];
    memset(wiped, 0, sizeof wiped);
    __asm__ volatile("" ::"r"(wiped) : "memory"); /* keeps the compiler from dropping it */
}

/* Whether blocks that are allocated and freed, as many as a few sweeps take, get memory of the victim's. */
static __attribute__((noinline)) bool is_reused(void)
{
    for (size_t done = 0; done < (size >= 65536 ? 400 * size : (size_t)48 << 20); done += size) {
        char *block = front_malloc(size);
        uintptr_t complement = ~(uintptr_t)block;
        CHECK(block != NULL);
        block[0] = 1;
        front_free(block);
        /* Read anew: a compiler may keep the victim's address instead. */
        if (complement - *(volatile uintptr_t *)&hidden + size - 1 < 2 * size - 1)
            return true;
    }
    return false;
}

/* Whether the victim is kept while there is a pointer, and used again when it is gone. */
static bool keeps_and_reuses(size_t offset)
{
    make_victim();
    hold_victim(offset);
    free_victim();
    wipe_stack();
    CHECK(!is_reused());
    held = NULL;
    wipe_stack();
    return is_reused();
}

/* A word somewhere may look like a pointer to one victim for good, so another one gets its chance. */
static void keep_and_reuse(void)
{
    static const size_t sizes[] = { 40, 3000, 20000, 100000 };

    for (size_t i = 0; i < 4; i++) {
        unsigned tries = 0;
        size = sizes[i];
        while (!keeps_and_reuses(tries % 2 ? size / 2 : 0))
            CHECK(++tries < 6);
    }
}

static void test_blocks(void **state)
{
    (void)state;
    in_child(keep_and_reuse);
}

/* Of the blocks of full slabs, a sweep keeps those that a pointer leads into, and no others. */
enum { MANY = 3000, POINTED = MANY / 3, SMALL = 48 };
static uintptr_t hidden_many[MANY];
static volatile uintptr_t pointers[POINTED];

static __attribute__((noinline)) void free_many(void)
{
    for (unsigned i = 0; i < MANY; i++)
        hidden_many[i] = ~(uintptr_t)front_malloc(SMALL);
    for (unsigned i = 0; i < POINTED; i++)
        pointers[i] = ~hidden_many[3 * i] + i % SMALL;
    for (unsigned i = 0; i < MANY; i++)
        front_free((void *)~hidden_many[i]);
}

/* The place in hidden_many of a block, or MANY. */
static unsigned place_of(uintptr_t complement)
{
    unsigned i = 0;

    while (i < MANY && hidden_many[i] != complement)
        i++;
    return i;
}

static void keep_each_of_many(void)
{
    unsigned again = 0;

    atomic_store(&sweep.trigger, SIZE_MAX); /* no sweep comes by itself */
    free_many();
    front_collect(false);
    wipe_stack();
    CHECK(sweep_make_room(thread_cache_get()->heap, 0));
    for (unsigned i = 0; i < 2 * MANY; i++) {
        unsigned place = place_of(~(uintptr_t)front_malloc(SMALL));
        CHECK(place == MANY || place % 3 != 0);
        again += place != MANY;
    }
    CHECK(again > MANY / 2);
}

static void test_each_of_many(void **state)
{
    (void)state;
    in_child(keep_each_of_many);
}

/* If pointers keep more than HAKMEM_SWEEP_KEEP allows, the sweep lets blocks go until no more than that waits. */
static uintptr_t *volatile pointed[MANY];

static void keep_no_more_than_allowed(void)
{
    enum { LARGE = 20000 };

    hak_options.sweep_keep = 1;
    atomic_store(&sweep.trigger, SIZE_MAX);
    for (unsigned i = 0; i < MANY; i++)
        CHECK((pointed[i] = front_malloc(LARGE)) != NULL);
    for (unsigned i = 0; i < MANY; i++)
        front_free(pointed[i]);
    front_collect(false);
    CHECK(sweep.waiting >= (size_t)MANY * LARGE);
    atomic_store(&sweep.trigger, 1);
    sweep_run(thread_cache_get()->heap);
    CHECK(sweep.yielded != 0 && sweep.waiting <= (size_t)MANY * LARGE / 2);
    CHECK(sweep.waiting != 0); /* those that it may keep */
}

static void test_keep_no_more(void **state)
{
    (void)state;
    in_child(keep_no_more_than_allowed);
}

/* ---- Huge blocks ---- */

enum { OTHERS = 40 }; /* more than the first table of huge blocks has room for */
static uintptr_t hidden_others[OTHERS];

static __attribute__((noinline)) bool is_mapped(uintptr_t complement)
{
    unsigned char present;
    return mincore((void *)~complement, 4096, &present) == 0 || errno != ENOMEM;
}

static __attribute__((noinline)) void make_others(void)
{
    for (unsigned i = 0; i < OTHERS; i++) {
        char *block = front_malloc(size + i * 100000);
        CHECK(block != NULL);
        block[0] = 1;
        hidden_others[i] = ~(uintptr_t)block;
    }
}

static __attribute__((noinline)) void free_others(void)
{
    for (unsigned i = 0; i < OTHERS; i++)
        front_free((char *)~hidden_others[i]);
}

/* The addresses of most blocks go back to the system, but not those of one that a pointer refers to. */
static void keep_and_unmap(void)
{
    unsigned gone = 0;

    size = 3000000;
    make_others();
    make_victim();
    hold_victim(size / 2);
    free_victim();
    free_others();
    wipe_stack();
    CHECK(!is_reused());
    CHECK(is_mapped(hidden));
    for (unsigned i = 0; i < OTHERS; i++)
        gone += !is_mapped(hidden_others[i]);
    CHECK(gone > OTHERS / 2);
}

static void test_huge_blocks(void **state)
{
    (void)state;
    in_child(keep_and_unmap);
}

/* A huge block that moves leaves its addresses to nobody while pointers to them are left. */
static void move_huge(void)
{
    char *volatile blocker, *moved;

    size = 3000000;
    make_victim();
    hold_victim(100);
    moved = victim();
    for (unsigned i = 0; i < 200 && moved == victim(); i++) {
        blocker = front_malloc(size);
        CHECK(blocker != NULL);
        moved = front_realloc(moved, size + (i + 1) * 4000000, "realloc");
        CHECK(moved != NULL);
    }
    if (moved == victim())
        return; /* it could always grow in place */
    blocker = moved = NULL;
    wipe_stack();
    CHECK(!is_reused());
    CHECK(is_mapped(hidden));
}

static void test_moved(void **state)
{
    (void)state;
    in_child(move_huge);
}

/* ---- Threads ---- */

static _Atomic int told, leave;

static void *hold_on_stack(void *unused)
{
    char *volatile mine = victim();

    (void)unused;
    atomic_store(&told, 1);
    while (!atomic_load(&leave))
        usleep(1000);
    return (void *)(uintptr_t)(mine == NULL);
}

static void another_thread(void)
{
    pthread_t thread;

    size = 500;
    make_victim();
    CHECK(pthread_create(&thread, NULL, hold_on_stack, NULL) == 0);
    while (!atomic_load(&told))
        usleep(1000);
    free_victim();
    wipe_stack();
    CHECK(!is_reused());
    atomic_store(&leave, 1);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void test_another_thread(void **state)
{
    (void)state;
    in_child(another_thread);
}

/* ---- How memory is read ---- */

enum { PAGE = 4096 };
static uintptr_t watched[2]; /* pages */
static unsigned copies[2];   /* calls that had the kernel copy them */

static bool look_at_call(long number, const long arguments[6])
{
    for (unsigned i = 0; number == SYS_process_vm_readv && i < 2; i++) {
        const struct iovec *remote = (const struct iovec *)arguments[3];
        copies[i] += watched[i] - (uintptr_t)remote->iov_base < remote->iov_len;
    }
    return true;
}

/* The kernel copies a page of a file: a process that shortens the file would make a read in place fault. Memory of no
 * file, which only this thread can unmap, is read in place.
 */
static void read_files_by_copy(void)
{
    int file = memfd_create("file", 0);
    char *of_file, *of_none;

    CHECK(file >= 0 && ftruncate(file, PAGE) == 0);
    of_file = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    of_none = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(of_file != MAP_FAILED && of_none != MAP_FAILED);
    of_file[0] = of_none[0] = 1;
    watched[0] = (uintptr_t)of_file;
    watched[1] = (uintptr_t)of_none;
    size = 200;
    make_victim();
    free_victim();
    front_collect(false);
    CHECK(sweep_make_room(thread_cache_get()->heap, 0));
    CHECK(sweep.sweeps == 1);
    CHECK(copies[0] == 1);
    CHECK(copies[1] == 0);
}

static void test_read_files_by_copy(void **state)
{
    (void)state;
    MACHINE_NEEDS(process_vm_readv);
    in_child(read_files_by_copy);
}

/* ---- Steps of a sweep ---- */

static struct heap *own_heap(void) { return thread_cache_get()->heap; }

/* Frees many blocks whose addresses nothing holds, up to the place where they wait for a sweep. */
static __attribute__((noinline)) void make_blocks_wait(void)
{
    static uintptr_t complements[3000];

    for (unsigned i = 0; i < 3000; i++)
        complements[i] = ~(uintptr_t)front_malloc(200);
    for (unsigned i = 0; i < 3000; i++)
        front_free((char *)~complements[i]);
    for (unsigned i = 0; i < 3; i++)
        complements[i] = ~(uintptr_t)front_malloc(100000);
    for (unsigned i = 0; i < 3; i++)
        front_free((char *)~complements[i]);
    front_collect(false);
    wipe_stack();
}

/* No sweep is due while the test counts waiting bytes. */
static void no_sweep_by_itself(void) { atomic_store(&sweep.trigger, SIZE_MAX); }

/* The child of a fork counts waiting blocks by bits: a thread of the parent may have set some and not counted them. */
static void count_anew(void)
{
    size_t waiting, blocks[CLASS_COUNT];

    no_sweep_by_itself();
    make_blocks_wait();
    waiting = sweep.waiting;
    CHECK(waiting >= 3000 * 200 + 300000);
    for (unsigned class = 0; class < CLASS_COUNT; class++)
        blocks[class] = atomic_exchange(&sweep.blocks[class], 7);
    CHECK(blocks[class_of_size(208)] == 3000);
    CHECK(blocks[class_of_size(100008)] == 3);
    atomic_store(&sweep.waiting, 4711);
    atomic_store(&sweep.running, true);
    sweep_reset_in_child();
    CHECK(sweep.waiting == waiting);
    CHECK(!sweep.running && sweep.sweeper == 0);
    for (unsigned class = 1; class < CLASS_COUNT; class++)
        CHECK(sweep.blocks[class] == blocks[class]);
}

static void test_count_anew(void **state)
{
    (void)state;
    in_child(count_anew);
}

/* Bytes that a sweep reads, with something to sweep. */
static uint64_t bytes_of_a_sweep(void)
{
    uint64_t before = sweep.scanned;

    no_sweep_by_itself(); /* the sweep before has set when the next is due */
    make_blocks_wait();
    CHECK(sweep_make_room(own_heap(), 0));
    return sweep.scanned - before;
}

/* A program that closes parts of its blocks to writes splits the SuperSlab's mapping. A sweep reads all of it once. */
static void scan_once(void)
{
    enum { SPANS = 24, SPAN = 200000 };
    static char *spans[SPANS];
    size_t page = os_page_size();
    uint64_t whole, split;

    no_sweep_by_itself();
    for (unsigned i = 0; i < SPANS; i++) {
        spans[i] = front_malloc(SPAN);
        CHECK(spans[i] != NULL);
        memset(spans[i], 1, SPAN);
    }
    (void)bytes_of_a_sweep();
    whole = bytes_of_a_sweep();
    CHECK(whole > (uint64_t)SPANS * SPAN);
    for (unsigned i = 0; i < SPANS; i++)
        CHECK(mprotect(spans[i] + page, page, PROT_READ) == 0); /* spans begin at a unit */
    split = bytes_of_a_sweep();
    CHECK(split < whole + whole / 4);
    for (unsigned i = 0; i < SPANS; i++) {
        CHECK(mprotect(spans[i] + page, page, PROT_READ | PROT_WRITE) == 0);
        front_free(spans[i]);
    }
}

/* A sweep leaves out pages of blocks that the program closed to reads, and finds a pointer in the page behind them. */
static void closed_by_the_program(void)
{
    enum { SPAN = 200000 };
    size_t page = os_page_size();
    char *span = front_malloc(SPAN);

    CHECK(span != NULL);
    memset(span, 1, SPAN);
    CHECK(mprotect(span + page, page, PROT_NONE) == 0); /* spans begin at a unit */
    size = 3000;
    make_victim();
    *(char **)(void *)(span + 2 * page) = victim();
    free_victim();
    wipe_stack();
    CHECK(!is_reused());
    CHECK(sweep.sweeps > 1);
    CHECK(mprotect(span + page, page, PROT_READ | PROT_WRITE) == 0);
    front_free(span);
}

static void test_closed_by_the_program(void **state)
{
    (void)state;
    in_child(closed_by_the_program);
}

static void test_scan_once(void **state)
{
    (void)state;
    in_child(scan_once);
}

/* A program may make pages of its blocks inaccessible, as guard pages. The sweep reads the others. */
static void closed_pages(void)
{
    enum { PAGES = 4 };
    size_t page = os_page_size();
    uintptr_t *blocks[3]; /* of a slab, and of spans */
    uint64_t before = 0;

    no_sweep_by_itself();
    for (unsigned i = 0; i < 3; i++) {
        blocks[i] = front_aligned_alloc(page, PAGES * page << (2 * i));
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, PAGES * page << (2 * i));
        CHECK(mprotect((char *)blocks[i] + page, page, PROT_NONE) == 0);
    }
    (void)bytes_of_a_sweep();
    before = bytes_of_a_sweep();
    for (unsigned i = 0; i < 3; i++)
        CHECK(mprotect((char *)blocks[i] + page, page, PROT_READ | PROT_WRITE) == 0);
    CHECK(bytes_of_a_sweep() >= before + 3 * page);
    for (unsigned i = 0; i < 3; i++)
        front_free(blocks[i]);
}

static void test_closed_pages(void **state)
{
    (void)state;
    in_child(closed_pages);
}

/* Of a slab with few live blocks, a sweep reads little more than these. */
static void live_blocks_alone(void)
{
    enum { BLOCKS = 12800, SIZE = 200, KEPT = 64 };
    static void *blocks[BLOCKS];
    uint64_t many, few;

    no_sweep_by_itself();
    for (unsigned i = 0; i < BLOCKS; i++)
        CHECK((blocks[i] = front_malloc(SIZE)) != NULL);
    (void)bytes_of_a_sweep();
    many = bytes_of_a_sweep();
    no_sweep_by_itself();
    for (unsigned i = 0; i < BLOCKS; i++)
        if (i % KEPT)
            front_free(blocks[i]);
    few = bytes_of_a_sweep();
    CHECK(many > few && many - few > (uint64_t)BLOCKS * SIZE * 9 / 10);
}

static void test_live_blocks_alone(void **state)
{
    (void)state;
    in_child(live_blocks_alone);
}

static long faults(void)
{
    struct rusage usage;

    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

/* A long span has no memory while it waits. Neither its free nor its next malloc reads or writes all of its pages. The
 * program writes so many that zeroing a span that keeps its memory would be the faster way. */
static void long_spans(void)
{
    enum { SPAN = 600000, WRITTEN = 300000, TURNS = 40, MOST = 16 /* of 147 pages */ };
    long before, freeing = 0, taking = 0;

    no_sweep_by_itself();
    for (int turn = 0; turn < TURNS; turn++) {
        char *span;
        before = faults();
        span = front_malloc(SPAN);
        CHECK(span != NULL);
        taking += faults() - before;
        memset(span, 1, WRITTEN);
        before = faults();
        front_free(span);
        freeing += faults() - before;
        span = NULL;
        if (turn % 10 == 9)
            CHECK(sweep_make_room(own_heap(), 0));
    }
    CHECK(freeing < (long)TURNS * MOST && taking < (long)TURNS * MOST);
}

static void test_long_spans(void **state)
{
    (void)state;
    in_child(long_spans);
}

/* Blocks that wait already are reported, also if they come twice in one batch. */
static void twice_in_one_batch(void)
{
    unsigned class = class_of_size(64);
    void *taken[8], *blocks[4];
    bool zero;

    no_sweep_by_itself();
    CHECK(heap_take_blocks(own_heap(), class, taken, 8, &zero) == 8);
    blocks[0] = taken[0];
    blocks[1] = taken[1];
    CHECK(sweep_wait(class, blocks, 2) && sweep.blocks[class] == 2);
    CHECK(atomic_load(&misuse_culprit) == 0);
    blocks[0] = taken[2];
    blocks[1] = taken[0];
    blocks[2] = taken[3];
    blocks[3] = taken[3];
    CHECK(sweep_wait(class, blocks, 4) && sweep.blocks[class] == 4);
    CHECK(atomic_load(&misuse_culprit) != 0);
}

static void test_twice_in_one_batch(void **state)
{
    (void)state;
    in_child(twice_in_one_batch);
}

/* Memory is out: the first call sweeps if anything waits, the second lets all leave, and there is no third way. */
static void make_room(void)
{
    size_t sweeps;

    no_sweep_by_itself();
    sweeps = sweep.sweeps;
    CHECK(sweep.waiting == 0);
    CHECK(sweep_make_room(own_heap(), 0));
    CHECK(sweep.sweeps == sweeps);
    make_blocks_wait();
    CHECK(sweep_make_room(own_heap(), 0));
    CHECK(sweep.sweeps == sweeps + 1);
    CHECK(sweep.released > 2000 && sweep.yielded == 0);
    no_sweep_by_itself();
    make_blocks_wait();
    CHECK(sweep_make_room(own_heap(), 1));
    CHECK(sweep.sweeps == sweeps + 1);
    CHECK(sweep.yielded >= 3000 && sweep.waiting == 0);
    CHECK(!sweep_make_room(own_heap(), 2));
}

static void test_make_room(void **state)
{
    (void)state;
    in_child(make_room);
}

static void *sleep_deaf(void *unused)
{
    uint64_t all = UINT64_MAX; /* glibc's sigfillset leaves two signals out */

    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof all);
    atomic_store(&told, 1);
    while (!atomic_load(&leave))
        usleep(1000);
    return unused;
}

static pthread_t start_deaf_thread(void)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, sleep_deaf, NULL) == 0);
    while (!atomic_load(&told))
        usleep(1000);
    return thread;
}

/* While a thread cannot be stopped, blocks leave only after two sweeps in a row that found no pointer. */
static void deaf_thread(void)
{
    pthread_t thread = start_deaf_thread();

    no_sweep_by_itself();
    make_blocks_wait();
    CHECK(sweep_make_room(own_heap(), 0));
    CHECK(sweep.sweeps_deaf == 1 && sweep.released == 0);
    CHECK(sweep_make_room(own_heap(), 0));
    CHECK(sweep.sweeps_deaf == 2 && sweep.released > 2000);
    atomic_store(&leave, 1);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void test_deaf_thread(void **state)
{
    (void)state;
    in_child(deaf_thread);
}

/* While a thread runs on, the kernel copies blocks. It is not asked for pages that cannot be read: it would refuse one
 * page after the other. */
static void no_copies_of_closed_pages(void)
{
    enum { SPAN = 200000 };
    pthread_t thread = start_deaf_thread();
    size_t page = os_page_size();
    char *span = front_malloc(SPAN);

    CHECK(span != NULL);
    memset(span, 1, SPAN);
    CHECK(mprotect(span + page, page, PROT_NONE) == 0); /* spans begin at a unit */
    no_sweep_by_itself();
    make_blocks_wait();
    watched[0] = (uintptr_t)span + page;
    watched[1] = (uintptr_t)span;
    CHECK(sweep_make_room(own_heap(), 0));
    CHECK(sweep.sweeps_deaf == 1);
    CHECK(copies[0] == 0);
    CHECK(copies[1] == 1);
    CHECK(mprotect(span + page, page, PROT_READ | PROT_WRITE) == 0);
    front_free(span);
    atomic_store(&leave, 1);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void test_no_copies_of_closed_pages(void **state)
{
    (void)state;
    MACHINE_NEEDS(process_vm_readv);
    in_child(no_copies_of_closed_pages);
}

/* A block that a thread without a quarantine freed waits alone. A long span keeps no memory, and counts less. */
static void wait_alone(void)
{
    static const size_t lone_sizes[] = { 200, 100000, 900000 };

    no_sweep_by_itself();
    for (size_t i = 0; i < 3; i++) {
        unsigned class = class_of_size(lone_sizes[i]);
        size_t before = sweep.waiting, cost = i == 2 ? class_size(class) / 16 : class_size(class);
        unsigned char present[256];
        char *block = NULL;
        bool zero;
        lock_acquire(&own_heap()->lock);
        CHECK(heap_take_blocks(own_heap(), class, (void **)&block, 1, &zero) == 1);
        lock_release(&own_heap()->lock);
        block[0] = 1;
        CHECK(sweep_wait_alone(class, block));
        CHECK(sweep.waiting == before + cost);
        CHECK(sweep.blocks[class] == 1);
        CHECK(mincore((void *)((uintptr_t)block & ~(uintptr_t)4095), 4096, present) == 0);
        CHECK((present[0] & 1) == (i != 2));
    }
    CHECK(sweep_make_room(own_heap(), 1));
    CHECK(sweep.waiting == 0);
}

static void test_wait_alone(void **state)
{
    (void)state;
    in_child(wait_alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_each_of_many),
        cmocka_unit_test(test_keep_no_more),
        cmocka_unit_test(test_huge_blocks),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_another_thread),
        cmocka_unit_test(test_read_files_by_copy),
        cmocka_unit_test(test_count_anew),
        cmocka_unit_test(test_scan_once),
        cmocka_unit_test(test_closed_pages),
        cmocka_unit_test(test_live_blocks_alone),
        cmocka_unit_test(test_long_spans),
        cmocka_unit_test(test_twice_in_one_batch),
        cmocka_unit_test(test_closed_by_the_program),
        cmocka_unit_test(test_make_room),
        cmocka_unit_test(test_deaf_thread),
        cmocka_unit_test(test_no_copies_of_closed_pages),
        cmocka_unit_test(test_wait_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
