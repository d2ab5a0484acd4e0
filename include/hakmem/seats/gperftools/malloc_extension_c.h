/* For sources that include <gperftools/malloc_extension_c.h>. pkg-config hakmem-tc adds this folder's parent. */
#ifndef HAKMEM_SEAT_GPERFTOOLS_MALLOC_EXTENSION_C_H
#define HAKMEM_SEAT_GPERFTOOLS_MALLOC_EXTENSION_C_H

#include <hakmem/gperftools.h>

#endif
