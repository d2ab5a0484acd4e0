/* fork in a program with threads. */
#ifndef HAK_FRONT_FORK_H
#define HAK_FRONT_FORK_H

#include "base/base.h"

/* Registers the fork handlers, once. Any thread that is not in fork. Handlers that were registered first prepare last
 * and are released first, so after an early call fewer handlers of others run while the locks are held. */
HAK_HIDDEN void fork_register(void);

#endif
