/* Initialises the process in its first call: options, window and house heap. */
#ifndef HAK_FRONT_PROCESS_H
#define HAK_FRONT_PROCESS_H

#include "os/lock.h"

/* Initialises the process, once. Any thread. False when memory is out. */
HAK_HIDDEN bool process_init(void);

/* Held while the process is initialised; fork takes it. */
HAK_DATA struct lock process_lock;

#endif
