/* Prints the values of mallctl names. The C library parses numbers in the names. */
#include <stdlib.h>
#include <string.h>

#include <jemalloc/jemalloc.h>

#include "check.h"

#ifdef OWN_CONF
const char *malloc_conf = OWN_CONF;
#endif
#ifdef OWN_OPTIONS
extern const char hakmem_options[];
const char hakmem_options[] = OWN_OPTIONS;
#endif
#ifdef OWN_MESSAGE
static void own(void *argument, const char *text)
{
    (void)argument;
    (void)text;
    puts("own message");
}
void (*malloc_message)(void *argument, const char *text) = own;
#endif

int main(int count, char **names)
{
    for (int i = 1; i < count; i++) {
        char value[8];
        size_t size = sizeof value;
        int error = mallctl(names[i], value, &size, NULL, 0);
        if (error) { /* the value has another size */
            error = mallctl(names[i], value, &size, NULL, 0);
            CHECK(error == 0);
        }
        if (strstr(names[i], "prefix") || strstr(names[i], "thp") || strstr(names[i], "global_var"))
            printf("%s %s\n", names[i], *(char **)value);
        else
            printf("%s %lld\n", names[i],
                   size == 1   ? (long long)*(bool *)value
                   : size == 4 ? *(int *)value
                               : *(long long *)value);
    }
#ifdef OWN_MESSAGE
    malloc_stats_print(NULL, NULL, "");
#endif
    return 0;
}
