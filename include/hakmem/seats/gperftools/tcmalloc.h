/* For sources that include <gperftools/tcmalloc.h>. pkg-config hakmem-tc adds the parent folder to the path. */
#ifndef HAKMEM_SEAT_GPERFTOOLS_TCMALLOC_H
#define HAKMEM_SEAT_GPERFTOOLS_TCMALLOC_H

#include <hakmem/gperftools.h>

#endif
