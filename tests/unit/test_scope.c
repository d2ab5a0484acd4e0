/* Protects scopes: whose blocks are whose, exact bytes, caps that no thread passes, and what becomes of the blocks. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "hakmem/scope.h"
#include "hakmem/stats.h"

/* In a slab, a span, a huge block. */
static const size_t sizes[] = { 0, 1, 100, 1024, 1025, 5000, 40000, 70000, 1000000, 1048577, 5000000 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* libhakmem-secure's blocks have a seal more. UNIT_SECURE: this is the test of that library. */
#ifndef UNIT_SECURE
#define UNIT_SECURE 0
#endif
enum { SEAL = UNIT_SECURE ? 8 : 0, HUGE_SEAL = UNIT_SECURE ? 65536 : 0 };

#if !UNIT_SECURE /* which never ignores misuse */
extern const char hakmem_options[];
const char hakmem_options[] = "ABORT_ON_MISUSE=0";
#endif

/* Emulated and checked threads are slow. */
enum { FEWER = HAK_THREAD_SANITIZER || UNIT_EMULATED ? 10 : 1 };

static struct hak_scope_stats stats_of(hak_scope_t *scope)
{
    struct hak_scope_stats stats;

    assert_int_equal(hak_scope_get(scope, &stats, sizeof stats), sizeof stats);
    return stats;
}

static size_t live(hak_scope_t *scope) { return stats_of(scope).live; }

static hak_scope_t *scope_in(hak_scope_t *parent, size_t cap)
{
    hak_scope_t *scope = hak_scope_new("tenant", parent, cap);

    assert_non_null(scope);
    return scope;
}

/* The bytes of a block are those that it can hold, or in libhakmem-secure those of its class or mapping. */
static void assert_bytes_of(size_t bytes, const void *block)
{
    size_t usable = hak_usable_size(block);

    if (!UNIT_SECURE)
        assert_int_equal(bytes, usable);
    assert_in_range(bytes, usable + SEAL, usable + usable / 4 + 2 * 65536);
}

static void enter(hak_scope_t *scope) { assert_int_equal(hak_scope_enter(scope), 0); }

static void test_names(void **state)
{
    static const char *const bad[] = { "", "a\"b", "a\\b", "a\nb", "\xc3\xa4",
                                       "123456789012345678901234567890123456789012345678" };
    hak_scope_t *scope = hak_scope_new("12345678901234567890123456789012345678901234567", NULL, 0);

    (void)state;
    assert_int_equal(strlen(stats_of(scope).name), HAK_SCOPE_NAME_MOST);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        errno = 0;
        assert_null(hak_scope_new(bad[i], NULL, 0));
        assert_int_equal(errno, EINVAL);
    }
    assert_null(hak_scope_new(NULL, NULL, 0));
    assert_int_equal(hak_scope_destroy(scope, (enum hak_scope_blocks)0), EINVAL);
    assert_int_equal(hak_scope_destroy(scope, HAK_SCOPE_FREE), 0);
    assert_int_equal(hak_scope_destroy(NULL, HAK_SCOPE_FREE), 0);
    assert_int_equal(hak_scope_get(NULL, NULL, 1000), 0);
    assert_string_equal(stats_of(NULL).name, "process");
}

/* What a thread allocates in a scope is the scope's, by any function, and counts with what it has. */
static void test_blocks(void **state)
{
    hak_scope_t *scope = scope_in(NULL, 0);
    void *blocks[SIZES * 4], *batch[3];
    size_t count = 0, bytes = 0, usable = 0;

    (void)state;
    enter(scope);
    assert_ptr_equal(hak_scope_current(), scope);
    for (size_t i = 0; i < SIZES; i++) {
        for (unsigned way = 0; way < 4; way++) {
            void *block = way == 0   ? hak_malloc(sizes[i])
                          : way == 1 ? hak_calloc(1, sizes[i])
                          : way == 2 ? hak_aligned_alloc(4096, sizes[i])
                                     : hak_realloc(hak_malloc(sizes[i] / 3), sizes[i] + 1);
            assert_bytes_of(live(scope) - bytes, block);
            bytes = live(scope);
            blocks[count++] = block;
        }
    }
    assert_int_equal(hak_malloc_batch(100, 3, batch), 3);
    hak_scope_leave(scope);
    assert_null(hak_scope_current());
    for (size_t i = 0; i < count; i++) {
        assert_non_null(blocks[i]);
        assert_ptr_equal(hak_scope_of(blocks[i]), scope);
        assert_null(hak_heap_of(blocks[i]));
        usable += hak_usable_size(blocks[i]);
        if (i % 4 == 1 && sizes[i / 4])
            assert_int_equal(((char *)blocks[i])[sizes[i / 4] - 1], 0);
        memset(blocks[i], 1, hak_usable_size(blocks[i]));
    }
    assert_bytes_of((live(scope) - bytes) / 3, batch[0]);
    assert_true(stats_of(scope).held >= bytes);
    assert_true(hak_scope_resident(scope) >= usable);
    assert_true(hak_scope_resident(scope) <= stats_of(scope).held * 33 / 32 + 2 * 65536);
    hak_free_batch(batch, 3);
    for (size_t i = 0; i < count; i++) {
        if (i % 2)
            enter(scope); /* from anywhere */
        hak_free(blocks[i]);
        hak_scope_leave(scope);
    }
    assert_int_equal(live(scope), 0);
    assert_true(stats_of(scope).peak >= bytes);
    assert_int_equal(hak_scope_destroy(scope, HAK_SCOPE_KEEP), 0);
}

