/*
 * foreign_loader WRITER WHAT: a thread writes heap profiles while main, called by dl_iterate_phdr, holds the dynamic
 * loader's lock of its list of objects. Main waits there until some profiles have been written, and then does WHAT.
 *
 * WRITER: call    the thread calls hak_profile_write_fd
 *         malloc  it allocates, and HAKMEM_HEAP_PROFILE_INTERVAL makes malloc write a file
 * WHAT:   use     main allocates and frees all sizes, and starts, writes and stops a profile
 *         fork    main forks, and the child does the same
 *         beside  main takes the lock and does `use` repeatedly, without waiting, while a second thread forks
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>

#include "foreign.h"

enum { PROFILES = 3, ROUNDS = 10, FORKS = 10 };

static int (*profile_start)(size_t);
static void (*profile_stop)(void);
static int (*profile_write_fd)(int);

static bool writes_by_malloc;
static const char *what;
static int nowhere;
static atomic_uint written; /* calls that may have written a profile */
static atomic_bool done;

static void find(void *function, const char *name)
{
    *(void **)function = dlsym(RTLD_DEFAULT, name);
    if (!*(void **)function)
        fail(name);
}

static void write_profile(void)
{
    if (profile_write_fd(nowhere))
        fail("hak_profile_write_fd");
}

static void *write_profiles(void *unused)
{
    while (!atomic_load(&done)) {
        if (writes_by_malloc)
            use_all_sizes(); /* allocates several intervals */
        else
            write_profile();
        atomic_fetch_add(&written, 1);
    }
    return unused;
}

static void use(void)
{
    use_all_sizes();
    if (profile_start(4096))
        fail("hak_profile_start");
    use_all_sizes();
    write_profile();
    profile_stop();
    if (profile_start(4096))
        fail("hak_profile_start");
}

static void use_in_child(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        use();
        _exit(0);
    }
    expect_child(pid, "a child");
}

static void *fork_often(void *unused)
{
    for (int i = 0; i < FORKS; i++)
        use_in_child();
    return unused;
}

static void wait_for_profiles(void)
{
    unsigned before = atomic_load(&written);

    for (long waited = 0; atomic_load(&written) < before + PROFILES; waited += 1000) {
        if (waited > HUNG_SECONDS * 1000000L)
            fail("the writer waits for the loader's lock");
        usleep(1000);
    }
}

static int under_the_lock(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)info;
    (void)size;
    (void)unused;
    if (strcmp(what, "beside") != 0)
        wait_for_profiles();
    if (strcmp(what, "fork") == 0)
        use_in_child();
    else
        use();
    return 1;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    if (argc != 3)
        return 2;
    writes_by_malloc = strcmp(argv[1], "malloc") == 0;
    what = argv[2];
    nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    find(&profile_start, "hak_profile_start");
    find(&profile_stop, "hak_profile_stop");
    find(&profile_write_fd, "hak_profile_write_fd");
    if (profile_start(4096))
        fail("hak_profile_start");
    use_all_sizes();
    thread = begin_thread(write_profiles, NULL);
    if (strcmp(what, "beside") == 0) {
        pthread_t forker = begin_thread(fork_often, NULL);
        for (int i = 0; i < ROUNDS; i++)
            dl_iterate_phdr(under_the_lock, NULL);
        pthread_join(forker, NULL);
    } else {
        dl_iterate_phdr(under_the_lock, NULL);
    }
    atomic_store(&done, true);
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
