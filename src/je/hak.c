/* The hak_* names of libhakmem-je. */
#include "je/entry.h"

#include "api/hak.c"
