/* The operations of the target `calls`. calls_do's table gives their numbers, on which the corpus depends. */
#define _GNU_SOURCE
#include "calls.h"

#include <fcntl.h>
#include <hakmem/profile.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "differential.h"
#include "os/fake.h"

enum { RUN_MOST = 256, LIVE_MOST = 64 << 20, MILLISECOND = 1000000 };

/* ---- The arguments of an operation ---- */

static void tell(const char *what, size_t value)
{
    if (calls.told)
        fprintf(stderr, "    %s %zu\n", what, value);
}

static unsigned take(void)
{
    unsigned value = fuzz_take(&calls.input);

    tell("byte", value);
    return value;
}

static struct calls_slot *take_slot(void)
{
    size_t index = fuzz_take(&calls.input) * (CALLS_SLOTS / 256) + calls.step % (CALLS_SLOTS / 256);

    tell("slot", index);
    if (calls.slots[index].block.start != NULL)
        tell("    in use, of", calls.slots[index].block.size);
    return &calls.slots[index];
}

/* Near a power of two up to 16 MiB, mostly to 128 KiB, or between two powers. Small once much memory is live. */
static size_t take_size(void)
{
    unsigned scale = fuzz_take(&calls.input), fraction = fuzz_take(&calls.input);
    size_t power = (size_t)1 << (scale % 32 < (scale >= 192 ? 25 : 18) ? scale % 32 : scale % 12);
    size_t size = power + power / 256 * fraction + (power < 256 ? fraction % power : 0) + scale / 32;

    size = size > 3 ? size - 3 : size - 1;
    size = block_live_bytes() + size <= LIVE_MOST ? size : size % KIB;
    tell("size", size);
    return size;
}

static size_t take_alignment(void)
{
    unsigned scale = take();

    return (size_t)1 << (scale < 224 ? scale % 14 : scale % 23);
}

static hak_heap_t *take_heap(unsigned *index)
{
    *index = take() % CALLS_HEAPS;
    return calls.heaps[*index];
}

/* ---- Judging ---- */

/* Returns whether there is a block. A refusal must have a cause in the input. */
static bool granted(const void *start, const char *what, size_t size)
{
    if (start != NULL)
        return true;
    CHECK(errno == ENOMEM, "step %u: %s of %zu bytes sets errno %d", calls.step, what, size, errno);
    CHECK(calls.limited || calls.failing, "step %u: %s of %zu bytes is refused", calls.step, what, size);
    calls.steps_failed++;
    return false;
}

static void adopt(struct calls_slot *slot, void *start, size_t size, size_t alignment, enum calls_origin origin)
{
    hak_heap_t *home = hak_heap_of(start);

    slot->origin = origin;
    slot->heap = CALLS_NO_HEAP;
    for (int i = 0; i < CALLS_HEAPS; i++)
        if (home != NULL && calls.heaps[i] == home)
            slot->heap = i;
    CHECK((slot->heap == CALLS_NO_HEAP) == (home == NULL), "step %u: %p is in heap %p, which there is not", calls.step,
          start, (void *)home);
    block_adopt(&slot->block, start, size, alignment,
                calls.step * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(slot - calls.slots));
}

static void adopt_new(struct calls_slot *slot, void *start, size_t size, size_t alignment, enum calls_origin origin,
                      int heap)
{
    adopt(slot, start, size, alignment, origin);
    CHECK(slot->heap == heap, "step %u: a new block of heap %d is in heap %d", calls.step, heap, slot->heap);
}

void calls_free(struct calls_slot *slot)
{
    if (slot->block.start == NULL)
        return;
    errno = 1234;
    hak_free(block_release(&slot->block));
    CHECK(errno == 1234, "step %u: free changed errno", calls.step);
}

/* ---- Allocating ---- */

static void do_malloc(void)
{
    struct calls_slot *slot = take_slot();
    size_t size = take_size(), good = hak_good_size(size);

    calls_free(slot);
    void *start = hak_malloc(size);
    if (!granted(start, "malloc", size))
        return;
    adopt_new(slot, start, size, 1, CALLS_PLAIN, CALLS_NO_HEAP);
    CHECK(slot->block.usable == good || ((calls.overflows || calls.limited) && slot->block.usable > good),
          "step %u: good size of %zu is %zu, the block's usable size %zu", calls.step, size, good, slot->block.usable);
}

static void do_calloc(void)
{
    struct calls_slot *slot = take_slot();
    size_t size = take_size(), count = 1 + take() % 4;

    calls_free(slot);
    void *start = hak_calloc(count, size / count);
    if (!granted(start, "calloc", size))
        return;
    block_check_zero(start, size / count * count);
    adopt_new(slot, start, size / count * count, 1, CALLS_PLAIN, CALLS_NO_HEAP);
}