/* realloc leaves a block in its scope, whoever calls it. What belongs to no scope comes into the caller's. */
static void test_moves(void **state)
{
    hak_scope_t *one = scope_in(NULL, 0), *other = scope_in(NULL, 0);

    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        size_t size = sizes[i] + 1;
        void *block, *plain = hak_malloc(100);
        enter(one);
        block = hak_malloc(size);
        hak_scope_leave(one);
        enter(other);
        block = hak_realloc(block, size * 3);
        assert_ptr_equal(hak_scope_of(block), one);
        assert_bytes_of(live(one), block);
        plain = hak_realloc(plain, 10000 + size);
        assert_ptr_equal(hak_scope_of(plain), other);
        hak_scope_leave(other);
        block = hak_realloc(block, size / 2 + 1);
        assert_ptr_equal(hak_scope_of(block), one);
        assert_bytes_of(live(one), block);
        assert_null(hak_realloc(block, 0));
        hak_free(plain);
        assert_int_equal(live(one) + live(other), 0);
    }
    hak_scope_destroy(one, HAK_SCOPE_FREE);
    hak_scope_destroy(other, HAK_SCOPE_FREE);
}

/* A cap refuses to the byte, for its scope alone, and a cap above counts what is below. A block that shrinks needs
 * nothing. */
static void test_caps(void **state)
{
    hak_scope_t *top = scope_in(NULL, 1000 * 1024), *left = scope_in(top, 0), *right = scope_in(top, 64 * 1024);
    void *blocks[2000], *huge, *plain[] = { hak_malloc(50000), hak_malloc(3000000) };
    size_t count = 0;

    (void)state;
    enter(right);
    while ((blocks[count] = hak_malloc(1024 - SEAL)) != NULL)
        count++;
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(count, 64);
    assert_int_equal(stats_of(right).refused, 1);
    enter(left);
    while ((blocks[count] = hak_malloc(1024 - SEAL)) != NULL)
        count++;
    assert_int_equal(count, 1000);
    assert_int_equal(live(top), 1000 * 1024);
    assert_null(hak_malloc(2000000));
    assert_null(hak_calloc(1, 2000000));
    assert_null(hak_aligned_alloc(4096, 1));
    assert_null(hak_realloc(blocks[999], 4096));
    for (unsigned i = 0; i < 2; i++) {
        memset(plain[i], 7, 1000);
        assert_non_null(plain[i] = hak_realloc(plain[i], 1000));
        assert_int_equal(((char *)plain[i])[999], 7);
    }
    assert_int_equal(live(top), 1000 * 1024);
    enter(NULL); /* the process has no such cap */
    hak_free(hak_malloc(2000000));
    blocks[0] = hak_realloc(blocks[0], 1);
    assert_ptr_equal(hak_scope_of(blocks[0]), right);
    hak_scope_leave(right); /* the three of them */
    assert_null(hak_scope_current());
    hak_scope_set_cap(top, 4 << 20);
    enter(left);
    huge = hak_malloc(2 << 20);
    assert_non_null(huge);
    assert_null(hak_realloc(huge, 5 << 20));
    assert_ptr_equal(hak_scope_of(huge), left);
    assert_int_equal(hak_expand(huge, 4 << 20), 0);
    hak_scope_leave(left);
    assert_int_equal(live(left), 936 * 1024 + (2 << 20) + HUGE_SEAL);
    for (size_t i = 0; i < count; i++)
        hak_free(blocks[i]);
    hak_free(huge);
    for (unsigned i = 0; i < 2; i++)
        hak_free(plain[i]);
    assert_int_equal(live(top), 0);
    assert_int_equal(hak_scope_destroy(top, HAK_SCOPE_FREE), EBUSY);
    assert_int_equal(hak_scope_destroy(left, HAK_SCOPE_FREE), 0);
    assert_int_equal(hak_scope_destroy(right, HAK_SCOPE_FREE), 0);
    assert_int_equal(hak_scope_destroy(top, HAK_SCOPE_FREE), 0);
}

