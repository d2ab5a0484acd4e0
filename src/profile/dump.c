#include "profile/dump.h"

#include <errno.h>
#include <string.h>

#include "base/format.h"
#include "options/options.h"
#include "os/file.h"
#include "os/maps.h"
#include "os/os.h"
#include "os/outside.h"
#include "os/process.h"
#include "os/unwind.h"
#include "profile/pprof.h"
#include "profile/python.h"

#define PATH_MOST 4074u    /* with its NUL; the name of a temporary file is longer */
#define PROCESS_MOST 24u
#define LEAKS_SHOWN 20u
#define FRAMES_SHOWN 12u

static uint32_t started_process; /* under profile_control, as the next */
static uint32_t files_written;
static _Atomic uint64_t interval_bytes; /* Order: relaxed; a sum */

void dump_begin(void)
{
    if (profile.started_ns == 0)
        profile.started_ns = os_now();
    profile.by_tables = os_unwind_by_tables();
    if (started_process == 0)
        started_process = os_process_id();
}

/* ---- Files ---- */

/* Writes to the open file and closes it. Inlined: malloc may write a file, and may have only a page of stack. */
HAK_INLINE int write_to(int file, uint32_t process)
{
    int error = pprof_write(file, profile.started_ns, process), closed = os_file_close(file);

    return error ? error : closed;
}

/* Writes a file without a name, and then gives it the name `path`. If something has that name, the file gets the name
 * `temporary`, and the result is EEXIST. Returns 0 on success, and another errno if that is not possible here. */
