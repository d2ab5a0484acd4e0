/*
 * Functions of threads that were in libpthread.so.0 before glibc 2.34, where a process may be without that library, or
 * get it late. libhakmem.so does not ask for it: on today's systems it would be one more file for each process to load.
 *
 * The linker's --wrap sends HAKMEM's own calls here (cmake/HakmemLibraries.cmake). Part of libhakmem.so alone: a static
 * program is linked to what it calls.
 */
#define _GNU_SOURCE
#include "os/older_libc.h"

#include <errno.h>

#include "base/base.h"
#include "os/symbols.h"

typedef int key_create_function(pthread_key_t *, void (*)(void *));
typedef int setspecific_function(pthread_key_t, const void *);

extern key_create_function __real_pthread_key_create __attribute__((weak));
extern setspecific_function __real_pthread_setspecific __attribute__((weak));
extern int __real_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size) __attribute__((weak));

HAK_HIDDEN key_create_function __wrap_pthread_key_create;
HAK_HIDDEN setspecific_function __wrap_pthread_setspecific;
HAK_HIDDEN int __wrap_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size);

/* HAKMEM makes one key, and libhakmem-je.so one more. */
#define KEYS_MOST 2u

/* The keys that were asked for while the process lacked the library. They are made when it makes its first thread. */
static struct {
    pthread_key_t *keys[KEYS_MOST];
    void (*at_exit[KEYS_MOST])(void *);
    unsigned count;
    setspecific_function *_Atomic setspecific; /* Order: any; set before the first thread is made */
} late;

static void *symbol_of_libpthread(const char *name)
{
    static const char *const libraries[] = { "libpthread.so.0", NULL };
    return os_symbol_of(libraries, name);
}

int __wrap_pthread_key_create(pthread_key_t *key, void (*at_exit)(void *))
{
    if (__real_pthread_key_create != NULL)
        return __real_pthread_key_create(key, at_exit);
    if (late.count == KEYS_MOST)
        return EAGAIN;
    late.keys[late.count] = key;
    late.at_exit[late.count++] = at_exit;
    return 0;
}

/* Without the library the only thread is the main one, whose end is the process's. */
int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
    setspecific_function *setspecific = __real_pthread_setspecific;

    if (setspecific == NULL)
        setspecific = late.setspecific;
    return setspecific != NULL ? setspecific(key, value) : 0;
}

/* Without the library threads get the default stack, which is larger. */
int __wrap_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size)
{
    return __real_pthread_attr_setstacksize != NULL ? __real_pthread_attr_setstacksize(attributes, size) : 0;
}

void older_libc_before_thread(void)
{
    union {
        void *symbol;
        key_create_function *create;
        setspecific_function *setspecific;
    } found;

    if (late.count == 0 || late.setspecific != NULL)
        return;
    found.symbol = symbol_of_libpthread("pthread_key_create");
    if (found.symbol == NULL)
        return;
    for (unsigned i = 0; i < late.count; i++)
        if (found.create(late.keys[i], late.at_exit[i]) != 0)
            return;
    found.symbol = symbol_of_libpthread("pthread_setspecific");
    late.setspecific = found.setspecific;
}
