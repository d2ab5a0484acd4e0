/* Which loaded object an address of code is in, and where that object has its unwind tables. No call allocates. */
#ifndef HAK_OS_UNWIND_OBJECTS_H
#define HAK_OS_UNWIND_OBJECTS_H

#include "base/base.h"

struct unwind_object {
    uintptr_t start, end; /* of the segment that the code is in, or of the object */
    const uint8_t *table; /* .eh_frame_hdr; NULL: there is none */
};

/* Whether unwind_object_of finds anything. It takes no lock with glibc since 2.35, else one of the loader's. */
HAK_HIDDEN bool unwind_objects_can(void);

/* All fields are 0: the address is in no object. */
HAK_HIDDEN struct unwind_object unwind_object_of(uintptr_t address);

/* The description (FDE) of code that a program registered with libgcc: code made at run time, and by its start-up code
 * all of a static program. NULL: there is none, or the program is without libgcc. Takes libgcc's lock. */
HAK_HIDDEN const uint8_t *unwind_object_registered(uintptr_t address);

#endif
