/* The program's handler for memory pressure (hak_set_pressure_handler). */
#ifndef HAK_FRONT_PRESSURE_H
#define HAK_FRONT_PRESSURE_H

#include "base/base.h"

typedef void (*pressure_handler)(size_t bytes_mapped, size_t bytes_limit);

/* NULL removes it. Returns the previous one. Any thread. */
HAK_HIDDEN pressure_handler pressure_set_handler(pressure_handler handler);

/* Calls the handler, if there is one, when a purge leaves the soft limit passed or memory short. The caller holds no
 * lock (L2) and expects blocks to be freed meanwhile. While the handler runs, no thread calls it again. */
HAK_HIDDEN HAK_COLD void pressure_call(size_t bytes_mapped, size_t bytes_limit);

/* In the child of a fork: a thread that was in the handler is gone. */
HAK_HIDDEN void pressure_reset_in_child(void);

#endif
