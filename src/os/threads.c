#include "os/threads.h"

#include <errno.h>
#include <pthread.h>

/* ---- The end of a thread ---- */

/* Registers a function that the C library calls with the object when the thread ends: C++ thread_locals are destroyed
 * this way. Unlike keys, such registrations are not limited in number. musl has no such function. */
extern int __cxa_thread_atexit_impl(void (*function)(void *), void *object, void *dso) __attribute__((weak));
extern void *__dso_handle __attribute__((weak, visibility("hidden")));

static pthread_key_t exit_key;
static bool exit_key_made;
static void (*_Atomic exit_function)(void *); /* Order: any; a thread stores it before it arms its own end */
static _Thread_local bool armed;

static void run_exit_function(void *value)
{
    void (*function)(void *) = atomic_load_explicit(&exit_function, memory_order_relaxed);

    function(value);
}

/* Making a key takes no lock of the C library's. */
void os_thread_exit_prepare(void)
{
    int saved = errno;

    if (!exit_key_made)
        exit_key_made = pthread_key_create(&exit_key, run_exit_function) == 0;
    errno = saved;
}

bool os_thread_exit_arm(void (*at_exit)(void *))
{
    int saved = errno;
    bool done = false;

    if (armed)
        return false;
    exit_function = at_exit;
    /* Any value but NULL will do: the destructor is called with it. */
    if (exit_key_made)
        done = pthread_setspecific(exit_key, &exit_key) == 0;
    if (!done && __cxa_thread_atexit_impl != NULL)
        done = __cxa_thread_atexit_impl(run_exit_function, &exit_key, &__dso_handle) == 0;
    errno = saved;
    done = done && !armed; /* what the calls allocated may have armed the thread */
    armed |= done;
    return done;
}

bool os_thread_exit_is_armed(void)
{
    return armed;
}

/* ---- fork ---- */

void os_fork_register(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    int saved = errno;

    pthread_atfork(prepare, parent, child);
    errno = saved;
}

/* glibc's, exported since 2.2.5; the lock is recursive. Its flag for a process of one thread is there since 2.32. */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));
extern char __libc_single_threaded __attribute__((weak));

static bool streams_locked; /* changed under the streams' lock */

void os_streams_lock(void)
{
    bool alone = &__libc_single_threaded && __libc_single_threaded;

    if (alone || !_IO_list_lock || !_IO_list_unlock || !_IO_list_resetlock)
        return;
    _IO_list_lock();
    streams_locked = true;
}

void os_streams_unlock(void)
{
    if (streams_locked) {
        streams_locked = false;
        _IO_list_unlock();
    }
}

/* As glibc's own fork does in the child of a process with threads. */
void os_streams_reset_in_child(void)
{
    if (streams_locked) {
        streams_locked = false;
        _IO_list_resetlock();
    }
}
