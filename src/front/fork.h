/* fork from any thread of a threaded program. */
#ifndef HAK_FRONT_FORK_H
#define HAK_FRONT_FORK_H

#include "base/base.h"

/* Registers the handlers, the first time. Any thread that is not in fork. What is registered first prepares last and is released
 * first, so the earlier this is called, the less of the program runs in between. */
HAK_HIDDEN void fork_register(void);

#endif
