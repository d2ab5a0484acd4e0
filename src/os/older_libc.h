/* Functions that glibc before 2.34 keeps in separate libraries. */
#ifndef HAK_OS_OLDER_LIBC_H
#define HAK_OS_OLDER_LIBC_H

#include <pthread.h>

#include "base/base.h"

/* Call it before a thread is made. If the process was loaded without libpthread, it makes HAKMEM's keys now, so that
 * HAKMEM learns of threads' ends. Cheap if there is nothing to do. */
HAK_HIDDEN void older_libc_before_thread(void);

#endif
