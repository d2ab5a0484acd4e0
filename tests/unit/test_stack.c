/* Protects profile/stack.c: which frames a sample's stack has, and when a thread's kept stack serves it again. The
 * unwinder's answers are the test's own. */
#include "core.h"

#include <string.h>

#include "os/unwind.h"
#include "profile/profile.h"
#include "profile/stack.h"
#include "profile/steps.h"

enum { KEPT = 16, OWN_MOST = 24 };

/* The frames that os_unwind returns; the first `own` are HAKMEM's. real: it walks the real stack. */
static struct unwind_frame told[200];
static unsigned told_count, own, walks;
static bool real;

unsigned __real_os_unwind(struct unwind_frame *frames, unsigned capacity);
unsigned __wrap_os_unwind(struct unwind_frame *frames, unsigned capacity);
unsigned __wrap_os_unwind(struct unwind_frame *frames, unsigned capacity)
{
    unsigned count = (unsigned)base_min(told_count, capacity);

    walks++;
    if (real)
        return __real_os_unwind(frames, capacity);
    memcpy(frames, told, count * sizeof *frames);
    return count;
}

typedef bool stop_walk(void *argument, unsigned count);
unsigned __real_os_unwind_until(struct unwind_frame *frames, unsigned capacity, stop_walk *stop, void *argument);
unsigned __wrap_os_unwind_until(struct unwind_frame *frames, unsigned capacity, stop_walk *stop, void *argument);

struct stopping {
    stop_walk *stop;
    void *argument;
};

static unsigned walked; /* frames of walks that may join a known way */

static bool count_and_stop(void *argument, unsigned count)
{
    struct stopping *stopping = argument;

    walked++;
    return stopping->stop(stopping->argument, count);
}

unsigned __wrap_os_unwind_until(struct unwind_frame *frames, unsigned capacity, stop_walk *stop, void *argument)
{
    struct stopping stopping = { stop, argument };

    return __real_os_unwind_until(frames, capacity, count_and_stop, &stopping);
}

bool __wrap_os_unwind_is_own(uintptr_t address);
bool __wrap_os_unwind_is_own(uintptr_t address) { return address >= 0x1000 && address < 0x1000 + own; }

/* A stack of `count` frames, whose return addresses lie in the slots: 0x1000 and so on. */
static void tell(uintptr_t *slots, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        slots[i] = 0x1000 + i;
        told[i] = (struct unwind_frame){ slots[i], &slots[i] };
    }
    told_count = count;
}

/* The site of the stack; always called at the same place of the stack. */
static HAK_NOINLINE struct site *site_of(const void *leaf, const struct label_set *labels, struct stack_memory **memory)
{
    struct site *site = stack_site(leaf, labels, memory, false);

    assert_non_null(site);
    return site;
}

/* The site has the frames from `first` on, behind the leaf if there is one. */
static void assert_frames(const struct site *site, const void *leaf, unsigned first, unsigned count)
{
    unsigned at = 0;

    assert_int_equal(site->frame_count, count + (leaf != NULL));
    if (leaf)
        assert_int_equal(site->frames[at++], (uintptr_t)leaf + 1);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(site->frames[at + i], 0x1000 + first + i);
}

/* A kept stack serves as long as each of its slots holds its address. */
static void test_kept(void)
{
    enum { COUNT = 7 };
    struct stack_memory *memory = NULL;
    uintptr_t slots[COUNT + 1];
    struct site *site = NULL;

    core_begin();
    tell(slots, COUNT);
    for (unsigned i = 0; i < 3; i++) {
        struct site *again = site_of(NULL, NULL, &memory);
        assert_true(site == NULL || again == site);
        site = again;
        assert_int_equal(walks, 1);
    }
    assert_frames(site, NULL, 0, COUNT);
    for (unsigned changed = 0; changed < COUNT; changed++) {
        tell(slots, COUNT);
        (void)site_of(NULL, NULL, &memory);
        walks = 0;
        (void)site_of(NULL, NULL, &memory);
        assert_int_equal(walks, 0);
        slots[changed] = told[changed].address = 0x9000;
        site = site_of(NULL, NULL, &memory);
        assert_int_equal(walks, 1);
        assert_int_equal(site->frames[changed], 0x9000);
    }
}