static void do_aligned(void)
{
    struct calls_slot *slot = take_slot();
    size_t alignment = take_alignment(), size = take_size();

    calls_free(slot);
    void *start = hak_aligned_alloc(alignment, size);
    if (granted(start, "aligned_alloc", size))
        adopt_new(slot, start, size, alignment, CALLS_ALIGNED, CALLS_NO_HEAP);
}

static void do_posix_memalign(void)
{
    struct calls_slot *slot = take_slot();
    size_t alignment = take_alignment() * sizeof(void *), size = take_size();
    void *start = NULL;

    calls_free(slot);
    errno = 77;
    int result = hak_posix_memalign(&start, alignment, size);
    CHECK(errno == 77 && (result == 0) == (start != NULL), "step %u: posix_memalign gives %d, %p, errno %d", calls.step,
          result, start, errno);
    errno = result;
    if (granted(start, "posix_memalign", size))
        adopt_new(slot, start, size, alignment, CALLS_OTHER, CALLS_NO_HEAP);
}

/* Allocates as many blocks of one size as the input says, in consecutive slots. */
static void do_fill_run(void)
{
    struct calls_slot *slot = take_slot();
    size_t size = take_size(), count = 1 + take();

    for (; count > 0 && slot < calls.slots + CALLS_SLOTS; count--, slot++) {
        if (slot->block.start != NULL || block_live_bytes() + size > LIVE_MOST)
            continue;
        void *start = hak_malloc(size);
        if (granted(start, "malloc", size))
            adopt_new(slot, start, size, 1, CALLS_PLAIN, CALLS_NO_HEAP);
    }
}

static void do_malloc_batch(void)
{
    struct calls_slot *slot = take_slot();
    size_t size = take_size(), wanted = 1 + take(), used = 0;
    void *starts[RUN_MOST];

    if (size > 64 * KIB)
        size %= 64 * KIB;
    errno = 0;
    size_t got = hak_malloc_batch(size, wanted, starts);
    CHECK(got <= wanted, "step %u: a batch of %zu has %zu", calls.step, wanted, got);
    if (got < wanted)
        (void)granted(NULL, "malloc_batch", size);
    for (; used < got && slot < calls.slots + CALLS_SLOTS; slot++)
        if (slot->block.start == NULL)
            adopt_new(slot, starts[used++], size, 1, CALLS_PLAIN, CALLS_NO_HEAP);
    hak_free_batch(starts + used, got - used);
}

/* ---- Freeing ---- */

static void do_free(void)
{
    calls_free(take_slot());
}

static void do_free_sized(void)
{
    struct calls_slot *slot = take_slot();
    size_t size = slot->block.size, alignment = slot->block.alignment;

    if (slot->block.start == NULL)
        hak_free_sized(NULL, take());
    else if (slot->heap != CALLS_NO_HEAP || slot->origin == CALLS_OTHER)
        calls_free(slot);
    else if (slot->origin == CALLS_PLAIN)
        hak_free_sized(block_release(&slot->block), size);
    else
        hak_free_aligned_sized(block_release(&slot->block), alignment, size);
}

static void do_free_run(void)
{
    struct calls_slot *slot = take_slot();
    unsigned count = 1 + take(), stride = 1 + take() % 8;

    for (; count > 0 && slot < calls.slots + CALLS_SLOTS; count--, slot += stride)
        calls_free(slot);
}

static void do_free_batch(void)
{
    struct calls_slot *slot = take_slot();
    size_t count = 1 + take();
    void *starts[RUN_MOST] = { NULL }, *kept[RUN_MOST];

    for (size_t i = 0; i < count && slot + i < calls.slots + CALLS_SLOTS; i++)
        starts[i] = slot[i].block.start == NULL ? NULL : block_release(&slot[i].block);
    memcpy(kept, starts, sizeof kept);
    hak_free_batch(starts, count);
    CHECK(memcmp(kept, starts, sizeof kept) == 0, "step %u: free_batch changed its array", calls.step);
}

/* ---- Resizing ---- */

/* By realloc or reallocarray, which may take the block out of its heap, or by heap_realloc into `heap`. A refused call
 * leaves the block unchanged. */
static void resize(struct calls_slot *slot, size_t size, bool array, hak_heap_t *heap, int index)
{
    struct calls_slot old = *slot;
    void *start;

    if (old.block.start != NULL)
        block_release(&slot->block);
    if (heap != NULL)
        start = hak_heap_realloc(heap, old.block.start, size);
    else
        start = array ? hak_reallocarray(old.block.start, 1, size) : hak_realloc(old.block.start, size);
    if (size == 0 && old.block.start != NULL) {
        CHECK(start == NULL, "step %u: realloc to 0 gives a block", calls.step);
        return;
    }
    if (!granted(start, "realloc", size)) {
        if (old.block.start != NULL) {
            block_verify_at(&old.block, old.block.start, old.block.usable);
            adopt_new(slot, old.block.start, old.block.size, old.block.alignment, old.origin, old.heap);
        }
        return;
    }
    if (old.block.start != NULL)
        block_verify_at(&old.block, start, size < old.block.usable ? size : old.block.usable);
    adopt(slot, start, size, 1, CALLS_PLAIN);
    bool stays = old.block.start != NULL && (heap == NULL || old.block.start == start);
    CHECK(slot->heap == index || (stays && slot->heap == old.heap),
          "step %u: realloc for heap %d gives a block of heap %d", calls.step, index, slot->heap);
}

