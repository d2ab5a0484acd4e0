/* A library to preload, which affects every program but the launcher's helpers: MODE 1 a crash, 2 exit status 9, 3 a
 * sleep of an hour. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void at_start(void)
{
    if (MODE == 1)
        raise(SIGSEGV);
    if (MODE == 2)
        _exit(9);
    if (MODE == 3)
        sleep(3600);
}