/* Below this function, stack_site's frame lies elsewhere. */
static HAK_NOINLINE struct site *deeper(struct stack_memory **memory)
{
    volatile char room[512];
    struct site *site;

    room[0] = room[511] = 0;
    site = site_of(NULL, NULL, memory);
    return room[0] ? NULL : site;
}

static void test_other_places(void)
{
    struct stack_memory *memory = NULL;
    uintptr_t slots[3];

    core_begin();
    tell(slots, 3);
    (void)site_of(NULL, NULL, &memory);
    (void)deeper(&memory);
    assert_int_equal(walks, 2);
    (void)site_of(NULL, NULL, &memory);
    (void)deeper(&memory);
    assert_int_equal(walks, 2);
}

/* A thread keeps its last 16 stacks. */
static void test_as_many(void)
{
    static const char leaves[KEPT + 1];
    struct stack_memory *memory = NULL;
    uintptr_t slots[3];

    core_begin();
    tell(slots, 3);
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < KEPT; i++)
            assert_frames(site_of(&leaves[i], NULL, &memory), &leaves[i], 0, 3);
    assert_int_equal(walks, KEPT);
    (void)site_of(&leaves[KEPT], NULL, &memory); /* in place of the oldest */
    for (unsigned i = 1; i <= KEPT; i++)
        (void)site_of(&leaves[i], NULL, &memory);
    assert_int_equal(walks, KEPT + 1);
    (void)site_of(&leaves[0], NULL, &memory);
    assert_int_equal(walks, KEPT + 2);
}

/* A kept stack serves under other labels, at a site of their own. */
static void test_labels(void)
{
    struct stack_memory *memory = NULL;
    const struct label_set *set;
    struct site *plain, *labelled;
    struct labels *labels;
    uintptr_t slots[3];

    core_begin();
    tell(slots, 3);
    labels = labels_take();
    assert_int_equal(labels_put(labels, LABEL_IS_TEXT, "a", "b", 0), 0);
    set = labels_in_force(labels);
    plain = site_of(NULL, NULL, &memory);
    labelled = site_of(NULL, set, &memory);
    assert_ptr_not_equal(labelled, plain);
    assert_ptr_equal(labelled->labels, set);
    assert_null(plain->labels);
    assert_frames(labelled, NULL, 0, 3);
    assert_ptr_equal(site_of(NULL, NULL, &memory), plain);
    assert_ptr_equal(site_of(NULL, set, &memory), labelled);
    assert_int_equal(walks, 1);
}

/* A frame whose slot is not known makes each sample walk. */
static void test_no_slots(void)
{
    enum { COUNT = 4 };
    struct stack_memory *memory = NULL;
    uintptr_t slots[COUNT];

    core_begin();
    for (unsigned missing = 0; missing <= COUNT; missing++) {
        tell(slots, COUNT);
        for (unsigned i = 0; i < COUNT; i++)
            if (i == missing || missing == COUNT)
                told[i].slot = NULL;
        walks = 0;
        /* The first frames are dropped if they seem to lie below the walk's beginning, which slots of 0 do. */
        assert_frames(site_of(NULL, NULL, &memory), NULL, missing == 0, COUNT - (missing == 0));
        assert_frames(site_of(NULL, NULL, &memory), NULL, missing == 0, COUNT - (missing == 0));
        assert_int_equal(walks, missing == 0 ? 1 : 2);
        stack_leave(&memory);
    }
    tell(slots, 1);
    told[0].slot = NULL;
    walks = 0;
    (void)site_of(NULL, NULL, &memory);
    (void)site_of(NULL, NULL, &memory);
    assert_int_equal(walks, 2);
}

