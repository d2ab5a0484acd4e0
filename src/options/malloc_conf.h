/* jemalloc's settings, "name:value,...", from MALLOC_CONF and the program's variable malloc_conf: in libhakmem-je.so
 * alone. Those that mean something to HAKMEM set its options: malloc_conf < hakmem_options < MALLOC_CONF < HAKMEM_*
 * variables. docs/jemalloc.md lists them. */
#ifndef HAK_OPTIONS_MALLOC_CONF_H
#define HAK_OPTIONS_MALLOC_CONF_H

#include "options/options.h"

#define MALLOC_CONF_PREFIX_MOST 256u

/* The settings that no option of HAKMEM holds. Constant after options_read. */
struct malloc_conf {
    bool abort_conf, prof, prof_active, prof_final, prof_leak;
    char prof_prefix[MALLOC_CONF_PREFIX_MOST];
    const char *program_text; /* the program's variable, or "" */
};
HAK_DATA struct malloc_conf malloc_conf_said;

/* The program's own, if it defines one (jemalloc's manual, "TUNING"). */
extern const char *malloc_conf, *je_malloc_conf;

#endif
