/* The C library's names and C++'s operators of libhakmem-je.so. */
#define _GNU_SOURCE
#include "je/entry.h"

#include "api/libc.c"

#include "api/cxx.c"

#include "api/interposed.c"