struct told {
    unsigned times, inside;
    void *kept;
};

/* Frees, allocates and enters scopes, as a callback may. */
static void on_soft(hak_scope_t *scope, size_t bytes, void *argument)
{
    struct told *told = argument;

    assert_true(bytes > 10000);
    told->times++;
    assert_int_equal(told->inside++, 0); /* it is never called within itself */
    hak_free(hak_malloc(20000));
    enter(NULL);
    hak_free(hak_malloc(100));
    hak_scope_leave(NULL);
    assert_true(live(scope) > 10000);
    if (told->times == 2) {
        hak_free(told->kept);
        told->kept = hak_malloc(20000); /* passes the soft cap again */
        hak_free(told->kept);
        told->kept = NULL;
    }
    told->inside--;
}

static void test_soft(void **state)
{
    hak_scope_t *top = scope_in(NULL, 0), *below = scope_in(top, 0);
    struct told told = { 0, 0, NULL };
    void *block;

    (void)state;
    hak_scope_on_soft(top, 10000, on_soft, &told);
    enter(below);
    told.kept = hak_malloc(8000);
    assert_int_equal(told.times, 0);
    block = hak_malloc(8000);
    assert_int_equal(told.times, 1);
    hak_free(hak_malloc(8000)); /* still over */
    assert_int_equal(told.times, 1);
    hak_free(block);
    errno = 0;
    block = hak_malloc(8000);
    assert_int_equal(errno, 0);
    assert_int_equal(told.times, 2);
    assert_bytes_of(live(top), block);
    block = hak_realloc(block, 20000);
    assert_int_equal(told.times, 3);
    hak_free(block);
    block = hak_malloc(8000);
    block = hak_realloc(block, 8000000);
    assert_int_equal(told.times, 4);
    hak_free(block);
    hak_scope_on_soft(top, 4000000, on_soft, &told);
    block = hak_malloc(3000000);
    block = hak_realloc(block, 5000000); /* huge before and after */
    assert_int_equal(told.times, 5);
    hak_free(block);
    block = hak_malloc((size_t)100 << 40); /* more than there are addresses, but on some machines */
    if (block == NULL) {
        assert_int_equal(told.times, 5);
        assert_true(stats_of(top).peak < (size_t)100 << 40);
    }
    hak_free(block);
    hak_scope_leave(below);
    hak_scope_destroy(below, HAK_SCOPE_FREE);
    hak_scope_destroy(top, HAK_SCOPE_FREE);
}

/* Blocks that live on count above until they are freed, and the scope's memory serves again afterwards. */
static void test_destroy(void **state)
{
    hak_scope_t *top = scope_in(NULL, 0), *below = scope_in(top, 0);
    struct hak_scope_stats rows[8];
    void *kept[SIZES];
    size_t bytes;

    (void)state;
    enter(below);
    for (size_t i = 0; i < SIZES; i++)
        kept[i] = hak_malloc(sizes[i]);
    bytes = live(below);
    assert_int_equal(hak_scope_destroy(below, HAK_SCOPE_KEEP), EBUSY);
    hak_scope_leave(below);
    assert_int_equal(hak_scope_destroy(below, HAK_SCOPE_KEEP), 0);
    assert_int_equal(hak_scope_list(rows, sizeof rows[0], 8), 2);
    assert_int_equal(live(top), bytes);
    enter(top);
    assert_non_null(hak_malloc(100));
    assert_non_null(hak_malloc(3000000));
    hak_scope_leave(top);
    assert_int_equal(hak_scope_destroy(top, HAK_SCOPE_FREE), 0);
    assert_int_equal(hak_scope_list(rows, sizeof rows[0], 8), 2); /* both wait for the kept blocks */
    assert_int_equal(rows[0].closed + rows[1].closed, 2);
    for (size_t i = 0; i < SIZES; i++) {
        assert_null(hak_scope_of(kept[i]));
        kept[i] = hak_realloc(kept[i], sizes[i] * 2 + 100);
        memset(kept[i], 1, hak_usable_size(kept[i]));
        hak_free(kept[i]);
    }
    assert_int_equal(hak_scope_list(rows, sizeof rows[0], 8), 0);
}

