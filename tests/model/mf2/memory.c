#include "memory.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "os/lock.h"
#include "scheduler.h"

enum {
    PLACES_MOST = 4096,  /* atomic objects and locks that threads touched: a power of two */
    SHARED_MOST = 192,   /* of them, touched by two threads */
    MESSAGES_MOST = 128, /* of an object, in one schedule */
    GRANULES_MOST = 8192,
    CELLS_MOST = 8,
    EXEMPT_MOST = 12,
    NONE = 255
};

/* What a thread has seen: of each thread how far it got, and of each shared object the oldest message it may read. */
struct view {
    uint16_t of[SCHEDULER_THREADS];
    uint8_t message[SHARED_MOST];
};

struct message {
    uint64_t value;
    bool update; /* reads the message just before it */
    struct view released;
};

/* `number`: of the shared ones; NONE. `order`: numbers of messages, in modification order. */
struct place {
    const void *address;
    unsigned touched_by, size;
    uint8_t number;
    bool sum;
};

struct shared {
    unsigned run; /* the rest is of this run */
    struct place *place;
    uint8_t count, order[MESSAGES_MOST], position[MESSAGES_MOST];
    uint8_t last_consistent; /* the last message that a sequentially consistent access wrote */
    struct message messages[MESSAGES_MOST];
    struct view lock; /* what the lock's last holder had seen */
};

/* Accesses to one to eight bytes since the schedule's start: for each thread, how far it was at the last of each. */
struct cell {
    uint8_t offset, size;
    uint16_t plain_write[SCHEDULER_THREADS], plain_read[SCHEDULER_THREADS];
    uint16_t atomic_write[SCHEDULER_THREADS], atomic_read[SCHEDULER_THREADS];
};

struct granule {
    uintptr_t number;
    unsigned run, cells;
    struct cell cell[CELLS_MOST];
};

static struct place places[PLACES_MOST];
static struct shared shared[SHARED_MOST];
static unsigned shared_count, run;
static struct view views[SCHEDULER_THREADS];
static struct granule granules[GRANULES_MOST];
static const struct granule *touched[GRANULES_MOST]; /* those of this run */
static unsigned touched_count;

static struct {
    uintptr_t start, end;
} exempt[EXEMPT_MOST];
static unsigned exempt_count;
static const void *sums[EXEMPT_MOST];
static unsigned sum_count;

void (*memory_describe)(const void *address, char *name, size_t size);

/* ---- Places ---- */

void memory_exempt(const void *start, size_t size)
{
    if (exempt_count == EXEMPT_MOST)
        scheduler_fail("too many exempt ranges");
    exempt[exempt_count].start = (uintptr_t)start;
    exempt[exempt_count++].end = (uintptr_t)start + size;
}

void memory_note_sum(const void *address)
{
    if (sum_count == EXEMPT_MOST)
        scheduler_fail("too many sums");
    sums[sum_count++] = address;
}

static bool is_exempt(uintptr_t address)
{
    for (unsigned i = 0; i < exempt_count; i++)
        if (address - exempt[i].start < exempt[i].end - exempt[i].start)
            return true;
    return false;
}

