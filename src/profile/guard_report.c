#include "profile/guard_report.h"

#include <string.h>

#include "base/format.h"
#include "base/stderr.h"
#include "options/options.h"
#include "os/file.h"
#include "os/maps.h"
#include "os/process.h"

enum {
    MODULES_MOST = 48,
    PATHS_BYTES = 8192,
    OUTPUT_BYTES = 32768, /* holds a report of three whole stacks */
    FILE_NAME_MOST = 4096,
};

/* A mapping of code that a frame lies in. */
struct code_mapping {
    uintptr_t start, end, base; /* base: the first byte of its file that is mapped */
    uint64_t offset;
    const char *path;
    char build_id[2 * OS_BUILD_ID_MOST + 1];
};

/* The report being made. Under guard_report_lock. */
static struct {
    enum guard_error error;
    const char *function;
    enum os_access access;
    uintptr_t address;
    const struct guard_slot *slot;
    const struct guard_stack *here;
    char thread_name[16];
    struct code_mapping modules[MODULES_MOST];
    unsigned module_count;
    char paths[PATHS_BYTES];
    size_t paths_used;
    struct os_modules walk;
    uintptr_t image; /* where the last file's first byte is mapped */
    char output[OUTPUT_BYTES];
    size_t used;
    char maps_buffer[OS_MAPS_LINE];
    _Alignas(8) char module_buffer[OS_MODULES_BUFFER];
} report;

/* ---- Output ---- */

static HAK_PRINTF(1, 2) void say(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    report.used += base_format_v(report.output + report.used, sizeof report.output - report.used, format, arguments);
    va_end(arguments);
}

/* ---- The files that the frames are in ---- */

static bool stack_touches(const struct guard_stack *stack, const struct os_mapping *mapping)
{
    for (unsigned i = 0; i < stack->count; i++)
        if (stack->frames[i] >= mapping->start && stack->frames[i] < mapping->end)
            return true;
    return false;
}

static const char *keep_path(const char *path)
{
    size_t size = strlen(path) + 1;
    char *kept = report.paths + report.paths_used;

    if (report.module_count && strcmp(report.modules[report.module_count - 1].path, path) == 0)
        return report.modules[report.module_count - 1].path;
    if (size > sizeof report.paths - report.paths_used)
        return "";
    memcpy(kept, path, size);
    report.paths_used += size;
    return kept;
}

static bool note_mapping(const struct os_mapping *mapping, void *unused)
{
    const struct os_module *module = os_modules_next(&report.walk, mapping);
    const struct guard_slot *slot = report.slot;
    struct code_mapping *code;

    (void)unused;
    if (mapping->offset == 0 && mapping->path[0])
        report.image = mapping->start;
    if (!mapping->executable || mapping->path[0] == '\0' || report.module_count == MODULES_MOST ||
        !(stack_touches(report.here, mapping) ||
          (slot && (stack_touches(&slot->allocated, mapping) || stack_touches(&slot->freed, mapping)))))
        return true;
    code = &report.modules[report.module_count];
    *code = (struct code_mapping){ .start = mapping->start,
                                   .end = mapping->end,
                                   .base = mapping->start,
                                   .offset = mapping->offset,
                                   .path = keep_path(mapping->path) };
    if (mapping->path[0] == '/')
        code->base = module ? module->start : report.image;
    for (size_t i = 0; module && i < module->build_id_size; i++)
        base_format(code->build_id + 2 * i, 3, "%02x", module->build_id[i]);
    report.module_count++;
    return true;
}

static void find_modules(void)
{
    report.module_count = 0;
    report.paths_used = 0;
    report.image = 0;
    os_modules_begin(&report.walk, report.module_buffer);
    os_maps_each(note_mapping, NULL, report.maps_buffer, sizeof report.maps_buffer);
    os_modules_end(&report.walk);
}

