/* A wrong allocator: every 97th block overlaps the one before it. The benchmark programs must notice. */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

enum { EVERY = 97, HEADER = 16 };

static char memory[1 << 30] __attribute__((aligned(16)));
static size_t used;
static unsigned calls;
static char *previous;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *malloc(size_t size)
{
    pthread_mutex_lock(&lock);
    size_t whole = (size + HEADER + 15) / 16 * 16;
    char *block = NULL;
    if (++calls % EVERY == 0) {
        block = previous + (calls % 2) * 8;
    } else if (used + whole <= sizeof memory) {
        block = memory + used + HEADER;
        memcpy(memory + used, &size, sizeof size);
        used += whole;
        previous = block;
    }
    pthread_mutex_unlock(&lock);
    return block;
}

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *block, size_t size)
{
    void *copy = malloc(size);
    if (block != NULL && copy != NULL) {
        size_t old;
        memcpy(&old, (char *)block - HEADER, sizeof old);
        memcpy(copy, block, old < size ? old : size);
    }
    return copy;
}
