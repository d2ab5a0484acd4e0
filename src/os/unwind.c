/*
 * Two ways up a stack. By tables: os/unwind_tables.h. By frame pointers: each frame holds the next frame's address. The
 * walk stays inside the stack's mapping.
 */
#define _GNU_SOURCE
#include "os/unwind.h"

#include <errno.h>
#include <link.h>

#include "base/errno.h"
#include "os/maps.h"
#include "os/os.h"
#include "os/peek.h"
#include "os/symbols.h"
#include "os/unwind_tables.h"

/* Weak: a static program may lack it, and the linker must not add it. */
#pragma weak dl_iterate_phdr

/* The section of all of HAKMEM's code in a program that links the static library or contains the one-file source. The
 * shared library has no such section. */
extern const char __start_hakmem_text[] __attribute__((weak));
extern const char __stop_hakmem_text[] __attribute__((weak));

static struct {
    bool tables;
    uintptr_t own_start, own_end;
    uintptr_t program_start; /* of the program's own code */
} unwinder;

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

/* frame: a frame pointer. */
static unsigned walk_pointers(const uintptr_t *frame, struct unwind_frame *frames, unsigned capacity)
{
    unsigned count = 0;

    frame += FRAME_WORDS;
    if (!stack_is_whole() || !is_in_part((uintptr_t)frame))
        (void)find_mapping((uintptr_t)frame);
    while (count < capacity && (uintptr_t)frame % sizeof *frame == 0 && (uintptr_t)(frame + 2) <= stack_end) {
        const uintptr_t *next = (const uintptr_t *)frame[0] + FRAME_WORDS;
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

/* Not inlined, because the walk begins at this function's frame. */
HAK_NOINLINE unsigned os_unwind(struct unwind_frame *frames, unsigned capacity)
{
    return unwinder.tables ? os_unwind_until(frames, capacity, NULL, NULL)
                           : walk_pointers(__builtin_frame_address(0), frames, capacity);
}

HAK_NOINLINE unsigned os_unwind_until(struct unwind_frame *frames, unsigned capacity,
                                      bool (*stop)(void *argument, unsigned count), void *argument)
{
    BASE_KEEP_ERRNO;
    unsigned count = os_tables_walk(frames, capacity, is_on_stack, stop, argument);

    return count;
}

unsigned os_unwind_fault(uintptr_t instruction, uintptr_t frame, struct unwind_frame *frames, unsigned capacity,
                         unsigned *first)
{
    unsigned count = unwinder.tables ? os_unwind_until(frames, capacity, NULL, NULL) : 0;

    *first = 0;
    for (unsigned i = 0; i < count; i++)
        if (frames[i].address == instruction) {
            *first = i + 1;
            return count;
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

static void find_own(bool no_lock)
{
    unsigned objects = 0;

    if (no_lock)
        (void)os_mapping_around((uintptr_t)&os_unwind, &unwinder.own_start, &unwinder.own_end);
    else if (dl_iterate_phdr)
        dl_iterate_phdr(look_at_object, &objects);
    if (__start_hakmem_text) {
        unwinder.own_start = (uintptr_t)__start_hakmem_text;
        unwinder.own_end = (uintptr_t)__stop_hakmem_text;
    }
}

bool os_unwind_prepare(enum unwind_kind kind, bool no_lock)
{
    BASE_KEEP_ERRNO;

    find_own(no_lock);
    unwinder.tables = kind != UNWIND_POINTERS && os_tables_can();
    return unwinder.tables || kind != UNWIND_TABLES;
}