static const struct code_mapping *module_of(uintptr_t address)
{
    for (unsigned i = 0; i < report.module_count; i++)
        if (address >= report.modules[i].start && address < report.modules[i].end)
            return &report.modules[i];
    return NULL;
}

/* ---- Words ---- */

static const char *const access_words[] = { [OS_ACCESS_UNKNOWN] = "access",
                                            [OS_ACCESS_READ] = "read",
                                            [OS_ACCESS_WRITE] = "write",
                                            [OS_ACCESS_EXECUTE] = "execute" };

static const char *const error_words[] = {
    [GUARD_BEHIND] = "overflow",
    [GUARD_BEFORE] = "underflow",
    [GUARD_AFTER_FREE] = "use-after-free",
    [GUARD_NO_BLOCK] = "no-block",
    [GUARD_INSIDE] = "inside",
    [GUARD_DOUBLE_FREE] = "double-free",
    [GUARD_INVALID_FREE] = "invalid-free",
    [GUARD_DAMAGED_BEHIND] = "damage-behind",
    [GUARD_DAMAGED_BEFORE] = "damage-before",
};

static const char *plural(uintptr_t number) { return number == 1 ? "" : "s"; }

/* Where the address lies relative to the block. */
static void say_place(void)
{
    const struct guard_slot *slot = report.slot;
    uintptr_t end = slot->block + slot->size, apart;

    if (report.address < slot->block) {
        apart = slot->block - report.address;
        say("%zu byte%s before the start", (size_t)apart, plural(apart));
    } else if (report.address >= end) {
        apart = report.address - end;
        say("%zu byte%s behind the end", (size_t)apart, plural(apart));
    } else {
        say("at byte %zu", (size_t)(report.address - slot->block));
    }
    say(" of a block of %zu byte%s at %p", slot->size, plural(slot->size), (void *)slot->block);
}

static void say_head(void)
{
    say("hakmem: guard: ");
    switch (report.error) {
    case GUARD_DOUBLE_FREE:
        say("%s(%p): freed already: a block of %zu byte%s", report.function, (void *)report.address, report.slot->size,
            plural(report.slot->size));
        break;
    case GUARD_INVALID_FREE:
        say("%s(%p): not the start of a block: ", report.function, (void *)report.address);
        say_place();
        if (report.slot->state == GUARD_FREED)
            say(" that is free");
        break;
    case GUARD_DAMAGED_BEHIND:
    case GUARD_DAMAGED_BEFORE:
        say("%s(%p): written around the block: changed ", report.function, (void *)report.slot->block);
        say_place();
        break;
    case GUARD_NO_BLOCK:
        if (report.function)
            say("%s(%p): no block was ever there", report.function, (void *)report.address);
        else
            say("%s at %p, near no block", access_words[report.access], (void *)report.address);
        break;
    default:
        say("%s at %p, ", access_words[report.access], (void *)report.address);
        say_place();
        if (report.error == GUARD_AFTER_FREE)
            say(" that was freed");
    }
    say("\nhakmem: guard: by thread %u (%s) of process %u\n", report.here->thread, report.thread_name, os_process_id());
}

static void say_stack(const char *what, const struct guard_stack *stack)
{
    if (stack->thread == 0)
        return;
    say("hakmem: guard: %s by thread %u:\n", what, stack->thread);
    for (unsigned i = 0; i < stack->count; i++) {
        const struct code_mapping *module = module_of(stack->frames[i]);
        say("hakmem: guard:     #%u %p", i, (void *)stack->frames[i]);
        if (module)
            say(" %s+0x%zx", module->path, (size_t)(stack->frames[i] - module->base));
        if (module && module->build_id[0])
            say(" (build-id %s)", module->build_id);
        say("\n");
    }
    if (stack->count == 0)
        say("hakmem: guard:     no stack is known\n");
}

