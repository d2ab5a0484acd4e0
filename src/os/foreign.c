#include "os/foreign.h"

#include "os/lock.h"

HAK_DATA_HERE void (*foreign_hook)(void);

/* Of the calling thread: how often it forbade foreign points, and whether the hook is running. In debug builds only:
 * release builds have no use of it, and so no thread-local storage for it. */
enum { IN_HOOK = 0x80 };
static _Thread_local uint8_t forbidden;

void foreign_count(int by)
{
    if (HAK_DEBUG)
        forbidden = (uint8_t)(forbidden + by);
}

void foreign_check(void)
{
    if (!HAK_DEBUG || lock_in_fork())
        return;
    HAK_CHECK(lock_held_count() == 0);       /* L2 */
    HAK_CHECK((forbidden & ~IN_HOOK) == 0); /* F1 */
    if (foreign_hook && forbidden == 0) {
        forbidden = IN_HOOK;
        foreign_hook();
        forbidden = 0;
    }
}
