/*
 * Requests from outside. `hakmem heap --start`, or a tracer of the probes, whose semaphore the kernel counts up, turns
 * the heap profile and guards on or off (os/outside.h). A signal requests the heap profile's file. Any slow call serves
 * them, at its exit (K1).
 */
#ifndef HAK_FRONT_CONTROL_H
#define HAK_FRONT_CONTROL_H

#include "os/outside.h"

/* Serves the requests, or leaves them to a later call. Holding no lock. */
HAK_HIDDEN void control_serve(void);
HAK_INLINE void control_poll(void)
{
    if (HAK_UNLIKELY(outside_asks()))
        control_serve();
}

/* In the child of a fork: the thread that served requests is gone. */
HAK_HIDDEN void control_reset_in_child(void);

#endif