static void do_realloc(void)
{
    struct calls_slot *slot = take_slot();

    resize(slot, take_size(), false, NULL, CALLS_NO_HEAP);
}

static void do_reallocarray(void)
{
    struct calls_slot *slot = take_slot();

    resize(slot, take_size(), true, NULL, CALLS_NO_HEAP);
}

/* Grows by up to 127 bytes, like a string, or by up to about its own size, like a vector. */
static void do_grow(void)
{
    struct calls_slot *slot = take_slot();
    unsigned by = take();
    size_t usable = slot->block.start == NULL ? 1 : slot->block.usable;

    if (block_live_bytes() + usable < LIVE_MOST)
        resize(slot, by < 128 ? usable + by : usable + usable / 128 * (by - 127), false, NULL, CALLS_NO_HEAP);
}

static void do_expand(void)
{
    struct calls_slot *slot = take_slot(), old;
    unsigned by = take();

    if (slot->block.start == NULL) {
        CHECK(hak_expand(NULL, by) == 0, "step %u: expand of NULL", calls.step);
        return;
    }
    old = *slot;
    size_t size = by < 128 ? old.block.usable / 128 * by : old.block.usable + old.block.usable / 64 * (by - 127);
    if (size > old.block.usable && block_live_bytes() + size > LIVE_MOST)
        return;
    block_release(&slot->block);
    size_t usable = hak_expand(old.block.start, size), now = hak_usable_size(old.block.start);
    CHECK(usable == 0 || usable >= size, "step %u: expand to %zu gives %zu", calls.step, size, usable);
    CHECK(now == (usable == 0 ? old.block.usable : usable), "step %u: expand from %zu to %zu gives %zu, usable %zu",
          calls.step, old.block.usable, size, usable, now);
    block_verify_at(&old.block, old.block.start, now < old.block.usable ? now : old.block.usable);
    adopt_new(slot, old.block.start, usable == 0 ? old.block.size : size, old.block.alignment,
              usable == 0 ? old.origin : CALLS_OTHER, old.heap);
}

/* ---- First-class heaps ---- */

void calls_destroy_heap(unsigned index)
{
    for (size_t i = 0; i < CALLS_SLOTS; i++)
        if (calls.slots[i].block.start != NULL && calls.slots[i].heap == (int)index)
            block_release(&calls.slots[i].block);
    hak_heap_destroy(calls.heaps[index]);
    calls.heaps[index] = NULL;
}

static void do_heap_new(void)
{
    unsigned index;

    if (take_heap(&index) != NULL)
        return;
    hak_heap_t *heap = hak_heap_new();
    if (granted(heap, "heap_new", 0))
        calls.heaps[index] = heap;
}

static void do_heap_destroy(void)
{
    unsigned index;

    (void)take_heap(&index);
    calls_destroy_heap(index);
}

/* Allocates as many blocks of one size in the heap as the input says. */
static void do_heap_fill(void)
{
    unsigned index, way = take();
    hak_heap_t *heap = take_heap(&index);
    struct calls_slot *slot = take_slot();
    size_t size = take_size(), alignment = way % 3 == 1 ? take_alignment() : 1, count = 1 + take() % 64;

    for (; heap != NULL && count > 0 && slot < calls.slots + CALLS_SLOTS; count--, slot++) {
        void *start;
        if (slot->block.start != NULL || block_live_bytes() + size > LIVE_MOST)
            continue;
        if (way % 3 == 0)
            start = hak_heap_malloc(heap, size);
        else if (way % 3 == 1)
            start = hak_heap_aligned_alloc(heap, alignment, size);
        else
            start = hak_heap_calloc(heap, 1, size);
        if (!granted(start, "heap_malloc", size))
            continue;
        if (way % 3 == 2)
            block_check_zero(start, size);
        adopt_new(slot, start, size, alignment, way % 3 == 1 ? CALLS_ALIGNED : CALLS_PLAIN, (int)index);
    }
}

static void do_heap_realloc(void)
{
    unsigned index;
    hak_heap_t *heap = take_heap(&index);
    struct calls_slot *slot = take_slot();
    size_t size = take_size();

    if (heap != NULL)
        resize(slot, size, false, heap, (int)index);
}

