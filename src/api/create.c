/*
 * Names of the C library's that HAKMEM stands in front of, in the shared library alone: a static program has one of each.
 *
 * pthread_create, thrd_create: the purge thread is made where the program makes threads, as malloc and free must not (purge_thread.h).
 * __register_atfork: HAKMEM's handlers are registered before all others, so that theirs do not run under its locks (front/fork.h).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <threads.h>

#include "api/names.h"
#include "front/fork.h"
#include "front/purge_thread.h"

typedef int thrd_create_function(thrd_t *, thrd_start_t, void *);
typedef int register_atfork_function(void (*)(void), void (*)(void), void (*)(void), void *);

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object);

/* Names this library to the C library. */
extern void *__dso_handle __attribute__((visibility("hidden")));

/* The next definition of the name behind HAKMEM's; before glibc 2.34 maybe in a library that was opened for itself. */
static void *next_symbol(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name), *library;

    if (found == NULL && (library = dlopen("libpthread.so.0", RTLD_LAZY | RTLD_NOLOAD)) != NULL)
        found = dlsym(library, name);
    return found;
}

static os_thread_create *libc_pthread_create(void)
{
    static os_thread_create *_Atomic found;
    union {
        void *symbol;
        os_thread_create *function;
    } next;

    if (found == NULL) {
        next.symbol = next_symbol("pthread_create");
        found = next.function;
    }
    return found;
}

API_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    os_thread_create *create = libc_pthread_create();
    int result = create ? create(thread, attributes, run, argument) : EAGAIN;

    if (result == 0)
        purge_thread_at_thread(create);
    return result;
}

API_EXPORT int thrd_create(thrd_t *thread, thrd_start_t run, void *argument)
{
    static thrd_create_function *_Atomic libc_create;
    union {
        void *symbol;
        thrd_create_function *function;
    } next;
    int result;

    if (libc_create == NULL) {
        next.symbol = next_symbol("thrd_create");
        if (next.symbol == NULL)
            return thrd_error;
        libc_create = next.function;
    }
    result = libc_create(thread, run, argument);
    if (result == thrd_success && libc_pthread_create())
        purge_thread_at_thread(libc_pthread_create());
    return result;
}

/* What pthread_atfork, which is linked into each library, calls. */
API_EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object)
{
    static register_atfork_function *_Atomic libc_register;
    union {
        void *symbol;
        register_atfork_function *function;
    } next;

    if (libc_register == NULL) {
        next.symbol = next_symbol("__register_atfork");
        if (next.symbol == NULL)
            return ENOMEM;
        libc_register = next.function;
    }
    fork_register(); /* comes back here the first time */
    /* exit() takes an object's handlers away before it flushes streams, while threads still fork. HAKMEM's stay: it is never unloaded. */
    return libc_register(prepare, parent, child, object == __dso_handle ? NULL : object);
}
