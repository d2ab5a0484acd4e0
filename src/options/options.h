/* The settings in force. The first call into HAKMEM reads them once: the table's defaults, then the program's
 * hakmem_options, then HAKMEM_* variables; later sources win. A library in another allocator's place also reads that
 * allocator's settings: its compiled-in ones before hakmem_options, its variables before HAKMEM_* variables. */
#ifndef HAK_OPTIONS_OPTIONS_H
#define HAK_OPTIONS_OPTIONS_H

#include "base/base.h"
#include "options/table.h"

enum option_choice { OPTION_AUTO = 0, OPTION_NEVER = 1, OPTION_ALWAYS = 2 };
enum option_format { OPTION_NONE = 0, OPTION_TEXT = 1, OPTION_JSON = 2, OPTION_PROMETHEUS = 3 };

/* Every value is a number of the row's unit. A LIMIT of 0 means none. option_path turns the value of a PATH into
 * text. */
struct HAK_SEALED options {
#define OPTION_FIELD(field, name, kind, default_, lowest, highest, unit, doc) uint64_t field;
    OPTION_TABLE(OPTION_FIELD)
#undef OPTION_FIELD
};

/* In the hardened library, makes the values read-only from here on. False: the kernel refused; they stay writable. */
HAK_HIDDEN bool options_seal(void);

/* The text of a PATH option's value; NULL: not set. */
HAK_INLINE const char *option_path(uint64_t value) { return (const char *)(uintptr_t)value; }

/* The defaults until options_read, then constant. Only libhakmem-je.so lets programs change purge_delay and
 * purge_thread later. Each is one word, which other threads may read a moment late. */
HAK_DATA struct options hak_options;

/* Reads hakmem_options and the environment. Ignores each unknown setting and each bad value, and names it on stderr.
 * The thread that initialises the process calls it once. Never allocates. */
HAK_HIDDEN void options_read(void);

/* Sets an option from the text that its variable would have. False: the text is not a valid value. For
 * options_foreign. */
HAK_HIDDEN bool options_set(const char *name, const char *text);

/* Reads the settings of the allocator that the library replaces. options_read calls it twice: for compiled-in settings
 * before hakmem_options, and for the environment before HAKMEM_* variables. Only libraries with options/malloc_conf.c
 * set it; else NULL. */
enum options_source { OPTIONS_COMPILED, OPTIONS_ENVIRONMENT };
HAK_DATA void (*options_foreign)(enum options_source source);

/* Prints the version and all settings, one a line, and marks those that differ from the default. */
HAK_HIDDEN void options_print(void);

#endif
