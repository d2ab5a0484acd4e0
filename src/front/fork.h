/* fork from any thread of a threaded program. */
#ifndef HAK_FRONT_FORK_H
#define HAK_FRONT_FORK_H

#include "base/base.h"

/* Registers the handlers; once, from the library's constructor. */
HAK_HIDDEN void fork_register(void);

#endif