static void write_text(void)
{
    bool is_call = report.function != NULL;

    report.used = 0;
    say_head();
    if (report.slot) {
        say_stack("allocated", &report.slot->allocated);
        say_stack("freed", &report.slot->freed);
    }
    say_stack(is_call ? "called" : "accessed", report.here);
    (void)os_file_write(base_stderr(), report.output, report.used);
}

/* ---- JSON ---- */

static void say_string(const char *text)
{
    say("\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            say("\\%c", *text);
        else if ((unsigned char)*text < ' ' || *text == 127)
            say("\\u%04x", (unsigned)(unsigned char)*text);
        else
            say("%c", *text);
    }
    say("\"");
}

/* Addresses are strings, because readers of JSON often turn numbers into floating point. */
static void say_json_stack(const char *name, const struct guard_stack *stack)
{
    say("\"%s\":{\"thread\":%u,\"frames\":[", name, stack->thread);
    for (unsigned i = 0; i < stack->count; i++)
        say("%s\"%p\"", i ? "," : "", (void *)stack->frames[i]);
    say("]}");
}

static void say_json_block(const struct guard_slot *slot)
{
    say("\"block\":{\"address\":\"%p\",\"size\":%zu,\"offset\":%s%zu,\"state\":\"%s\"},", (void *)slot->block,
        slot->size, report.address < slot->block ? "-" : "",
        (size_t)(report.address < slot->block ? slot->block - report.address : report.address - slot->block),
        slot->state == GUARD_LIVE ? "live" : "freed");
    say_json_stack("allocated", &slot->allocated);
    say(",");
    if (slot->freed.thread) {
        say_json_stack("freed", &slot->freed);
        say(",");
    }
}

static void say_json(void)
{
    say("{\"version\":1,\"error\":\"%s\",\"access\":", error_words[report.error]);
    if (report.function)
        say("null,\"function\":\"%s\",", report.function);
    else
        say("\"%s\",\"function\":null,", access_words[report.access]);
    say("\"address\":\"%p\",\"time_ns\":\"%lu\",\"process\":%u,\"thread\":{\"id\":%u,\"name\":", (void *)report.address,
        os_time_of_day(), os_process_id(), report.here->thread);
    say_string(report.thread_name);
    say("},");
    if (report.slot)
        say_json_block(report.slot);
    say_json_stack(report.function ? "called" : "accessed", report.here);
    say(",\"modules\":[");
    for (unsigned i = 0; i < report.module_count; i++) {
        const struct code_mapping *module = &report.modules[i];
        if (sizeof report.output - report.used < 6 * strlen(module->path) + 256) /* the line stays whole */
            break;
        say("%s{\"start\":\"%p\",\"end\":\"%p\",\"offset\":%lu,\"build_id\":\"%s\",\"path\":", i ? "," : "",
            (void *)module->start, (void *)module->end, module->offset, module->build_id);
        say_string(module->path);
        say("}");
    }
    say("]}\n");
}

/* Appends the report with one write, because other processes may write to the file, too. */
static void write_json(const char *pattern)
{
    static char name[FILE_NAME_MOST];
    bool fits = os_file_path(name, sizeof name, pattern, 0, NULL);
    int file = fits ? os_file_append(name) : -1, error;

    report.used = 0;
    say_json();
    error = file < 0 ? -file : os_file_write(file, report.output, report.used);
    if (file >= 0)
        (void)os_file_close(file);
    if (error)
        base_message("HAKMEM_GUARD_FILE: %s could not be written: %s", pattern,
                     fits ? os_error_text(error) : "the name is too long");
}

void report_make(enum guard_error error, const char *function, enum os_access access, uintptr_t address,
                 const struct guard_slot *slot, const struct guard_stack *here)
{
    const char *pattern = option_path(hak_options.guard_file);

    report.error = error;
    report.function = function;
    report.access = access;
    report.address = address;
    report.slot = slot;
    report.here = here;
    os_fault_thread_name(report.thread_name);
    find_modules();
    write_text();
    if (pattern)
        write_json(pattern);
}