/* The unwinder's own frames, below stack_site's, and HAKMEM's are left out. */
static void test_left_out(void)
{
    enum { COUNT = 9 };
    struct stack_memory *memory = NULL;
    const uintptr_t *below_slots;
    uintptr_t slots[COUNT];
    struct site *site;

    core_begin();
    tell(slots, COUNT);
    below_slots = (const uintptr_t *)((uintptr_t)slots - 131072); /* nobody reads there */
    told[0].slot = below_slots;
    told[1].slot = below_slots + 1;
    site = site_of(NULL, NULL, &memory);
    assert_frames(site, NULL, 2, COUNT - 2);
    assert_ptr_equal(site_of(NULL, NULL, &memory), site);
    assert_int_equal(walks, 1);
    for (own = 0; own <= COUNT; own++) {
        stack_leave(&memory);
        tell(slots, COUNT);
        assert_frames(site_of(NULL, NULL, &memory), NULL, own, COUNT - own);
        assert_frames(site_of(&own, NULL, &memory), &own, own, COUNT - own);
    }
    own = 1; /* HAKMEM's frames in the midst of a stack stay */
    tell(slots, COUNT);
    told[3].address = slots[3] = 0x1000;
    stack_leave(&memory);
    site = site_of(NULL, NULL, &memory);
    assert_int_equal(site->frame_count, COUNT - 1);
    assert_int_equal(site->frames[2], 0x1000);
}

/* A site has at most 64 frames, its leaf among them. HAKMEM's own do not count, if the thread has memory. */
static void test_long_stacks(void)
{
    struct stack_memory *memory = NULL;
    uintptr_t slots[200];

    core_begin();
    tell(slots, 200);
    assert_frames(site_of(NULL, NULL, &memory), NULL, 0, NATIVE_MOST);
    assert_frames(site_of(&own, NULL, &memory), &own, 0, NATIVE_MOST - 1);
    assert_frames(site_of(NULL, NULL, NULL), NULL, 0, NATIVE_MOST);
    own = OWN_MOST;
    stack_leave(&memory);
    assert_frames(site_of(NULL, NULL, &memory), NULL, OWN_MOST, NATIVE_MOST);
    assert_frames(site_of(NULL, NULL, NULL), NULL, OWN_MOST, NATIVE_MOST - OWN_MOST);
    own = OWN_MOST + 1;
    stack_leave(&memory);
    assert_frames(site_of(NULL, NULL, &memory), NULL, OWN_MOST + 1, NATIVE_MOST - 1);
}

/* Without memory each sample walks. A thread's memory serves the next thread, which finds no stack kept in it. */
static void test_memory(void)
{
    struct stack_memory *memory = NULL, *first, *second = NULL;
    uintptr_t slots[5];

    core_begin();
    tell(slots, 5);
    for (unsigned i = 0; i < 3; i++)
        assert_frames(site_of(NULL, NULL, NULL), NULL, 0, 5);
    assert_int_equal(walks, 3);
    (void)site_of(NULL, NULL, &memory);
    (void)site_of(NULL, NULL, &second);
    assert_ptr_not_equal(memory, second);
    first = memory;
    assert_int_equal(walks, 5);
    stack_leave(&memory);
    assert_null(memory);
    stack_leave(&memory); /* a thread without memory */
    (void)site_of(NULL, NULL, &memory);
    assert_ptr_equal(memory, first);
    assert_int_equal(walks, 6);
    (void)site_of(NULL, NULL, &memory);
    (void)site_of(NULL, NULL, &second);
    assert_int_equal(walks, 6);
}

/* A way of frames is followed from any of them, wherever the code lies. */
static void test_ways(void)
{
    enum { COUNT = 40 };
    struct unwind_frame frames[COUNT], found[COUNT];
    struct steps_stack stack = { 0 };
    uintptr_t slots[COUNT * COUNT];

    core_begin();
    for (unsigned i = 0; i < COUNT; i++) {
        size_t slot = (size_t)i * (i + 1) / 2; /* each step is longer than the last */
        slots[slot] = ((uintptr_t)i << 15) + 0x1234 + 16 * i;
        frames[i] = (struct unwind_frame){ slots[slot], &slots[slot] };
    }
    steps_learn(&stack, frames, COUNT, true);
    for (unsigned first = 0; first < COUNT; first++) {
        assert_int_equal(steps_follow(&stack, frames[first].slot, found, COUNT), COUNT - first);
        for (unsigned i = first; i < COUNT; i++) {
            assert_int_equal(found[i - first].address, frames[i].address);
            assert_ptr_equal(found[i - first].slot, frames[i].slot);
        }
    }
}

#if defined(__x86_64__) /* elsewhere the unwinder tells no slots, and every sample walks */

