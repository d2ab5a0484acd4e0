/*
 * Functions in front of the C library's, in the shared library alone: a static program has one definition of each.
 *
 * pthread_create, thrd_create: start the purge thread when a program starts threads; malloc must not (purge_thread.h).
 * __register_atfork: registers HAKMEM's handlers first, so that no other runs under HAKMEM's locks (front/fork.h).
 * pthread_atfork: for HAKMEM's own calls alone (linker option --wrap). The C library's lies at the end of each library,
 * on a page that a process would touch for this call alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <threads.h>

#include "api/names.h"
#include "front/fork.h"
#include "front/purge_thread.h"
#include "front/thread.h"
#include "os/older_libc.h"
#include "os/symbols.h"

/* Before glibc 2.34 a process may lack the library that defines dlsym. */
extern __typeof__(dlsym) dlsym __attribute__((weak));

typedef int thrd_create_function(thrd_t *, thrd_start_t, void *);
typedef int register_atfork_function(void (*)(void), void (*)(void), void (*)(void), void *);
typedef int atfork_function(void (*)(void), void (*)(void), void (*)(void));

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object);
HAK_HIDDEN int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* Identifies this library to the C library. */
extern void *__dso_handle __attribute__((visibility("hidden")));

/* The next definition of the name after HAKMEM's, kept in *found; NULL: there is none. Before glibc 2.34 there may be
 * no dlsym, or the library may have been opened for itself, out of dlsym's sight. */
static void *next_symbol(void *_Atomic *found, const char *name)
{
    static const char *const libraries[] = { "libpthread.so.0", "libc.so.6", NULL };

    if (*found == NULL && dlsym != NULL)
        *found = dlsym(RTLD_NEXT, name);
    if (*found == NULL)
        *found = os_symbol_of(libraries, name);
    return *found;
}

/* ISO C cannot convert a pointer to an object to one to a function. */
union next {
    void *symbol;
    os_thread_create *create;
    thrd_create_function *create_thrd;
    register_atfork_function *register_atfork;
    atfork_function *atfork;
};

static os_thread_create *libc_pthread_create(void)
{
    static void *_Atomic found; /* Order: any; every thread finds the same */
    union next next = { next_symbol(&found, "pthread_create") };

    return next.create;
}

/* What a new thread runs after thread_begun. Its maker takes a record, and the thread gives it back as it begins. */
struct beginning {
    union {
        void *(*run)(void *);
        thrd_start_t run_thrd;
    } function;
    void *argument;
    _Atomic bool taken; /* Order: acquire by the maker, release by the thread, which has read the rest */
};

static struct beginning *beginning_take(void)
{
    static struct beginning beginnings[64]; /* more threads do not begin at once; further ones are not counted */
    static _Atomic unsigned next;           /* Order: any; where to look first */
    unsigned first = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);

    for (unsigned i = 0; i < 64; i++) {
        struct beginning *beginning = &beginnings[(first + i) % 64];
        if (!atomic_exchange_explicit(&beginning->taken, true, memory_order_acquire))
            return beginning;
    }
    return NULL;
}

/* Counts a thread that is about to be made. NULL: no record is free, and the thread begins as the program said. */
static struct beginning *beginning_expect(void *argument)
{
    struct beginning *beginning;

    older_libc_before_thread();
    thread_expect();
    beginning = beginning_take();
    if (beginning)
        beginning->argument = argument;
    return beginning;
}

static struct beginning beginning_give(struct beginning *beginning)
{
    struct beginning copy = { beginning->function, beginning->argument, false };

    atomic_store_explicit(&beginning->taken, false, memory_order_release);
    return copy;
}

/* Call when the thread was made, or not. */
static void beginning_end(struct beginning *beginning, bool made, os_thread_create *create)
{
    if (made && create)
        purge_thread_at_thread(create);
    if (!made || !beginning)
        thread_not_begun();
    if (!made && beginning)
        beginning_give(beginning);
}

static void *begin_pthread(void *argument)
{
    struct beginning beginning = beginning_give(argument);

    thread_begun();
    return beginning.function.run(beginning.argument);
}

static int begin_thrd(void *argument)
{
    struct beginning beginning = beginning_give(argument);

    thread_begun();
    return beginning.function.run_thrd(beginning.argument);
}

/* What the C library allocates for a thread, and for the purge thread that beginning_end starts, belongs to no scope:
 * it lives as long as the thread. Returns the caller's scope, for cache_set_scope. */
static struct scope *outside_scopes(void)
{
    struct scope *scope = cache_scope();

    cache_set_scope(NULL);
    return scope;
}

API_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    os_thread_create *create = libc_pthread_create();
    struct beginning *beginning;
    struct scope *scope = outside_scopes();
    int result = EAGAIN;

    if (create && os_thread_is_ours(run)) {
        older_libc_before_thread();
        result = create(thread, attributes, run, argument);
        cache_set_scope(scope);
        return result;
    }
    beginning = beginning_expect(argument);
    if (beginning)
        beginning->function.run = run;
    if (create)
        result = create(thread, attributes, beginning ? begin_pthread : run, beginning ? beginning : argument);
    beginning_end(beginning, result == 0, create);
    cache_set_scope(scope);
    return result;
}

API_EXPORT int thrd_create(thrd_t *thread, thrd_start_t run, void *argument)
{
    static void *_Atomic found; /* Order: any; every thread finds the same */
    union next next = { next_symbol(&found, "thrd_create") };
    struct beginning *beginning;
    struct scope *scope;
    int result;

    if (next.symbol == NULL)
        return thrd_error;
    beginning = beginning_expect(argument);
    if (beginning)
        beginning->function.run_thrd = run;
    scope = outside_scopes();
    result = next.create_thrd(thread, beginning ? begin_thrd : run, beginning ? beginning : argument);
    beginning_end(beginning, result == thrd_success, libc_pthread_create());
    cache_set_scope(scope);
    return result;
}

/* NULL on musl, where programs call the C library's pthread_atfork. */
static register_atfork_function *libc_register_atfork(void)
{
    static void *_Atomic found; /* Order: any; every thread finds the same */
    union next next = { next_symbol(&found, "__register_atfork") };

    return next.register_atfork;
}

/* Called by the pthread_atfork that is linked into each library. */
API_EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object)
{
    register_atfork_function *libc_register = libc_register_atfork();

    if (libc_register == NULL)
        return ENOMEM;
    fork_register(); /* calls this function the first time */
    /* exit() drops an object's handlers, then flushes streams while threads fork. HAKMEM, never unloaded, keeps its. */
    return libc_register(prepare, parent, child, object == __dso_handle ? NULL : object);
}

int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    static void *_Atomic found; /* Order: any; every thread finds the same */
    union next musl;

    if (libc_register_atfork() != NULL)
        return __register_atfork(prepare, parent, child, __dso_handle);
    musl.symbol = next_symbol(&found, "pthread_atfork");
    return musl.symbol != NULL ? musl.atfork(prepare, parent, child) : ENOMEM;
}
