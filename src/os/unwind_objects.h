/* Which loaded object an address of code is in, and where that object has its unwind tables. No call allocates. */
#ifndef HAK_OS_UNWIND_OBJECTS_H
#define HAK_OS_UNWIND_OBJECTS_H

#include "base/base.h"

struct unwind_object {
    uintptr_t start, end; /* of the segment that the code is in, or of the object */
    const uint8_t *table; /* .eh_frame_hdr; NULL: there is none */
};

/* Whether unwind_object_of finds anything; whether it takes no lock, as with glibc since 2.35. Otherwise it takes a
 * lock of the loader. */
HAK_HIDDEN bool unwind_objects_can(void);
HAK_HIDDEN bool unwind_objects_unlocked(void);

/* All fields are 0: the address is in no object. */
HAK_HIDDEN struct unwind_object unwind_object_of(uintptr_t address);

#endif