/* A purge takes the pages between the blocks of a scope. */
static void test_pages_between(void **state)
{
    enum { BLOCKS = 1024, SIZE = 8192 - SEAL };
    static char *blocks[BLOCKS];
    hak_scope_t *scope = scope_in(NULL, 0);
    size_t before;

    (void)state;
    enter(scope);
    for (unsigned i = 0; i < BLOCKS; i++)
        memset(blocks[i] = hak_malloc(SIZE), 1, SIZE);
    before = hak_scope_resident(scope);
    assert_true(before >= (size_t)BLOCKS * SIZE);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (i % 7)
            hak_free(blocks[i]);
    hak_collect(true);
    assert_true(UNIT_EMULATED || hak_scope_resident(scope) < before / 3);
    for (unsigned i = 0; i < BLOCKS; i += 7)
        assert_true(blocks[i][0] == 1 && blocks[i][SIZE - 1] == 1);
    hak_scope_leave(scope);
    assert_int_equal(hak_scope_destroy(scope, HAK_SCOPE_FREE), 0);
}

static size_t metadata(void)
{
    struct hak_stats stats;

    hak_stats_get(&stats, sizeof stats);
    return stats.metadata;
}

/* Scopes leave nothing behind: the second thousand has the memory of the first. */
static void test_many(void **state)
{
    static hak_scope_t *many[1000 / FEWER];
    enum { MANY = sizeof many / sizeof many[0] };
    size_t before = 0;

    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < MANY; i++) {
            enter(many[i] = scope_in(i % 3 ? many[i - i % 3] : NULL, 0));
            assert_non_null(hak_malloc(100 + i));
            hak_scope_leave(many[i]);
        }
        for (unsigned i = MANY; i-- > 0;)
            assert_int_equal(hak_scope_destroy(many[i], HAK_SCOPE_FREE), 0);
        if (round == 1)
            before = metadata();
        if (round == 2)
            assert_true(metadata() <= before);
    }
}

/* What is no live block changes no figure, so a scope that is closed never ends before its last block. */
static void test_misuse(void **state)
{
    hak_scope_t *scope;
    struct hak_scope_stats row;
    char *blocks[3], *spans[2];

    (void)state;
    if (UNIT_SECURE)
        skip(); /* it aborts */
    enter(scope = scope_in(NULL, 100000));
    for (unsigned i = 0; i < 3; i++)
        blocks[i] = hak_malloc(1000);
    for (unsigned i = 0; i < 2; i++)
        spans[i] = hak_malloc(70000 / 2);
    hak_scope_leave(scope);
    assert_true(stats_of(scope).live == 3 * 1024 + 2 * hak_usable_size(spans[0]));
    for (unsigned i = 0; i < 5; i++) {
        hak_free(blocks[0]);
        hak_free(blocks[1] + 16);
        hak_free(spans[0]);
    }
    assert_true(stats_of(scope).live == 2 * 1024 + hak_usable_size(spans[1]));
    assert_int_equal(hak_scope_destroy(scope, HAK_SCOPE_KEEP), 0);
    hak_free(blocks[0]);
    hak_free(blocks[1]);
    hak_free(spans[1]);
    assert_int_equal(hak_scope_list(&row, sizeof row, 1), 1);
    assert_int_equal(row.live, 1024);
    hak_free(blocks[2]);
    assert_int_equal(hak_scope_list(NULL, sizeof row, 0), 0);
}

/* ---- Signals ---- */

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(HAK_WITH_THREAD_SANITIZER)
#define TRAP_FLAG 0x100u
static hak_scope_t *handlers;
static volatile unsigned steps, unlike;

static void on_step(int number)
{
    hak_scope_t *before = hak_scope_current();

    (void)number;
    steps++;
    unlike += hak_scope_enter(handlers) != 0 || hak_scope_current() != handlers;
    hak_scope_leave(handlers);
    unlike += hak_scope_current() != before;
}

