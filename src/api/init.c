/* The library's place in the life of the process. The first call into HAKMEM initialises it, from wherever it comes; this is
 * for a process that makes none before its constructors run. */
#include <pthread.h>

#include "front/fork.h"
#include "front/process.h"
#include "front/purge_thread.h"
#include "front/sample.h"
#include "observe/report.h"
#include "os/os.h"

/* Before the program's own constructors, whose priorities begin at 101. */
__attribute__((constructor(101))) static void at_start(void)
{
    fork_register(); /* first, so that a fork waits for a thread that initialises the process */
    (void)process_init();
    purge_thread_at_start(pthread_create);
    observe_start();
    front_profile_at_start();
    os_name_no_more();
}

/* Nothing is given back at exit, when other destructors still allocate and free; nothing is said unless asked. */
__attribute__((destructor(101))) static void at_exit(void)
{
    observe_exit_report();
    front_profile_at_exit();
}
