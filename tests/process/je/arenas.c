/* Arenas: made, used, reset and destroyed; threads bound to an arena; fork. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hakmem/hakmem.h>
#include <jemalloc/jemalloc.h>

#include "check.h"

static size_t get(const char *format, unsigned number)
{
    size_t value = 0, size = sizeof value, epoch = 1;
    char name[96];

    CHECK(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0);
    snprintf(name, sizeof name, format, number);
    if (mallctl(name, &value, &size, NULL, 0) != 0) /* an unsigned */
        CHECK(size == 4);
    return value;
}

static int act(const char *format, unsigned number)
{
    char name[96];

    snprintf(name, sizeof name, format, number);
    return mallctl(name, NULL, NULL, NULL, 0);
}

static unsigned create(void)
{
    unsigned number = 0;
    size_t size = sizeof number;

    CHECK(mallctl("arenas.create", &number, &size, NULL, 0) == 0);
    return number;
}

static unsigned arena_of(void *block)
{
    unsigned number = 77;
    size_t size = sizeof number;

    CHECK(mallctl("arenas.lookup", &number, &size, &block, sizeof block) == 0);
    return number;
}

static void bind(unsigned number)
{
    unsigned old;
    size_t size = sizeof old;

    CHECK(mallctl("thread.arena", &old, &size, &number, sizeof number) == 0);
}

static void life(void)
{
    unsigned one = create(), two = create(), again;
    char *blocks[500], *huge, *other;
    size_t size, before = get("stats.allocated", 0);
    bool is;

    CHECK(one == 1 && two == 2);
    for (int i = 0; i < 500; i++) {
        blocks[i] = mallocx(100 + i, MALLOCX_ARENA(one) | (i % 2 ? MALLOCX_TCACHE_NONE : 0));
        memset(blocks[i], i, 100 + i);
        CHECK(arena_of(blocks[i]) == one);
    }
    huge = mallocx(3 << 20, MALLOCX_ARENA(one) | MALLOCX_ZERO);
    other = mallocx(1000, MALLOCX_ARENA(two));
    CHECK(arena_of(huge) == one && arena_of(other) == two && arena_of(malloc(10)) == 0);
    CHECK(get("stats.arenas.%u.large.allocated", one) == sallocx(huge, 0));
    CHECK(get("stats.arenas.%u.small.allocated", two) == sallocx(other, 0) &&
          get("stats.arenas.%u.lextents.23.curlextents", one) == 1);
    CHECK(get("stats.arenas.%u.small.allocated", one) + get("stats.arenas.%u.small.allocated", two) +
              get("stats.arenas.%u.small.allocated", 0) == get("stats.arenas.%u.small.allocated", MALLCTL_ARENAS_ALL));

    /* A block stays in its arena, and moves to another that the call names. */
    blocks[0] = rallocx(blocks[0], 9000, 0);
    CHECK(arena_of(blocks[0]) == one);
    blocks[0] = rallocx(blocks[0], 9000, MALLOCX_ARENA(two));
    CHECK(arena_of(blocks[0]) == two);
    blocks[1] = rallocx(blocks[1], 10, MALLOCX_ARENA(0));
    CHECK(arena_of(blocks[1]) == 0);
    dallocx(blocks[1], 0);
    free(blocks[2]);

    CHECK(act("arena.%u.reset", one) == 0 && get("stats.arenas.%u.small.allocated", one) == 0);
    CHECK(get("stats.arenas.%u.large.allocated", one) == 0);
    CHECK(act("arena.%u.purge", two) == 0 && memcmp(blocks[0], "\0\0\0\0", 4) == 0);
    CHECK(act("arena.%u.destroy", two) == 0 && act("arena.%u.destroy", two) == EFAULT);
    size = sizeof is;
    CHECK(mallctl("arena.2.initialized", &is, &size, NULL, 0) == 0 && !is);
    CHECK(mallctl("arena.1.initialized", &is, &size, NULL, 0) == 0 && is);
    CHECK(mallocx(10, MALLOCX_ARENA(two)) == NULL);
    again = create();
    CHECK(again == two && act("arena.%u.destroy", again) == 0 && act("arena.%u.destroy", one) == 0);
    CHECK(get("stats.allocated", 0) <= before + 32 && get("arenas.narenas", 0) == 3 + ((size_t)0));
}

/* Hooks that map memory are not supported. */
static void refusals(void)
{
    void *hooks = &hooks;
    unsigned number, wide = 9;
    size_t size = sizeof number, wrong = 8;

    CHECK(mallctl("arenas.create", &number, &size, &hooks, sizeof hooks) == EPERM);
    CHECK(mallctl("arenas.create", &number, &wrong, NULL, 0) == EINVAL && wrong == 0);
    CHECK(mallctl("thread.arena", NULL, NULL, &wide, sizeof wide) == EFAULT);
    hooks = &size;
    CHECK(mallctl("arenas.lookup", &number, &size, &hooks, sizeof hooks) == EINVAL);
}

static unsigned bound;