/* A handler enters and leaves after each instruction of a thread that does so. */
static void test_steps(void **state)
{
    hak_scope_t *scope = scope_in(NULL, 0);
    void *outside[2], *inside;

    (void)state;
    handlers = scope_in(NULL, 0);
    hak_free(hak_malloc(100));
    enter(scope);
    hak_scope_leave(scope);
    signal(SIGTRAP, on_step);
    outside[0] = hak_malloc(100);
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | TRAP_FLAG);
    hak_scope_enter(scope);
    hak_scope_enter(NULL);
    hak_scope_leave(NULL);
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~(uint64_t)TRAP_FLAG);
    inside = hak_malloc(100);
    hak_free(outside[0]);
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | TRAP_FLAG);
    hak_scope_leave(scope);
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~(uint64_t)TRAP_FLAG);
    signal(SIGTRAP, SIG_DFL);
    assert_true(steps > 50);
    assert_int_equal(unlike, 0);
    assert_ptr_equal(hak_scope_of(inside), scope);
    outside[1] = hak_malloc(100);
    if (!UNIT_SECURE)
        assert_ptr_equal(outside[1], outside[0]); /* from the thread's cache */
    assert_null(hak_scope_of(outside[1]));
    hak_free(outside[1]);
    hak_free(inside);
    assert_int_equal(hak_scope_destroy(scope, HAK_SCOPE_FREE) | hak_scope_destroy(handlers, HAK_SCOPE_FREE), 0);
}
#endif

/* ---- Threads ---- */

static void *do_nothing(void *argument) { return argument; }

/* The first thread that a scope makes, and what HAKMEM makes with it, have nothing of the scope. */
static void test_thread_made_inside(void **state)
{
    hak_scope_t *scope = scope_in(NULL, 0);
    pthread_t thread;

    (void)state;
    enter(scope);
    assert_int_equal(pthread_create(&thread, NULL, do_nothing, NULL), 0);
    assert_ptr_equal(hak_scope_current(), scope);
    hak_scope_leave(scope);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(stats_of(scope).peak, 0);
    assert_int_equal(hak_scope_destroy(scope, HAK_SCOPE_FREE), 0);
}

#define THREADS 8u
#define THREAD_CAP (8u << 20)

static hak_scope_t *shared_top;
static _Atomic uint64_t passed; /* the cap was passed. Order: any */

/* Fills the scope until it refuses, then frees some and goes on. Blocks go to the neighbour, who frees them. */
static void *fill(void *argument)
{
    static void *_Atomic given[THREADS][256];
    unsigned self = *(unsigned *)argument, refused = 0;
    hak_scope_t *mine = hak_scope_new("thread", shared_top, THREAD_CAP / 2);
    void *kept[512] = { NULL };

    enter(mine);
    for (unsigned i = 0; i < 100000 / FEWER; i++) {
        unsigned at = i * 31 % 512;
        void *block = hak_malloc((i * 7919u) % 20000);
        refused += block == NULL;
        if (live(shared_top) > THREAD_CAP || live(mine) > THREAD_CAP / 2)
            atomic_fetch_add(&passed, 1);
        hak_free(kept[at]);
        kept[at] = block;
        if (i % 5 == 0) {
            hak_free(atomic_exchange(&given[(self + 1) % THREADS][at % 256], kept[at]));
            kept[at] = NULL;
        }
    }
    for (unsigned i = 0; i < 512; i++)
        hak_free(kept[i]);
    for (unsigned i = 0; i < 256; i++)
        hak_free(atomic_exchange(&given[self][i], NULL));
    assert_true(refused > 0);
    /* The thread ends in the scope. */
    return mine;
}

static void test_threads(void **state)
{
    pthread_t threads[THREADS];
    unsigned numbers[THREADS];
    void *scopes[THREADS];

    (void)state;
    shared_top = scope_in(NULL, THREAD_CAP);
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, fill, &numbers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], &scopes[i]), 0);
    assert_int_equal(passed, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(stats_of(scopes[i]).threads, 0);
        assert_int_equal(hak_scope_destroy(scopes[i], HAK_SCOPE_FREE), 0);
    }
    assert_int_equal(live(shared_top), 0);
    assert_int_equal(hak_scope_destroy(shared_top, HAK_SCOPE_FREE), 0);
}

#define RACE_BLOCKS 40u

static pthread_barrier_t race;
static void *race_blocks[RACE_BLOCKS];
static _Atomic bool race_over;

