/*
 * Tells from a program's file whether a library can be preloaded into the program. Runs nothing.
 */
#ifndef RUN_EFFECT_H
#define RUN_EFFECT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Writes why `library` cannot take effect in the program of the file `path`: a text without a full stop, which is cut
 * at `size`. The text is empty if the library can take effect, or if that cannot be told.
 */
void effect_obstacle(const char *path, const char *library, char *why, size_t size);

/* Whether the file, or the interpreter of the script, is a Go program. */
bool effect_is_go(const char *path);

/* A regular file in memory. False if it cannot be read or is empty. The mapping stays until the process ends. */
struct mapped_file {
    const unsigned char *bytes;
    size_t size;
};
bool effect_map_file(const char *path, struct mapped_file *file);

#endif
