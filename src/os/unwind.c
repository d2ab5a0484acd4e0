/*
 * Two ways up a stack. By tables: the unwinder of libgcc, which every C++ program has, or of libgcc_s.so.1, found at
 * run time so that the library needs libc alone; HAKMEM's own (os/unwind_tables.h) where there is none, or where a
 * stack has code without tables. By frame pointers: each frame holds the next frame's address. The walk stays inside
 * the stack's mapping.
 */
#define _GNU_SOURCE
#include "os/unwind.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <unwind.h>

#include "os/maps.h"
#include "os/os.h"
#include "os/peek.h"
#include "os/symbols.h"
#include "os/unwind_objects.h"
#include "os/unwind_tables.h"

/* Weak: a static program may lack these, and the linker must not add them. dlopen is found by dlsym, because ld warns
 * of a static program that names it. */
#pragma weak dlsym
#pragma weak dl_iterate_phdr
#pragma weak _Unwind_Backtrace
#pragma weak _Unwind_GetIP
#pragma weak _Unwind_GetCFA
#pragma weak _Unwind_Find_FDE

/* libgcc's: the description of the function at the address, or NULL. unwind.h does not declare it. */
extern const void *_Unwind_Find_FDE(void *address, void *bases);

/* The section of all of HAKMEM's code in a program that links the static library or contains the one-file source. The
 * shared library has no such section. */
extern const char __start_hakmem_text[] __attribute__((weak));
extern const char __stop_hakmem_text[] __attribute__((weak));

typedef _Unwind_Reason_Code (*backtrace_function)(_Unwind_Trace_Fn, void *);
typedef _Unwind_Ptr (*get_ip_function)(struct _Unwind_Context *);
typedef _Unwind_Word (*get_cfa_function)(struct _Unwind_Context *);

static struct {
    backtrace_function backtrace;
    get_ip_function get_ip;
    get_cfa_function get_cfa;
    bool tables;
    bool may_load; /* the program is dynamically linked: a loaded library finds the C library that is there */
    bool registered; /* relaxed: libgcc has the tables of a static program, which are_registered found once */
    uintptr_t own_start, own_end;
    uintptr_t program_start; /* of the program's own code */
} unwinder;

/* ---- By tables ---- */

struct walk {
    struct unwind_frame *frames;
    unsigned count, capacity;
    bool (*stop)(void *argument, unsigned count); /* or NULL */
    void *argument;
    bool stopped;
};

/* On x86-64 a return address lies directly below its frame's canonical address; elsewhere the slot is not known. */
static const uintptr_t *slot_of(uintptr_t address, uintptr_t cfa)
{
#if defined(__x86_64__)
    const uintptr_t *slot = (const uintptr_t *)cfa - 1;
    return cfa % sizeof *slot == 0 && *slot == address ? slot : NULL;
#else
    (void)address;
    (void)cfa;
    return NULL;
#endif
}