static size_t hash(uintptr_t number, size_t most)
{
    return (size_t)((number * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (most - 1);
}

void memory_forget(void)
{
    memset(places, 0, sizeof places);
    shared_count = 0;
}

void memory_start(void)
{
    run++;
    touched_count = 0;
    memset(views, 0, sizeof views);
    for (unsigned thread = 0; thread < SCHEDULER_THREADS; thread++)
        views[thread].of[thread] = 1;
}

/* Notes that the running thread touches the place. Returns its record if two threads do, and NULL otherwise. A fork
 * touches every place. */
static struct shared *touch(const void *address, unsigned size)
{
    size_t at = hash((uintptr_t)address, PLACES_MOST), looks = 0;
    struct place *place;
    struct shared *record;

    while (places[at].address && places[at].address != address) {
        if (++looks == PLACES_MOST)
            scheduler_fail("more than %d places", PLACES_MOST);
        at = (at + 1) % PLACES_MOST;
    }
    place = &places[at];
    if (!place->address) {
        *place = (struct place){ .address = address, .size = size, .number = NONE };
        for (unsigned i = 0; i < sum_count; i++)
            place->sum |= sums[i] == address;
    }
    place->touched_by |= 1u << scheduler_thread();
    if (place->number == NONE) {
        if ((place->touched_by & (place->touched_by - 1)) == 0 && !scheduler_forks())
            return NULL;
        if (shared_count == SHARED_MOST)
            scheduler_fail("more than %d places that two threads touch", SHARED_MOST);
        place->number = (uint8_t)shared_count;
        shared[shared_count++] = (struct shared){ .place = place };
        scheduler_restart();
    }
    record = &shared[place->number];
    return scheduler_restarts() ? NULL : record;
}

/* ---- Bytes ---- */

static uint64_t bytes_load(const void *address, unsigned size)
{
    switch (size) {
    case 1: return atomic_load((_Atomic uint8_t *)(uintptr_t)address);
    case 2: return atomic_load((_Atomic uint16_t *)(uintptr_t)address);
    case 4: return atomic_load((_Atomic uint32_t *)(uintptr_t)address);
    default: return atomic_load((_Atomic uint64_t *)(uintptr_t)address);
    }
}

static void bytes_store(void *address, unsigned size, uint64_t value)
{
    switch (size) {
    case 1: atomic_store((_Atomic uint8_t *)address, (uint8_t)value); break;
    case 2: atomic_store((_Atomic uint16_t *)address, (uint16_t)value); break;
    case 4: atomic_store((_Atomic uint32_t *)address, (uint32_t)value); break;
    default: atomic_store((_Atomic uint64_t *)address, value); break;
    }
}

static uint64_t apply(enum memory_operation operation, uint64_t old, uint64_t operand, unsigned size)
{
    uint64_t value = operation == MEMORY_ADD   ? old + operand
                     : operation == MEMORY_SUB ? old - operand
                     : operation == MEMORY_AND ? old & operand
                     : operation == MEMORY_OR  ? old | operand
                                               : operand;
    return size == 8 ? value : value & ((UINT64_C(1) << 8 * size) - 1);
}

/* ---- Races ---- */

static const char *place_name(const void *address)
{
    static char name[128];

    snprintf(name, sizeof name, "%p", address);
    if (memory_describe)
        memory_describe(address, name, sizeof name);
    return name;
}

static void check_seen(const uint16_t *times, const void *address, const char *what, const char *other)
{
    int self = scheduler_thread();

    for (int thread = 0; thread < SCHEDULER_THREADS; thread++)
        if (thread != self && times[thread] > views[self].of[thread] && !scheduler_restarts())
            scheduler_fail("race: thread %d %s %s, and thread %d %s it", self, what, place_name(address), thread,
                           other);
}

static struct granule *granule_at(uintptr_t number)
{
    size_t at = hash(number, GRANULES_MOST), looks = 0;

    while (granules[at].run == run && granules[at].number != number) {
        if (++looks == GRANULES_MOST)
            scheduler_fail("more than %d granules", GRANULES_MOST);
        at = (at + 1) % GRANULES_MOST;
    }
    if (granules[at].run != run) {
        granules[at].number = number;
        granules[at].run = run;
        granules[at].cells = 0;
        touched[touched_count++] = &granules[at];
    }
    return &granules[at];
}

static void note_access(uintptr_t address, unsigned size, bool write, bool atomic)
{
    struct granule *granule = granule_at(address / 8);
    unsigned offset = address % 8;
    int self = scheduler_thread();
    struct cell *own = NULL;
    const char *what = write ? "writes" : "reads";

    for (unsigned i = 0; i < granule->cells; i++) {
        struct cell *cell = &granule->cell[i];
        if (cell->offset >= offset + size || offset >= (unsigned)cell->offset + cell->size)
            continue;
        check_seen(cell->plain_write, (void *)address, what, "wrote");
        if (!atomic)
            check_seen(cell->atomic_write, (void *)address, what, "wrote");
        if (write)
            check_seen(cell->plain_read, (void *)address, what, "read");
        if (write && !atomic)
            check_seen(cell->atomic_read, (void *)address, what, "read");
        if (cell->offset == offset && cell->size == size)
            own = cell;
    }
    if (!own) {
        if (granule->cells == CELLS_MOST)
            scheduler_fail("more than %d kinds of access to eight bytes", CELLS_MOST);
        own = &granule->cell[granule->cells++];
        memset(own, 0, sizeof *own);
        own->offset = (uint8_t)offset;
        own->size = (uint8_t)size;
    }
    (write ? (atomic ? own->atomic_write : own->plain_write) : (atomic ? own->atomic_read : own->plain_read))[self] =
        views[self].of[self];
}

/* Whether the address lies in the frame of a function of the running coroutine. */
static bool on_stack(uintptr_t address)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);

    return address - here < (uintptr_t)64 * 1024 || here - address < 4096;
}

