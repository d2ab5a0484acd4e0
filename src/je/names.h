/* The names of libhakmem-je.so alone, which hakmem/jemalloc.h declares, and their second names with je_. */
#ifndef HAK_JE_NAMES_H
#define HAK_JE_NAMES_H

#include <hakmem/jemalloc.h>

/* je_NAME is another name of NAME, in the file that defines it. */
#define JE_ALIAS(name) extern __typeof__(name) je_##name __attribute__((alias(#name), visibility("default")));

#endif
