/* The library's place in the life of the process. The first call into HAKMEM initialises it, from wherever it comes; this is
 * for a process that makes none before its constructors run. */
#include "front/fork.h"
#include "front/front.h"
#include "front/sample.h"
#include "observe/report.h"

/* Before the program's own constructors, whose priorities begin at 101. */
__attribute__((constructor(101))) static void at_start(void)
{
    (void)front_process_init();
    fork_register();
    observe_start();
    front_profile_at_start();
}

/* Nothing is given back at exit, when other destructors still allocate and free; nothing is said unless asked. */
__attribute__((destructor(101))) static void at_exit(void)
{
    observe_exit_report();
    front_profile_at_exit();
}