void memory_plain(const void *address, size_t size, bool write)
{
    uintptr_t at = (uintptr_t)address, end = at + size;

    if (scheduler_thread() < 0 || on_stack(at) || is_exempt(at))
        return;
    while (at < end) {
        uintptr_t next = base_min(end, (at | 7) + 1);
        note_access(at, (unsigned)(next - at), write, false);
        at = next;
    }
}

/* ---- Messages ---- */

static void join(struct view *view, const struct view *other)
{
    for (unsigned thread = 0; thread < SCHEDULER_THREADS; thread++)
        if (other->of[thread] > view->of[thread])
            view->of[thread] = other->of[thread];
    for (unsigned i = 0; i < shared_count; i++)
        if (shared[i].run == run && shared[i].position[other->message[i]] > shared[i].position[view->message[i]])
            view->message[i] = other->message[i];
}

static struct view *own_view(void)
{
    return &views[scheduler_thread()];
}

static bool acquires(int order)
{
    return order == memory_order_acquire || order == memory_order_acq_rel || order == memory_order_seq_cst ||
           order == memory_order_consume;
}

static bool releases(int order)
{
    return order == memory_order_release || order == memory_order_acq_rel || order == memory_order_seq_cst;
}

static struct message *message_at(struct shared *object, unsigned position)
{
    return &object->messages[object->order[position]];
}

/* The object's messages so far. At its first access they are one, seen by all: what the memory holds. */
static void begin(struct shared *object)
{
    const struct place *place = object->place;

    if (object->run != run) {
        object->run = run;
        object->count = 1;
        object->order[0] = object->position[0] = object->last_consistent = 0;
        object->messages[0] = (struct message){ .value = bytes_load(place->address, place->size) };
        memset(&object->lock, 0, sizeof object->lock);
    } else if (message_at(object, object->count - 1u)->value != bytes_load(place->address, place->size)) {
        scheduler_fail("the model was not told of a store to %s", place_name(place->address));
    }
}

/* The oldest message that the running thread may read. */
static unsigned oldest(const struct shared *object, int order)
{
    unsigned position = object->position[own_view()->message[object->place->number]];

    if (order == memory_order_seq_cst)
        position = (unsigned)base_max(position, object->position[object->last_consistent]);
    return position;
}

static void see(struct shared *object, unsigned position, int order)
{
    own_view()->message[object->place->number] = object->order[position];
    if (acquires(order))
        join(own_view(), &message_at(object, position)->released);
}