static int write_nameless(const char *path, char *temporary, size_t room, uint32_t process)
{
    const char *slash = strrchr(path, '/');
    int file, error;

    base_format(temporary, room, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    file = os_file_create_nameless(temporary);
    base_format(temporary, room, "%s.%u.tmp", path, process);
    if (file < 0)
        return -file;
    error = pprof_write(file, profile.started_ns, process);
    error = error ? error : os_file_name(file, path);
    if (error == EEXIST && os_file_name(file, temporary) != 0)
        error = EIO;
    return os_file_close(file) ? EIO : error;
}

/* Writes a file that has the name `temporary` until it is whole. *made: such a file exists. */
static int write_named(const char *path, const char *temporary, uint32_t process, bool *made)
{
    int file = os_file_create(temporary), error = file < 0 ? -file : write_to(file, process);

    *made = file >= 0;
    return error ? error : os_file_rename(temporary, path, false);
}

/* Writes the profile. The file gets its name last, so that nobody reads a part of it. A target that is no regular file
 * is written to directly: as root, a rename would replace /dev/null. may_add: in a forked child a name without %p gets
 * the process id appended. Under profile_control. */
static int write_file(const char *pattern, bool may_add)
{
    /* The path, and behind it the other name, so that short ones touch one page. */
    static char path[2 * (PATH_MOST + 2 * PROCESS_MOST)];
    uint32_t process = os_process_id();
    char *temporary;
    bool made = true, with_process = false;
    int error;

    if (!os_file_path(path, PATH_MOST, pattern, files_written + 1, &with_process))
        return ENAMETOOLONG;
    temporary = path + strlen(path);
    if (may_add && !with_process && process != started_process)
        temporary += base_format(temporary, PROCESS_MOST, ".%u", process);
    temporary++;
    error = write_nameless(path, temporary, sizeof path - (size_t)(temporary - path), process);
    if (error && error != EEXIST)
        error = write_named(path, temporary, process, &made);
    if (error) {
        int special = !made || error == EEXIST || error == EINVAL ? os_file_open_special(path) : OS_FILE_REGULAR;
        if (special != OS_FILE_REGULAR)
            error = special < 0 ? -special : write_to(special, process);
        else if (error == EEXIST || error == EINVAL)
            error = os_file_rename(temporary, path, true);
        if (made)
            os_file_remove(temporary); /* which is gone if it was renamed */
    }
    files_written += error == 0;
    return error;
}

int dump_write(const char *path)
{
    int error;

    lock_acquire(&profile_control);
    error = write_file(path, false);
    lock_release(&profile_control);
    return error;
}

int dump_write_fd(int file)
{
    int error;

    lock_acquire(&profile_control);
    error = pprof_write(file, profile.started_ns, os_process_id());
    lock_release(&profile_control);
    return error;
}

static void write_configured(const char *pattern)
{
    int error = write_file(pattern, true);

    if (error)
        base_message("HAKMEM_HEAP_PROFILE: %s could not be written: %s", pattern, os_error_text(error));
}

/* ---- On request ---- */

static void dump_want(void)
{
    atomic_store_explicit(&profile.wanted, true, memory_order_relaxed);
    outside_want(OUTSIDE_LOOK_FILE);
}

static void signal_arrived(int number)
{
    (void)number;
    dump_want();
}

void dump_take_signal(const char *text)
{
    int number = os_signal_number(text), error = number ? os_signal_take(number, signal_arrived) : EINVAL;

    if (number == 0)
        base_message("HAKMEM_HEAP_PROFILE_SIGNAL=%s is no signal that a process can handle; no signal is taken", text);
    else if (error == EBUSY)
        base_message(
            "HAKMEM_HEAP_PROFILE_SIGNAL=%s: the process handles or ignores that signal already; it is not taken", text);
    else if (error)
        base_message("HAKMEM_HEAP_PROFILE_SIGNAL=%s: the signal cannot be taken: %s", text, os_error_text(error));
}

/* If the profile is being written or changed, a later call tries again. */
void dump_write_wanted(void)
{
    const char *pattern = option_path(hak_options.heap_profile);

    if (!lock_try(&profile_control)) {
        outside_want(OUTSIDE_LOOK_FILE);
        return;
    }
    if (atomic_exchange(&profile.wanted, false) && pattern)
        write_configured(pattern);
    lock_release(&profile_control);
}

void dump_note_bytes(uint64_t bytes)
{
    uint64_t interval = hak_options.heap_profile_interval, before;

    if (interval == 0)
        return;
    before = atomic_fetch_add_explicit(&interval_bytes, bytes, memory_order_relaxed);
    if (before / interval != (before + bytes) / interval)
        dump_want();
}

/* ---- Leaks ---- */

struct place {
    uintptr_t address;
    uintptr_t image; /* the last file's first mapping */
    uintptr_t base;  /* of the file or memory that the address is in; 0: it is in none */
    char name[200];
};

static bool find_place(const struct os_mapping *mapping, void *argument)
{
    struct place *place = argument;

    if (mapping->offset == 0 && mapping->path[0])
        place->image = mapping->start;
    if (place->address < mapping->start || place->address >= mapping->end)
        return true;
    place->base = mapping->path[0] == '/' ? place->image : mapping->start;
    base_format(place->name, sizeof place->name, "%s", mapping->path[0] ? mapping->path : "[anon]");
    return false;
}

static void report_label(const struct label_set *set, const struct label_item *item)
{
    const char *text = label_texts(set) + item->text, *value = text + item->key_bytes;

    if (item->kind == LABEL_IS_NUMBER)
        base_message("    label %.*s=%ld %.*s", (int)item->key_bytes, text, (long)item->number, (int)item->value_bytes,
                     value);
    else
        base_message("    label %.*s=%.*s", (int)item->key_bytes, text, (int)item->value_bytes, value);
}

static void report_leak(const struct site_view *view)
{
    const struct site *site = view->site;

    base_message("%zu bytes in %zu blocks, allocated at:", (size_t)weight_round(view->in_use.bytes),
                 (size_t)weight_round(view->in_use.objects));
    for (unsigned i = 0; site->labels && i < site->labels->count; i++)
        report_label(site->labels, &site->labels->items[i]);
    for (unsigned i = 0; i < site->frame_count && i < FRAMES_SHOWN; i++) {
        static char buffer[OS_MAPS_LINE];
        const struct python_code *function = python_is_frame(site->frames[i]) ? python_code_of(site->frames[i]) : NULL;
        if (function) {
            base_message("    %.*s (%.*s:%u)", (int)function->name_bytes, function->text, (int)function->file_bytes,
                         function->text + function->name_bytes, python_frame_line(site->frames[i]));
            continue;
        }
        struct place place = { .address = site->frames[i] - 1, .name = "?" };
        os_maps_each(find_place, &place, buffer, sizeof buffer);
        base_message("    %s+0x%zx", place.name, place.address - place.base);
    }
    if (site->frame_count > FRAMES_SHOWN)
        base_message("    and %u more", site->frame_count - FRAMES_SHOWN);
}

/* Reports how exact the figures are. A block is a sample with the chance 1 - exp(-size / mean). If none in use is one,
 * less than 3 means are in use with 95 % confidence (exp(-3) = 0.05). */
static void report_error(struct estimate sum)
{
    uint64_t mean = profile.mean;

    if (mean == 1)
        return; /* every block is a sample */
    if (sum.bytes == 0)
        base_message("no sample is in use: with 95 %% confidence less than %zu bytes are in use. `hakmem leaks -- "
                     "PROGRAM` counts every block; HAKMEM_HEAP_PROFILE_RATE=1 makes each a sample",
                     (size_t)(3 * mean));
    else
        base_message("each figure is an estimate: with 95 %% confidence the sum is right to %zu bytes, and a site that "
                     "is not listed has less than %zu. `hakmem leaks -- PROGRAM` counts every block",
                     (size_t)sum.error, (size_t)(3 * mean));
}

static void report_leaks(void)
{
    struct profile_view view = pprof_view();
    struct site_view *views = view.sites;
    size_t count = view.count, with = 0, shown;
    uint64_t bytes = 0, blocks = 0;

    for (size_t i = 0; views && i < count; i++) {
        bytes += views[i].in_use.bytes;
        blocks += views[i].in_use.objects;
        with += views[i].in_use.objects != 0;
    }
    if (!views && count)
        base_message("HAKMEM_LEAK_REPORT: no memory for the report");
    else
        base_message("in use at exit, by samples %zu bytes apart: %zu bytes in %zu blocks from %zu sites%s",
                     (size_t)profile.mean, (size_t)weight_round(bytes), (size_t)weight_round(blocks), with,
                     with > LEAKS_SHOWN ? "; those with most:"
                     : with             ? ":"
                                        : "");
    for (shown = 0; views && shown < LEAKS_SHOWN && shown < with; shown++) {
        size_t most = 0;
        for (size_t i = 1; i < count; i++)
            if (views[i].in_use.bytes > views[most].in_use.bytes)
                most = i;
        report_leak(&views[most]);
        views[most].in_use.bytes = 0;
    }
    if (views || !count)
        report_error(pprof_estimate(&view, false));
    pprof_view_end(&view);
}

void dump_at_exit(void)
{
    const char *pattern = option_path(hak_options.heap_profile);

    lock_acquire(&profile_control);
    if (pattern)
        write_configured(pattern);
    if (hak_options.leak_report)
        report_leaks();
    lock_release(&profile_control);
}
