/* Threads, explicit caches and arenas. */
#include <string.h>

#include <hakmem/hakmem.h>
#include <hakmem/jemalloc.h>

#include "config/classes.h"
#include "front/block.h"
#include "front/front.h"
#include "front/seats.h"
#include "je/arenas.h"
#include "je/control.h"
#include "je/counted.h"
#include "je/figures.h"
#include "os/os.h"

/* ---- The calling thread ---- */

uint64_t threads_arena(const struct control_call *call)
{
    (void)call;
    return arenas_of_thread();
}

int threads_set_arena(const struct control_call *call, uint64_t wanted)
{
    (void)call;
    return arenas_exists((uint32_t)wanted) ? arenas_bind_thread((uint32_t)wanted) : EFAULT;
}

/* The row's number: bit 0 chooses the counter of freed bytes, bit 1 the counter's address. */
uint64_t threads_counter(const struct control_call *call)
{
    const uint64_t *counter = call->row->number & 1 ? &counted.freed : &counted.allocated;

    return call->row->number & 2 ? (uintptr_t)counter : *counter;
}

/* A thread that is bound to an arena has no cache. */
uint64_t threads_cached(const struct control_call *call)
{
    (void)call;
    return arenas_of_thread() == 0 && !counted.uncached;
}

int threads_set_cached(const struct control_call *call, uint64_t wanted)
{
    bool bound = arenas_of_thread() != 0;

    (void)call;
    if (bound && wanted)
        return EPERM;
    counted.uncached = !wanted;
    front_set_thread_cached(wanted && !bound);
    return 0;
}

int threads_flush(const struct control_call *call)
{
    (void)call;
    (void)front_collect(false);
    return 0;
}

int threads_idle(const struct control_call *call)
{
    (void)call;
    front_thread_idle();
    return 0;
}

/* ---- Explicit caches are only numbers: their blocks come from the thread's cache, or straight from an arena ---- */

enum { TCACHES_MOST = 4094 };
static uint64_t tcaches[(TCACHES_MOST + 63) / 64]; /* a bit for each existing one; under control_lock */

static bool tcache_is(uint32_t number)
{
    return number < TCACHES_MOST && (tcaches[number / 64] >> number % 64 & 1) != 0;
}

static bool tcache_make(uint32_t *number)
{
    for (*number = 0; *number < TCACHES_MOST; ++*number)
        if (!tcache_is(*number)) {
            tcaches[*number / 64] |= UINT64_C(1) << *number % 64;
            return true;
        }
    return false;
}

int tcaches_create(const struct control_call *call)
{
    uint32_t number;
    bool made;
    int error = control_read_only(call);

    if (error)
        return error;
    if (!control_reads(call) || *call->old_length != sizeof number)
        return EINVAL;
    lock_acquire(&control_lock);
    made = tcache_make(&number);
    lock_release(&control_lock);
    return made ? control_give(call, &number, sizeof number) : EAGAIN;
}

static int tcache_change(const struct control_call *call, bool destroy)
{
    uint32_t number;
    bool is;
    int error = control_write_only(call);

    if (!error)
        error = control_writes(call) ? control_take(call, &number, sizeof number) : EINVAL;
    if (error)
        return error;
    lock_acquire(&control_lock);
    is = tcache_is(number);
    if (is && destroy)
        tcaches[number / 64] &= ~(UINT64_C(1) << number % 64);
    lock_release(&control_lock);
    if (is)
        (void)front_collect(false);
    return is ? 0 : EFAULT;
}

int tcaches_flush(const struct control_call *call) { return tcache_change(call, false); }

int tcaches_destroy(const struct control_call *call) { return tcache_change(call, true); }

/* ---- Arenas ---- */

/* Refuses extent hooks: a program's functions cannot map memory in HAKMEM's place. */
int arenas_act_create(const struct control_call *call)
{
    const void *hooks = NULL;
    uint32_t number;
    int error = control_writes(call) ? control_take(call, &hooks, sizeof hooks) : 0;

    if (error || hooks)
        return error ? error : EPERM;
    if (!control_reads(call) || *call->old_length != sizeof number) {
        if (call->old_length)
            *call->old_length = 0;
        return EINVAL;
    }
    error = arenas_create(&number);
    return error ? error : control_give(call, &number, sizeof number);
}

