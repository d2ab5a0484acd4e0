/*
 * Keeps the object that contains HAKMEM in memory after dlclose. Threads that used HAKMEM call it as they end
 * (os/threads.h), the purge thread runs its code, signals may call its handlers, and the program may hold blocks.
 *
 * libhakmem.so has the linker's option -z nodelete. A static library, or the one-file source, becomes part of a plugin
 * whose linker command is not HAKMEM's: so it pins that plugin itself.
 *
 * A constructor does it rather than the first call: dlopen allocates and takes the dynamic linker's lock, and malloc
 * may do neither. This thread holds that lock already, which is recursive, and no lock of HAKMEM's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>

#include "base/format.h"

/* Weak: a static program has none of them. dlopen is found by dlsym, because ld warns of a static program that names
 * it. musl has no dladdr1, neither function nor declaration, and its dlclose unmaps nothing. */
extern __typeof__(dlsym) dlsym __attribute__((weak));
extern int dladdr1(const void *address, Dl_info *info, void **more, int which) __attribute__((weak));
enum { LINK_MAP = 2 /* RTLD_DL_LINKMAP */ };

/* NULL: HAKMEM is part of the program itself, or the system does not tell. */
static const char *file_to_pin(void)
{
    static const char here;
    union {
        void *unknown;
        struct link_map *object;
    } found = { NULL };
    Dl_info unused;

    if (dlsym == NULL || dladdr1 == NULL || dladdr1(&here, &unused, &found.unknown, LINK_MAP) == 0)
        return NULL;
    return found.object == NULL || found.object->l_name[0] == '\0' ? NULL : found.object->l_name;
}

HAK_AT_START __attribute__((constructor(101))) static void pin_object(void)
{
    const char *file = file_to_pin();
    union {
        void *symbol;
        void *(*open)(const char *file, int mode);
    } name;

    if (file == NULL)
        return;
    name.symbol = dlsym(RTLD_DEFAULT, "dlopen");
    /* Not the last call of this function: dlopen tells the name space by the caller's address. */
    if (name.symbol == NULL || name.open(file, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) == NULL)
        base_message("%.900s could not be kept in memory: do not unload it, or link it with -Wl,-z,nodelete", file);
}
