/* Part of libhakmem-je.so alone: the search for other objects' names (api/interposed.c) needs each name defined. */
#include "api/interposed.h"
#include "api/names.h"

INTERPOSED_DEFINITION(AT_sdallocx, sdallocx, sdallocx)
