/* For sources that include <jemalloc/jemalloc.h>. pkg-config hakmem-je adds the parent folder to the path. */
#ifndef HAKMEM_SEAT_JEMALLOC_H
#define HAKMEM_SEAT_JEMALLOC_H

#include <hakmem/jemalloc.h>

#endif
