/*
 * Offsets, in bytes, of the fields of CPython that a stack of Python functions is read from. python_layout.c has those
 * of 3.9 to 3.12. Since 3.13 the interpreter has a table of them (_Py_DebugOffsets, at the start of _PyRuntime).
 */
#ifndef HAK_PROFILE_PYTHON_LAYOUT_H
#define HAK_PROFILE_PYTHON_LAYOUT_H

#include "base/base.h"

#define PYTHON_NONE UINT32_MAX /* there is no such field */

/* How to tell an entry: the outermost frame of a run of the interpreter's loop. */
enum python_entry {
    PYTHON_ENTRY_EACH, /* each frame is one */
    PYTHON_ENTRY_FLAG, /* its field `owner` is not 0 */
    PYTHON_ENTRY_SHIM  /* its caller is a shim: a frame without a function, with an `owner` of PYTHON_SHIM or above */
};
#define PYTHON_SHIM 3u

enum python_table { PYTHON_LNOTAB, PYTHON_LINE_TABLE, PYTHON_LOCATION_TABLE };

struct python_layout {
    unsigned minor; /* of 3.x */
    enum python_entry entry;
    enum python_table table;
    uint32_t runtime_interpreters;
    uint32_t interpreter_next, interpreter_threads;
    uint32_t thread_next, thread_id;
    uint32_t thread_frame;  /* the innermost frame, or its holder */
    uint32_t holder_frame;  /* PYTHON_NONE: there is no holder */
    uint32_t frame_previous, frame_code, frame_place, frame_owner;
    uint32_t object_type;
    uint32_t code_file, code_name, code_first_line, code_table;
    uint32_t code_start;    /* the first instruction; PYTHON_NONE: frame_place counts units of place_scale bytes */
    uint32_t place_scale;
    uint32_t bytes_size, bytes_data;
    uint32_t text_state, text_length, text_ascii, text_other; /* the last two: characters of ASCII and other strs */
    size_t frame_bytes, code_bytes, thread_bytes; /* bytes that hold all fields of each */
    uint32_t text_kind_shift; /* the kind's lowest bit in the state: 3 bits, then compact and ASCII */
};

/* The most bytes of each that are read at once. */
#define PYTHON_FRAME_BYTES 128u
#define PYTHON_CODE_BYTES 192u
#define PYTHON_THREAD_BYTES 320u

/* Finds the layout of the interpreter at `runtime`. version: PY_VERSION_HEX, or 0 if only the interpreter's table tells
 * it. False: the version is unknown. Holding no lock. */
HAK_HIDDEN bool python_layout_find(struct python_layout *layout, uintptr_t runtime, uint32_t version);

#endif
