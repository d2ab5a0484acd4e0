/* The line of an instruction, from the table that CPython's compiler makes for each function. */
#ifndef HAK_PROFILE_PYTHON_LINES_H
#define HAK_PROFILE_PYTHON_LINES_H

#include "profile/python_layout.h"

/* The line of the instruction `place` bytes behind the first. 0: it has none, or the table cannot be read. Formats:
 * Objects/lnotab_notes.txt of 3.9 and 3.10, InternalDocs/code_objects.md of CPython. size: bytes of the table. */
HAK_HIDDEN uint32_t python_line(enum python_table kind, uintptr_t table, size_t size, uint32_t first_line,
                                int64_t place);

#endif
