#include "os/threads.h"

#include <errno.h>
#include <pthread.h>

static pthread_key_t exit_key;
static bool exit_key_made;

bool os_thread_exit_register(void (*at_exit)(void *))
{
    if (!exit_key_made)
        exit_key_made = pthread_key_create(&exit_key, at_exit) == 0;
    return exit_key_made;
}

void os_thread_exit_arm(void)
{
    int saved = errno;

    /* Any value but NULL will do: the destructor is called with it. */
    if (exit_key_made)
        pthread_setspecific(exit_key, &exit_key);
    errno = saved;
}

void os_fork_register(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    int saved = errno;

    pthread_atfork(prepare, parent, child);
    errno = saved;
}
