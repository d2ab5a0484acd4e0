/* The settings in force: the table's defaults, changed by HAKMEM_* variables, read once at the first call into HAKMEM. */
#ifndef HAK_OPTIONS_OPTIONS_H
#define HAK_OPTIONS_OPTIONS_H

#include "base/base.h"
#include "options/table.h"

enum option_choice { OPTION_AUTO = 0, OPTION_NEVER = 1, OPTION_ALWAYS = 2 };
enum option_format { OPTION_NONE = 0, OPTION_TEXT = 1, OPTION_JSON = 2, OPTION_PROMETHEUS = 3 };

/* Every value as a number of the row's unit; a LIMIT of 0 means none. Of a PATH, option_path makes the
 * text. */
struct options {
#define OPTION_FIELD(field, name, kind, default_, lowest, highest, unit, doc) uint64_t field;
    OPTION_TABLE(OPTION_FIELD)
#undef OPTION_FIELD
};

/* The text of a PATH option's value; NULL: not set. */
HAK_INLINE const char *option_path(uint64_t value) { return (const char *)(uintptr_t)value; }

/* Constant after options_read; the defaults before it. */
HAK_DATA struct options hak_options;

/* Reads the environment. Names each unknown HAKMEM_ variable and each bad value on stderr and ignores it. Called once, by the
 * thread that initialises; never allocates. */
HAK_HIDDEN void options_read(void);

/* Prints version and settings, one line a row, those that differ from the default marked. */
HAK_HIDDEN void options_print(void);

#endif