static void *works_bound(void *unused)
{
    void *blocks[2000];
    uint64_t *allocated, before;
    size_t size = sizeof allocated;

    (void)unused;
    free(malloc(100));
    bind(bound);
    CHECK(mallctl("thread.allocatedp", &allocated, &size, NULL, 0) == 0);
    for (int i = 0; i < 2000; i++) {
        before = *allocated;
        blocks[i] = i % 3 == 0 ? malloc(i) : i % 3 == 1 ? calloc(1, i * 10) : aligned_alloc(64, 64 * (i % 40 + 1));
        CHECK(arena_of(blocks[i]) == bound && *allocated == before + sallocx(blocks[i], 0));
    }
    void *huge = malloc(2 << 20), *aligned = aligned_alloc(1 << 18, 1 << 18);
    CHECK(arena_of(huge) == bound && arena_of(aligned) == bound && get("stats.arenas.%u.nthreads", bound) == 1);
    CHECK(act("arena.%u.destroy", bound) == EFAULT);
    for (int i = 0; i < 2000; i += 2)
        free(blocks[i]);
    bind(0);
    void *usual = malloc(100);
    CHECK(arena_of(usual) == 0);
    free(usual);
    for (int i = 1; i < 2000; i += 2)
        free(blocks[i]);
    free(huge);
    free(aligned);
    CHECK(get("stats.arenas.%u.small.allocated", bound) == 0);
    bind(bound); /* the thread ends bound to it */
    free(malloc(10));
    return NULL;
}

static void threads(void)
{
    pthread_t thread;

    bound = create();
    CHECK(pthread_create(&thread, NULL, works_bound, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(get("stats.arenas.%u.nthreads", bound) == 0 && act("arena.%u.destroy", bound) == 0);
}

static pthread_key_t after_end;

/* Runs after libhakmem-je's own end of the thread, whose key is older. */
static void ends(void *number)
{
    char *block = malloc(100);

    CHECK(arena_of(block) == 0);
    CHECK(act("arena.%u.destroy", (unsigned)(uintptr_t)number) == 0);
    memset(block, 1, 100);
    free(block);
}

static void *ends_bound(void *unused)
{
    unsigned number = create();

    bind(number);
    free(malloc(100));
    CHECK(pthread_setspecific(after_end, (void *)(uintptr_t)number) == 0);
    return unused;
}

/* A bound thread that ends leaves its arena. What its later destructors allocate is not in it, as it may be gone. */
static void thread_ends(void)
{
    pthread_t thread;

    CHECK(pthread_key_create(&after_end, ends) == 0);
    CHECK(pthread_create(&thread, NULL, ends_bound, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void *churns(void *stop)
{
    while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED)) {
        unsigned number = create();
        get("stats.allocated", 0);
        CHECK(act("arena.%u.destroy", number) == 0);
    }
    return NULL;
}

/* Forks while another thread holds the lock of the arenas. */
static void forks(void)
{
    bool stop = false;
    pthread_t thread;
    int status;

    CHECK(pthread_create(&thread, NULL, churns, &stop) == 0);
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(600); /* ends a hang */
            unsigned number = create();
            void *block = mallocx(100, MALLOCX_ARENA(number));
            _exit(arena_of(block) == number && get("stats.arenas.%u.small.allocated", number) == sallocx(block, 0) ? 0
                                                                                                                   : 1);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}

static void caches(void)
{
    unsigned one, two, none = 999;
    size_t size = sizeof one;

    CHECK(mallctl("tcache.create", &one, &size, NULL, 0) == 0 && mallctl("tcache.create", &two, &size, NULL, 0) == 0 &&
          one != two);
    void *block = mallocx(100, MALLOCX_TCACHE(one));
    dallocx(block, MALLOCX_TCACHE(one));
    CHECK(mallctl("tcache.flush", NULL, NULL, &one, sizeof one) == 0 &&
          mallctl("tcache.destroy", NULL, NULL, &one, sizeof one) == 0);
    CHECK(mallctl("tcache.destroy", NULL, NULL, &one, sizeof one) == EFAULT &&
          mallctl("tcache.flush", NULL, NULL, &none, sizeof none) == EFAULT);
    CHECK(mallctl("tcache.destroy", NULL, NULL, &two, sizeof two) == 0);
    CHECK(mallctl("thread.idle", NULL, NULL, NULL, 0) == 0);

    bool is, off = false, on = true;
    size = sizeof is;
    CHECK(mallctl("thread.tcache.enabled", &is, &size, &off, sizeof off) == 0 && is);
    void *blocks[100];
    size_t cached = get("stats.arenas.%u.tcache_bytes", 0);
    for (int i = 0; i < 100; i++)
        blocks[i] = malloc(i * 50);
    for (int i = 0; i < 100; i++)
        free(blocks[i]);
    CHECK(cached == 0 && get("stats.arenas.%u.tcache_bytes", 0) == 0);
    CHECK(mallctl("thread.tcache.enabled", &is, &size, &on, sizeof on) == 0 && !is);
    free(malloc(100));
    CHECK(get("stats.arenas.%u.tcache_bytes", 0) > 0);
}

static void names(void)
{
    char own[32] = "", *room = own;
    const char *fresh = "cache of pages";
    unsigned number = create();
    size_t size = sizeof room;
    char name[32];

    snprintf(name, sizeof name, "arena.%u.name", number);
    CHECK(mallctl(name, &room, &size, &fresh, sizeof fresh) == 0 && strncmp(own, "manual_", 7) == 0);
    CHECK(mallctl(name, &room, &size, NULL, 0) == 0 && strcmp(own, fresh) == 0);
}

int main(void)
{
    life();
    refusals();
    threads();
    thread_ends();
    caches();
    forks();
    names();
    puts("done");
    return 0;
}