/* A new message behind the one at `position`. `read`: it is an update that read that one. */
static void write_behind(struct shared *object, unsigned position, bool read, uint64_t value, int order)
{
    struct view *view = own_view();
    struct message *message;
    uint8_t number = object->count;

    if (object->count == MESSAGES_MOST)
        scheduler_fail("more than %d stores to %s", MESSAGES_MOST, place_name(object->place->address));
    memmove(&object->order[position + 2], &object->order[position + 1], object->count - position - 1);
    object->order[position + 1] = number;
    object->count++;
    for (unsigned i = position + 1; i < object->count; i++)
        object->position[object->order[i]] = (uint8_t)i;
    view->message[object->place->number] = number;
    message = &object->messages[number];
    message->value = value;
    message->update = read;
    if (read)
        message->released = message_at(object, position)->released;
    else
        memset(&message->released, 0, sizeof message->released);
    if (releases(order)) {
        join(&message->released, view);
        view->of[scheduler_thread()]++;
    }
    if (order == memory_order_seq_cst)
        object->last_consistent = number;
    if (position + 2 == object->count)
        bytes_store((void *)(uintptr_t)object->place->address, object->place->size, value);
}

/* Whether a message may be put just behind this one. An update's stays behind the one it read. */
static bool is_open(struct shared *object, unsigned position)
{
    return position + 1 == object->count || !message_at(object, position + 1)->update;
}

/* Chooses one of the positions from `least` on, the last one first; with `open`, of those that are open. */
static unsigned choose_position(struct shared *object, unsigned least, bool open)
{
    uint8_t ways[MESSAGES_MOST] = { 0 };
    unsigned count = 0;

    for (unsigned position = object->count; position-- > least;)
        if (!open || is_open(object, position))
            ways[count++] = (uint8_t)position;
    return ways[scheduler_is_weak() ? scheduler_choose(count) : 0];
}

static uint64_t compare(struct shared *object, uint64_t desired, uint64_t *expected, int order, int failed_order)
{
    uint8_t ways[2 * MESSAGES_MOST] = { 0 };
    unsigned count = 0, least = oldest(object, order), failed_least = oldest(object, failed_order), position;
    uint64_t value;

    for (position = object->count; position-- > base_min(least, failed_least);) {
        bool equal = message_at(object, position)->value == *expected;
        if (equal ? position >= least && is_open(object, position) : position >= failed_least)
            ways[count++] = (uint8_t)position;
    }
    position = ways[scheduler_is_weak() ? scheduler_choose(count) : 0];
    value = message_at(object, position)->value;
    if (value == *expected) {
        see(object, position, order);
        write_behind(object, position, true, desired, order);
    } else {
        see(object, position, failed_order);
    }
    return value;
}

uint64_t memory_atomic(void *address, unsigned size, enum memory_operation operation, uint64_t operand,
                       uint64_t *expected, int order, int failed_order)
{
    struct shared *object = NULL;
    uint64_t value;
    unsigned position;

    if (scheduler_thread() >= 0 && !on_stack((uintptr_t)address) && !is_exempt((uintptr_t)address)) {
        object = touch(address, size);
        if (object) {
            bool sum = object->place->sum && (operation == MEMORY_ADD || operation == MEMORY_SUB);
            scheduler_step(address, operation == MEMORY_LOAD ? STEP_READ : sum ? STEP_ADD : STEP_WRITE);
            object = scheduler_restarts() ? NULL : object;
        }
        note_access((uintptr_t)address, size, operation != MEMORY_LOAD, true);
    }
    if (!object) {
        value = bytes_load(address, size);
        if (operation != MEMORY_LOAD && (operation != MEMORY_COMPARE || value == *expected))
            bytes_store(address, size, apply(operation, value, operand, size));
        return value;
    }
    begin(object);
    switch (operation) {
    case MEMORY_COMPARE:
        return compare(object, operand, expected, order, failed_order);
    case MEMORY_LOAD:
        position = choose_position(object, oldest(object, order), false);
        see(object, position, order);
        return message_at(object, position)->value;
    case MEMORY_STORE:
        position = choose_position(object, oldest(object, order), true);
        write_behind(object, position, false, apply(operation, 0, operand, size), order);
        return 0;
    default:
        position = choose_position(object, oldest(object, order), true);
        value = message_at(object, position)->value;
        see(object, position, order);
        write_behind(object, position, true, apply(operation, value, operand, size), order);
        return value;
    }
}

