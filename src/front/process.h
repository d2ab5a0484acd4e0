/* The process's first call: options, window and house heap. */
#ifndef HAK_FRONT_PROCESS_H
#define HAK_FRONT_PROCESS_H

#include "os/lock.h"

/* Initialises the process; idempotent, any thread. False when no memory could be had. */
HAK_HIDDEN bool process_init(void);

/* For fork. */
HAK_DATA struct lock process_lock;

#endif
