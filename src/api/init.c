/* The library at the start and exit of the process. The first call into HAKMEM initialises it. at_start does so in a
 * process that makes no call before its constructors run. */
#include <pthread.h>

#include "front/fork.h"
#include "front/guarded.h"
#include "front/sealed.h"
#include "front/process.h"
#include "front/purge_thread.h"
#include "front/sample.h"
#include "observe/report.h"
#include "os/os.h"

/* Before the program's own constructors, whose priorities begin at 101. */
HAK_AT_START __attribute__((constructor(101))) static void at_start(void)
{
    fork_register(); /* first, so that a fork waits for a thread that initialises the process */
    (void)process_init();
    purge_thread_at_start(pthread_create);
    observe_start();
    front_profile_at_start();
    front_guard_at_start();
    os_name_no_more();
}

/* Gives no memory back, because other destructors still allocate and free. Prints only what the options ask for. */
HAK_AT_START __attribute__((destructor(101))) static void at_exit(void)
{
    observe_exit_report();
    front_profile_at_exit();
    if (HAK_SECURE)
        sealed_look_at_exit();
}