int arenas_act_lookup(const struct control_call *call)
{
    struct block block;
    uint32_t number;
    void *address;
    int error = control_writes(call) ? control_take(call, &address, sizeof address) : EINVAL;

    if (error)
        return error;
    block = block_look(address);
    if (block.size == 0)
        return EINVAL;
    number = arenas_number(block.heap);
    return control_give(call, &number, sizeof number);
}

/* Whether the number stands for all arenas: MALLCTL_ARENAS_ALL, or the number behind the last, jemalloc's older way. */
static bool is_every(uint32_t number) { return number == MALLCTL_ARENAS_ALL || number == arenas_count(); }

int arenas_act_reset(const struct control_call *call) { return arenas_reset(call->index[0]); }

int arenas_act_destroy(const struct control_call *call) { return arenas_destroy(call->index[0]); }

/* Gives back all free memory of the process, whichever arena is named: free memory belongs to no arena. */
int arenas_act_purge(const struct control_call *call)
{
    uint32_t number = call->index[0];

    if (!is_every(number) && !arenas_exists(number))
        return EFAULT;
    for (uint32_t i = 1; i < arenas_count(); i++)
        if ((i == number || is_every(number)) && arenas_heap(i))
            front_heap_collect(arenas_heap(i));
    (void)front_collect(true);
    return 0;
}

int arenas_act_decay(const struct control_call *call)
{
    if (!is_every(call->index[0]) && !arenas_exists(call->index[0]))
        return EFAULT;
    front_decay();
    return 0;
}

uint64_t arenas_initialized(const struct control_call *call)
{
    return call->index[0] == MALLCTL_ARENAS_ALL || arenas_exists(call->index[0]);
}

/* A reader passes a pointer to its buffer, where the name is copied to. A writer passes a pointer to the text. */
int arenas_act_name(const struct control_call *call)
{
    uint32_t number = call->index[0];
    const char *text = NULL;
    char *name, *out = NULL;
    int error;

    if (number >= ARENAS_MOST || !arenas_exists(number))
        return EINVAL;
    if (control_reads(call)) {
        if (*call->old_length != sizeof out)
            return EINVAL;
        memcpy(&out, call->old, sizeof out);
    }
    error = control_writes(call) ? control_take(call, &text, sizeof text) : 0;
    if (error)
        return error;
    lock_acquire(&control_lock);
    name = arenas_name(number);
    if (out)
        strcpy(out, name);
    if (text) {
        strncpy(name, text, ARENA_NAME_MOST - 1);
        name[ARENA_NAME_MOST - 1] = '\0';
    }
    lock_release(&control_lock);
    return 0;
}

/* Always "disabled", the row's text: memory comes from mmap alone. */
int arenas_set_dss(const struct control_call *call, uint64_t wanted)
{
    const char *text = (const char *)(uintptr_t)wanted;

    if (strcmp(text, call->row->text) == 0)
        return 0;
    return strcmp(text, "primary") == 0 || strcmp(text, "secondary") == 0 ? EFAULT : EINVAL;
}

/* ---- Sizes ---- */

uint64_t arenas_value(const struct control_call *call)
{
    const struct size_class *bin = &size_classes[call->index[0] + 1];
    unsigned large = FIGURES_BINS + 1 + call->index[0];

    switch ((enum arenas_value)call->row->number) {
    case VALUE_PAGE:
        return os_page_size();
    case VALUE_ARENAS:
        return arenas_count();
    case VALUE_BIN_SIZE:
        return bin->size;
    case VALUE_BIN_BLOCKS:
        return bin->blocks;
    case VALUE_BIN_BYTES:
        return bin->units * UNIT_SIZE;
    default: /* the last lextent stands for all larger blocks, and has the size of the smallest */
        return large < CLASS_COUNT ? class_size(large) : front_good_size(POOLED_MAX + 1);
    }
}
