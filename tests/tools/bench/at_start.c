/* A library to preload, which affects every program but the launcher's helpers: MODE 1 a crash, 2 exit status 9, 3 a
 * sleep of an hour, 4 the same for the program that makes the file GATE five bytes long. Each adds a byte. */
#include <fcntl.h>
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
    if (MODE == 4) {
        int file = open(getenv("GATE"), O_WRONLY | O_APPEND | O_CREAT, 0666);
        if (file < 0 || write(file, "", 1) != 1)
            _exit(9);
        if (lseek(file, 0, SEEK_CUR) == 5)
            sleep(3600);
        close(file);
    }
}