/* ---- The thread, the clock, the system ---- */

static void do_collect(void)
{
    (void)hak_collect(take() % 2 != 0);
}

static void do_thread_idle(void)
{
    hak_thread_idle();
}

static void do_advance(void)
{
    fake_advance((uint64_t)(1 + take()) * (uint64_t)(1 + take()) * MILLISECOND / 16);
}

/* Sets or clears a rule of failing system calls. Only a failure to get memory may refuse a request. */
static void do_fail(void)
{
    unsigned rule = take(), call = 1 + take() % 32;
    enum fake_kind kind = (enum fake_kind)(rule % (FAKE_FALLIBLE_COUNT + 1));

    if (kind == FAKE_FALLIBLE_COUNT) {
        fake_fail_nothing();
        calls.failing = false;
    } else {
        if (rule >= 128)
            fake_fail_from(kind, call);
        else
            fake_fail_nth(kind, call);
        calls.failing = kind == FAKE_MAP || kind == FAKE_MAP_AT || kind == FAKE_HOLE;
        calls.overflows |= calls.failing;
    }
}

static void do_check(void)
{
    calls_check("in between");
}

static void do_look(void)
{
    struct calls_slot *slot = take_slot();

    if (slot->block.start == NULL) {
        CHECK(hak_usable_size(NULL) == 0 && hak_heap_of(NULL) == NULL, "step %u: something of NULL", calls.step);
        return;
    }
    CHECK(hak_usable_size(slot->block.start) == slot->block.usable, "step %u: usable size changed", calls.step);
    CHECK(hak_heap_of(slot->block.start) == (slot->heap == CALLS_NO_HEAP ? NULL : calls.heaps[slot->heap]),
          "step %u: %p is in heap %p", calls.step, (void *)slot->block.start, (void *)hak_heap_of(slot->block.start));
    block_verify(&slot->block);
}

/* Requests that no machine can serve, also for the slot's block. */
static void do_impossible(void)
{
    static struct diff_seat seat;
    struct calls_slot *slot = take_slot();
    struct diff_slot as_diff = { .block = slot->block };

    chance_start(&seat.chance, take());
    slot->block.start = NULL; /* the pressure handler must not free the block meanwhile */
    diff_errors_step(&seat, &as_diff);
    slot->block = as_diff.block;
}

/* The handler frees a run of slots, whatever is being allocated. */
static struct calls_slot *pressed_slot;
static unsigned pressed_count;

static void under_pressure(size_t bytes_mapped, size_t bytes_limit)
{
    int saved_errno = errno;

    CHECK(bytes_mapped > bytes_limit, "step %u: pressure at %zu of %zu bytes", calls.step, bytes_mapped, bytes_limit);
    for (; pressed_count > 0 && pressed_slot < calls.slots + CALLS_SLOTS; pressed_slot++, pressed_count--)
        calls_free(pressed_slot);
    errno = saved_errno;
}

static void do_pressure(void)
{
    pressed_slot = take_slot();
    pressed_count = take();
    (void)hak_set_pressure_handler(pressed_count != 0 ? under_pressure : NULL);
}

static void do_profile(void)
{
    static int nowhere;
    unsigned what = take() % 4;

    if (!calls.profiled)
        return;
    if (nowhere == 0)
        nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (what == 0)
        (void)hak_profile_write_fd(nowhere);
    else if (what == 1)
        hak_profile_stop();
    else
        (void)hak_profile_start((size_t)1 << (8 + take() % 16));
}

#define OPERATION(name) { do_##name, #name }

static const struct operation {
    void (*run)(void);
    const char *name;
} operations[] = {
    OPERATION(malloc), OPERATION(calloc), OPERATION(aligned), OPERATION(posix_memalign), OPERATION(realloc),
    OPERATION(reallocarray), OPERATION(free), OPERATION(free_sized), OPERATION(free_batch), OPERATION(malloc_batch),
    OPERATION(expand), OPERATION(heap_new), OPERATION(heap_fill), OPERATION(heap_realloc), OPERATION(heap_destroy),
    OPERATION(collect), OPERATION(thread_idle), OPERATION(advance), OPERATION(fail), OPERATION(check), OPERATION(look),
    { do_check, "check, or its end" } /* CALLS_THREAD_EXIT */, OPERATION(impossible), OPERATION(fill_run),
    OPERATION(free_run), OPERATION(grow), OPERATION(pressure), OPERATION(profile), OPERATION(fill_run),
    OPERATION(free_run), OPERATION(realloc), OPERATION(free),
};
_Static_assert(sizeof operations / sizeof operations[0] == 32, "five bits choose");

const char *calls_name(unsigned operation)
{
    return operations[operation].name;
}

void calls_do(unsigned operation)
{
    operations[operation].run();
}