static _Unwind_Reason_Code walk_step(struct _Unwind_Context *context, void *argument)
{
    struct walk *walk = argument;
    uintptr_t address = unwinder.get_ip(context);

    if (address == 0 || walk->count == walk->capacity)
        return _URC_END_OF_STACK;
    walk->frames[walk->count].address = address;
    walk->frames[walk->count].slot = slot_of(address, unwinder.get_cfa(context));
    walk->count++;
    walk->stopped = walk->stop && walk->stop(walk->argument, walk->count);
    return walk->stopped ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/* ---- By frame pointers ---- */

/* The part of each thread's stack that was last found: all of a mapping, or pages from where a walk began. The start
 * has bit 0 set in the second case: static thread-local memory is short. */
static _Thread_local uintptr_t stack_start __attribute__((tls_model("initial-exec")));
static _Thread_local uintptr_t stack_end __attribute__((tls_model("initial-exec")));

static bool stack_is_whole(void) { return !(stack_start & 1); }
static bool is_in_part(uintptr_t address) { return (address | 1) >= stack_start && address < stack_end; }

static bool find_stack(const struct os_mapping *mapping, void *here)
{
    if ((uintptr_t)here < mapping->start || (uintptr_t)here >= mapping->end)
        return true;
    if (mapping->readable) {
        stack_start = mapping->start;
        stack_end = mapping->end;
    }
    return false;
}

/* Finds the address's mapping. */
static bool find_mapping(uintptr_t address)
{
    char buffer[OS_MAPS_SHORT];

    stack_end = 0;
    os_maps_each(find_stack, (void *)address, buffer, sizeof buffer);
    return stack_end != 0;
}

/* A thread's first walk seldom leaves the pages next to its start. To ask for one page takes less than a microsecond.
 * To read all mappings takes tens, which a thread that lives for one sample would pay for that sample. */
#define NEAR_PAGES 16u

/* Extends the part by the pages from the walk's start, which is on the stack, to the address. */
static bool find_near(uintptr_t address)
{
    uintptr_t page = os_page_size(), here = base_align_down((uintptr_t)__builtin_frame_address(0), page);

    if (address < here || address - here >= NEAR_PAGES * page || (stack_is_whole() && is_in_part(here)))
        return false;
    if (stack_is_whole() || !is_in_part(here)) {
        stack_start = here | 1;
        stack_end = here + page;
    }
    for (; stack_end <= address; stack_end += page)
        if (!os_can_read(stack_end))
            return false;
    return true;
}

/* Whether the word is on the stack, or on another stack that the walk has come to. Inlined, because malloc may walk the
 * stack, and may have only a page of it. */
HAK_INLINE bool is_on_stack(uintptr_t address)
{
    return is_in_part(address) || find_near(address) || find_mapping(address);
}

static unsigned walk_pointers(const uintptr_t *frame, struct unwind_frame *frames, unsigned capacity)
{
    unsigned count = 0;

    if (!stack_is_whole() || !is_in_part((uintptr_t)frame))
        (void)find_mapping((uintptr_t)frame);
    while (count < capacity && (uintptr_t)frame % sizeof *frame == 0 && (uintptr_t)(frame + 2) <= stack_end) {
        const uintptr_t *next = (const uintptr_t *)frame[0];
        if (frame[1] < 4096) /* no code */
            break;
        frames[count++] = (struct unwind_frame){ frame[1], &frame[1] };
        if (next <= frame)
            break;
        frame = next;
    }
    return count;
}

/* ---- By tables or by frame pointers ---- */

/* Whether libgcc's unwinder stopped at code without tables. HAKMEM's own walk passes such code. */
static bool is_cut_short(const struct walk *walk)
{
    return unwind_objects_unlocked() && walk->count != 0 && walk->count < walk->capacity &&
           !os_tables_have(walk->frames[walk->count - 1].address);
}

/*
 * Whether libgcc's walk can begin. The start-up code of a static program registers the program's tables, and libgcc
 * allocates for that since version 13. Until the tables are registered, libgcc's walk does not find its own code, and
 * aborts the process.
 */
static bool are_registered(void)
{
    const void *bases[3];

    if (unwinder.may_load || !_Unwind_Find_FDE || __atomic_load_n(&unwinder.registered, __ATOMIC_RELAXED))
        return true;
    if (!_Unwind_Find_FDE((char *)(uintptr_t)&are_registered + 1, bases))
        return false;
    __atomic_store_n(&unwinder.registered, true, __ATOMIC_RELAXED);
    return true;
}

static void walk_tables(struct walk *walk)
{
    backtrace_function backtrace = __atomic_load_n(&unwinder.backtrace, __ATOMIC_ACQUIRE); /* Acquire: load_tables */
    unsigned count;

    if (backtrace && !are_registered())
        return;
    if (backtrace)
        backtrace(walk_step, walk);
    if (backtrace && (walk->stopped || !is_cut_short(walk)))
        return;
    count = walk->count;
    walk->count = os_tables_walk(walk->frames, walk->capacity, is_on_stack);
    if (walk->count < count) {
        walk->count = 0;
        backtrace(walk_step, walk);
    }
}

/* Not inlined, because the walk begins at this function's frame. */
HAK_NOINLINE unsigned os_unwind(struct unwind_frame *frames, unsigned capacity)
{
    struct walk walk = { .frames = frames, .capacity = capacity };
    int saved_errno = errno;

    if (!unwinder.tables)
        return walk_pointers(__builtin_frame_address(0), frames, capacity);
    walk_tables(&walk);
    errno = saved_errno;
    return walk.count;
}

HAK_NOINLINE unsigned os_unwind_until(struct unwind_frame *frames, unsigned capacity,
                                      bool (*stop)(void *argument, unsigned count), void *argument)
{
    struct walk walk = { .frames = frames, .capacity = capacity, .stop = stop, .argument = argument };
    int saved_errno = errno;

    walk_tables(&walk);
    errno = saved_errno;
    return walk.count;
}

unsigned os_unwind_fault(uintptr_t instruction, uintptr_t frame, struct unwind_frame *frames, unsigned capacity,
                         unsigned *first)
{
    int saved_errno = errno;
    struct walk walk = { .frames = frames, .capacity = capacity };

    *first = 0;
    if (unwinder.tables) {
        walk_tables(&walk);
        errno = saved_errno;
        for (unsigned i = 0; i < walk.count; i++)
            if (frames[i].address == instruction) {
                *first = i + 1;
                return walk.count;
            }
    }
    /* Without tables, or where the instruction is in no table: code made at run time, a jump into nowhere. */
    return walk_pointers((const uintptr_t *)frame, frames, capacity);
}

bool os_unwind_by_tables(void) { return unwinder.tables; }

uintptr_t os_unwind_program(void) { return unwinder.program_start; }

bool os_unwind_is_own(uintptr_t address)
{
    return address >= unwinder.own_start && address < unwinder.own_end;
}

/* The first object is the program. HAKMEM's own code is a section of it, or the executable segment of another
 * object. */
static int look_at_object(struct dl_phdr_info *info, size_t size, void *count)
{
    bool is_program = (*(unsigned *)count)++ == 0;

    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (is_program && header->p_type == PT_INTERP)
            unwinder.may_load = true;
        if (is_program && header->p_type == PT_LOAD && (header->p_flags & PF_X))
            unwinder.program_start = start;
        if (!is_program && header->p_type == PT_LOAD && (header->p_flags & PF_X) && (uintptr_t)&os_unwind >= start &&
            (uintptr_t)&os_unwind < start + header->p_memsz) {
            unwinder.own_start = start;
            unwinder.own_end = start + header->p_memsz;
        }
    }
    return 0;
}