/* Where every block is a sample, the steps that one walk taught serve for another leaf. */
static HAK_NOINLINE struct site *often(const void *leaf, struct stack_memory **memory)
{
    struct site *site = stack_site(leaf, NULL, memory, true);

    assert_non_null(site);
    return site;
}

static void test_steps(void)
{
    static const char leaves[5];
    struct stack_memory *memory = NULL;
    struct site *sites[5];
    volatile unsigned rounds = 2; /* or a compiler unrolls the loops, and the calls return to several places */

    core_begin();
    assert_true(os_unwind_prepare(UNWIND_TABLES, false));
    real = true;
    for (unsigned round = 0; round < rounds; round++)
        for (unsigned i = 0; i < 5; i++) {
            struct site *site = often(&leaves[i], &memory);
            assert_true(round == 0 || site == sites[i]);
            sites[i] = site;
            assert_true(site->frame_count > 4 && site->frame_count == sites[0]->frame_count);
            assert_int_equal(site->frames[0], (uintptr_t)&leaves[i] + 1);
            assert_memory_equal(site->frames + 1, sites[0]->frames + 1, (site->frame_count - 1) * sizeof(uintptr_t));
        }
    assert_int_equal(walks, 1);
}

/* Calls `last` below `depth` frames of its own. */
static HAK_NOINLINE struct site *below(unsigned depth, struct site *(*last)(const void *, struct stack_memory **),
                                       const void *leaf, struct stack_memory **memory)
{
    volatile unsigned more = depth;
    struct site *site = more ? below(more - 1, last, leaf, memory) : last(leaf, memory);

    return more == depth ? site : NULL;
}

static HAK_NOINLINE struct site *other_way(const void *leaf, struct stack_memory **memory)
{
    volatile unsigned once = 1;
    struct site *site = often(leaf, memory);

    return once ? site : NULL;
}

/* A new function on a known stack: the unwinder walks to the first frame from which the way is known. A stack that is
 * too long for a walk teaches no end, so that later walks join it, too. */
static void test_joined_walks(void)
{
    static const char leaves[6];
    struct stack_memory *memory = NULL;
    const struct site *first, *site;

    core_begin();
    assert_true(os_unwind_prepare(UNWIND_TABLES, false));
    real = true;
    first = below(200, often, &leaves[0], &memory);
    assert_int_equal(first->frame_count, NATIVE_MOST);
    assert_int_equal(walks, 1);
    for (unsigned i = 1; i < 6; i++) {
        walked = 0;
        site = below(200, other_way, &leaves[i], &memory);
        assert_int_equal(walks, 1);
        assert_true(walked < 8);
        assert_int_equal(site->frame_count, NATIVE_MOST);
        /* Behind the frame of other_way come the same frames. */
        assert_int_not_equal(site->frames[2], first->frames[2]);
        assert_memory_equal(site->frames + 4, first->frames + 4, (NATIVE_MOST - 4) * sizeof(uintptr_t));
    }
}

/* Only a profile of every block learns steps. */
static void test_every_block(void)
{
    static const char leaves[3];
    struct record record = { .size = 16, .weight = 65536 };
    struct stack_memory *memory = NULL;

    core_begin();
    assert_true(os_unwind_prepare(UNWIND_TABLES, false));
    real = true;
    for (profile.mean = 1; profile.mean <= 2; profile.mean++) {
        walks = 0;
        for (unsigned i = 0; i < 3; i++) {
            record.address += 16;
            profile_site = &leaves[i];
            profile_note(&record, &memory, NULL);
            assert_int_equal(record.site->frames[0], (uintptr_t)&leaves[i] + 1);
        }
        assert_int_equal(walks, profile.mean == 1 ? 1 : 3);
        stack_leave(&memory);
    }
    assert_false(profile_busy());
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_kept),    core_unit_test(test_other_places), core_unit_test(test_as_many),
        core_unit_test(test_labels),  core_unit_test(test_no_slots),     core_unit_test(test_left_out),
        core_unit_test(test_long_stacks), core_unit_test(test_memory),   core_unit_test(test_ways),
#if defined(__x86_64__)
        core_unit_test(test_steps),   core_unit_test(test_joined_walks), core_unit_test(test_every_block),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
