/* Replaces libpthread.so.0 of glibc before 2.34: keys from 40 on, and their values. */
#include <pthread.h>

static const void *values[100];
static pthread_key_t next = 40;

int pthread_key_create(pthread_key_t *key, void (*at_exit)(void *))
{
    (void)at_exit;
    *key = next++;
    return 0;
}

int pthread_setspecific(pthread_key_t key, const void *value)
{
    values[key] = value;
    return 0;
}

const void *value_of(pthread_key_t key);
const void *value_of(pthread_key_t key)
{
    return values[key];
}