static void *free_half(void *argument)
{
    unsigned first = *(unsigned *)argument;

    for (;;) {
        pthread_barrier_wait(&race);
        if (race_over)
            return NULL;
        for (unsigned i = first; i < RACE_BLOCKS; i += 2)
            hak_free(race_blocks[i]);
        pthread_barrier_wait(&race);
    }
}

/* Scopes are closed while other threads free their last blocks, and their records serve others. Nothing is left. */
static void test_ends_race(void **state)
{
    hak_scope_t *root = scope_in(NULL, 0);
    struct hak_scope_stats rows[4];
    unsigned halves[2] = { 0, 1 };
    pthread_t threads[2];

    (void)state;
    pthread_barrier_init(&race, NULL, 3);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, free_half, &halves[i]), 0);
    for (unsigned round = 0; round < 3000 / FEWER; round++) {
        hak_scope_t *top = scope_in(root, 0), *below = scope_in(top, 0);
        for (unsigned i = 0; i < RACE_BLOCKS; i++) {
            enter(i % 3 ? below : top);
            race_blocks[i] = hak_malloc(i < 38 ? 100 * i : 1100000);
            hak_scope_leave(i % 3 ? below : top);
        }
        pthread_barrier_wait(&race);
        assert_int_equal(hak_scope_destroy(below, HAK_SCOPE_KEEP), 0);
        hak_scope_list(rows, sizeof rows[0], 4);
        assert_int_equal(hak_scope_destroy(top, HAK_SCOPE_KEEP), 0);
        pthread_barrier_wait(&race);
        assert_int_equal(hak_scope_list(rows, sizeof rows[0], 4), 1);
        assert_int_equal(live(root), 0);
    }
    race_over = true;
    pthread_barrier_wait(&race);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&race);
    assert_int_equal(hak_scope_destroy(root, HAK_SCOPE_FREE), 0);
}

static void test_depth(void **state)
{
    hak_scope_t *scope = scope_in(NULL, 0);

    (void)state;
    for (unsigned i = 0; i < HAK_SCOPES_MOST; i++)
        enter(i % 2 ? scope : NULL);
    assert_int_equal(hak_scope_enter(scope), E2BIG);
    hak_scope_leave(scope);
    assert_null(hak_scope_current());
    hak_thread_idle(); /* gives the cache up, and not the scopes */
    enter(scope);
    hak_thread_idle();
    hak_free(hak_malloc(100));
    hak_collect(true);
    assert_int_equal(stats_of(scope).threads, HAK_SCOPES_MOST / 2);
    for (unsigned i = 0; i < HAK_SCOPES_MOST; i++)
        hak_scope_leave(i % 2 ? NULL : scope);
    hak_scope_leave(scope);
    assert_null(hak_scope_current());
    assert_int_equal(hak_scope_destroy(scope, HAK_SCOPE_FREE), 0);
}

/* The child goes on in its scope, alone, with the cache that the thread had. */
static void test_fork(void **state)
{
    hak_scope_t *scope = scope_in(NULL, 0);
    void *before = hak_malloc(100), *block;
    int status;
    pid_t child;

    (void)state;
    enter(scope);
    block = hak_malloc(100);
    child = fork();
    if (child == 0) {
        bool good = hak_scope_current() == scope && stats_of(scope).threads == 1;
        hak_free(block);
        hak_free(before);
        hak_free(hak_malloc(5000));
        hak_scope_leave(scope);
        for (unsigned i = 0; i < 1000; i++)
            hak_free(hak_malloc(i));
        _exit(good && live(scope) == 0 && hak_scope_destroy(scope, HAK_SCOPE_FREE) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    hak_scope_leave(scope);
    assert_int_equal(hak_scope_destroy(scope, HAK_SCOPE_FREE), 0);
    hak_free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread_made_inside), /* the first one that makes threads */
#if defined(TRAP_FLAG)
        cmocka_unit_test(test_steps),
#endif
        cmocka_unit_test(test_misuse),    cmocka_unit_test(test_names),   cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_moves),     cmocka_unit_test(test_caps),    cmocka_unit_test(test_soft),
        cmocka_unit_test(test_destroy),   cmocka_unit_test(test_many),    cmocka_unit_test(test_threads),
        cmocka_unit_test(test_ends_race), cmocka_unit_test(test_depth),   cmocka_unit_test(test_fork),
        cmocka_unit_test(test_pages_between),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
