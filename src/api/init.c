/* The library's place in the life of the process. The first call into HAKMEM initialises it, from wherever it comes; this is
 * for a process that makes none before its constructors run. */
#include "front/fork.h"
#include "front/front.h"
#include "observe/report.h"
#include "options/options.h"

/* Before the program's own constructors, whose priorities begin at 101. */
__attribute__((constructor(101))) static void at_start(void)
{
    (void)front_process_init();
    fork_register();
}

/* Nothing is given back at exit, when other destructors still allocate and free; nothing is said unless asked. */
__attribute__((destructor(101))) static void at_exit(void)
{
    if (hak_options.show_stats || hak_options.front_stats || hak_options.warm_pool_stats || hak_options.debug_counters ||
        hak_options.tiny_profile)
        observe_exit_report();
}
