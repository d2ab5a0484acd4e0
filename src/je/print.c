/* malloc_stats_print, in HAKMEM's own formats, and malloc_message. */
#include <string.h>

#include <hakmem/jemalloc.h>
#include <hakmem/stats.h>

#include "api/names.h"
#include "base/format.h"
#include "base/stderr.h"
#include "base/version.h"
#include "je/arenas.h"
#include "je/figures.h"
#include "je/names.h"
#include "observe/output.h"

/* A program may set or define these: they are weak, and read through the dynamic linker's table. */
__attribute__((weak)) void (*malloc_message)(void *argument, const char *text);
__attribute__((weak)) void (*je_malloc_message)(void *argument, const char *text);

typedef void print_function(void *argument, const char *text);

struct printing {
    print_function *print;
    void *argument;
};

/* jemalloc's callers expect strings that end in a 0, so the text goes out in pieces. */
static int pass(void *argument, const char *text, size_t length)
{
    struct printing *printing = argument;
    char piece[512];

    if (printing->print == NULL) {
        int file = base_stderr();
        return output_to_file(&file, text, length);
    }
    while (length) {
        size_t part = base_min(length, sizeof piece - 1);
        memcpy(piece, text, part);
        piece[part] = '\0';
        printing->print(printing->argument, piece);
        text += part;
        length -= part;
    }
    return 0;
}

/* Prints the members that readers of jemalloc's JSON look for, and HAKMEM's own document as one more. */
static void print_json(struct printing *printing)
{
    char head[640];
    struct figures now = { 0 };
    const struct figures *figures;
    size_t length;

    lock_acquire(&control_lock);
    figures = figures_take() ? figures_get() : NULL;
    if (figures)
        now = *figures;
    lock_release(&control_lock);
    length = base_format(
        head, sizeof head,
        "{\"jemalloc\": {\"version\": \"%s\", \"stats\": {\"allocated\": %llu, \"active\": %llu, \"metadata\": %llu, "
        "\"resident\": %llu, \"mapped\": %llu, \"retained\": %llu}}, \"hakmem\": ",
        JEMALLOC_VERSION " (HAKMEM " BASE_VERSION_STRING ")", (unsigned long long)now.allocated,
        (unsigned long long)now.active, (unsigned long long)now.metadata, (unsigned long long)now.resident,
        (unsigned long long)now.mapped, (unsigned long long)now.retained);
    pass(printing, head, length);
    hak_stats_print(HAK_STATS_JSON, pass, printing);
    pass(printing, "}\n", 2);
}

API_EXPORT void malloc_stats_print(print_function *print, void *argument, const char *options)
{
    struct printing printing = { print ? print : malloc_message ? malloc_message : je_malloc_message, argument };

    if (options && strchr(options, 'J'))
        print_json(&printing);
    else
        hak_stats_print(HAK_STATS_TEXT, pass, &printing);
}

JE_ALIAS(malloc_stats_print)