static void find_own(enum unwind_effort effort)
{
    unsigned objects = 0;

    if (effort == UNWIND_NO_LOCK)
        (void)os_mapping_around((uintptr_t)&os_unwind, &unwinder.own_start, &unwinder.own_end);
    else if (dl_iterate_phdr)
        dl_iterate_phdr(look_at_object, &objects);
    if (__start_hakmem_text) {
        unwinder.own_start = (uintptr_t)__start_hakmem_text;
        unwinder.own_end = (uintptr_t)__stop_hakmem_text;
    }
}

/* Whether the program defines a malloc that is not HAKMEM's. The dynamic linker calls it as it loads a library, and
 * before the program's main it need not be ready: that of GNU Common Lisp is not. */
static bool malloc_is_of_program(void)
{
    struct os_definition definition = { .name = "malloc" };
    uintptr_t code_start, code_end;

    return os_symbols_defined(&definition, 1, &code_start, &code_end) && !os_unwind_is_own(definition.address) &&
           unwinder.program_start >= code_start && unwinder.program_start < code_end;
}

static bool load_tables(void)
{
    union {
        void *address;
        void *(*open)(const char *file, int mode);
        backtrace_function backtrace;
        get_ip_function get_ip;
        get_cfa_function get_cfa;
    } name;
    void *library;

    if (!unwinder.may_load || !dlsym || malloc_is_of_program())
        return false;
    name.address = dlsym(RTLD_DEFAULT, "dlopen");
    library = name.address ? name.open("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        return false;
    name.address = dlsym(library, "_Unwind_GetIP");
    unwinder.get_ip = name.get_ip;
    name.address = dlsym(library, "_Unwind_GetCFA");
    unwinder.get_cfa = name.get_cfa;
    name.address = dlsym(library, "_Unwind_Backtrace");
    if (!name.address || !unwinder.get_ip || !unwinder.get_cfa)
        return false;
    /* Release, and stored last: a thread that finds `backtrace` in walk_tables also finds get_ip and get_cfa. */
    __atomic_store_n(&unwinder.backtrace, name.backtrace, __ATOMIC_RELEASE);
    return true;
}

static bool find_tables(enum unwind_effort effort)
{
    if (!_Unwind_Backtrace || !_Unwind_GetIP || !_Unwind_GetCFA)
        return (effort == UNWIND_MAY_LOAD && load_tables()) || os_tables_can();
    unwinder.backtrace = _Unwind_Backtrace;
    unwinder.get_ip = _Unwind_GetIP;
    unwinder.get_cfa = _Unwind_GetCFA;
    return true;
}

bool os_unwind_prepare(enum unwind_kind kind, enum unwind_effort effort)
{
    int saved_errno = errno;
    bool tables;

    find_own(effort);
    tables = kind != UNWIND_POINTERS && find_tables(effort);
    unwinder.tables = tables;
    errno = saved_errno;
    return tables || kind != UNWIND_TABLES;
}