void memory_note_store(void *address, unsigned size)
{
    struct shared *object = scheduler_thread() >= 0 ? touch(address, size) : NULL;
    unsigned last;

    if (!object || object->run != run)
        return;
    last = object->count - 1u;
    write_behind(object, last, false, bytes_load(address, size), memory_order_relaxed);
}

/* ---- Locks ---- */

static void lock_see(struct shared *object)
{
    begin(object);
    join(own_view(), &object->lock);
}

static void lock_show(struct shared *object)
{
    begin(object);
    join(&object->lock, own_view());
    own_view()->of[scheduler_thread()]++;
}

static struct shared *lock_touch(const struct lock *lock, enum step_kind kind)
{
    struct shared *object = scheduler_thread() >= 0 ? touch(lock, 1) : NULL;

    if (object || (scheduler_thread() >= 0 && scheduler_restarts()))
        scheduler_step(lock, kind);
    else
        scheduler_watch(); /* what the thread did under the lock */
    return scheduler_restarts() ? NULL : object;
}

void memory_enter(const struct lock *lock)
{
    struct shared *object = lock_touch(lock, STEP_TAKE);

    if (object)
        lock_see(object);
}

void memory_leave(const struct lock *lock)
{
    struct shared *object = scheduler_thread() >= 0 ? touch(lock, 1) : NULL;

    if (object)
        lock_show(object);
}

/* The memory of a lock says who holds it (lock_is_held, lock_is_mine). The model does not look at that word. */
static void lock_hold(struct lock *lock)
{
    if (atomic_load(&lock->state) != 0)
        scheduler_fail("a lock of rank %u is taken that is held", lock->rank);
    atomic_store(&lock->state, scheduler_token());
    scheduler_holds_now(lock);
}

void model_lock_acquire(struct lock *lock)
{
    struct shared *object = lock_touch(lock, STEP_TAKE);

    scheduler_will_hold(lock);
    if (object)
        lock_see(object);
    lock_hold(lock);
}

bool model_lock_try(struct lock *lock)
{
    struct shared *object = lock_touch(lock, STEP_TRY);

    if (atomic_load(&lock->state) != 0)
        return false;
    if (object)
        lock_see(object);
    lock_hold(lock);
    return true;
}

void model_lock_release(struct lock *lock)
{
    struct shared *object = lock_touch(lock, STEP_GIVE);

    scheduler_holds_no_more(lock);
    if (object)
        lock_show(object);
    atomic_store(&lock->state, 0);
}

bool model_lock_is_mine(const struct lock *lock)
{
    return atomic_load(&((struct lock *)(uintptr_t)lock)->state) == scheduler_token();
}

/* A fork takes the locks of several heaps, so L1 does not hold there. */
enum lock_taken model_lock_take_for_fork(struct lock *lock)
{
    struct shared *object = lock_touch(lock, STEP_TAKE);

    if (object)
        lock_see(object);
    lock_hold(lock);
    return LOCK_TAKEN;
}

void model_lock_leave_fork(struct lock *lock)
{
    if (model_lock_is_mine(lock))
        model_lock_release(lock);
}

/* ---- The final state ---- */

static uint64_t mix(uint64_t sum, uint64_t value)
{
    sum = (sum ^ value) * UINT64_C(0xff51afd7ed558ccd);
    return sum ^ sum >> 32;
}

uint64_t memory_digest(void)
{
    uint64_t digest = 0;

    for (size_t i = 0; i < touched_count; i++)
        for (unsigned number = 0; number < touched[i]->cells; number++) {
            const struct cell *cell = &touched[i]->cell[number];
            uintptr_t address = touched[i]->number * 8 + cell->offset;
            uint64_t value = 0;
            memcpy(&value, (const void *)address, cell->size);
            digest += mix(mix(0, address * 16 + cell->size), value); /* in any order */
        }
    return digest;
}
