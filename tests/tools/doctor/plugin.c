/* A library that allocates, loaded by dlopen. With TLS_BYTES it needs that much of the static TLS block. */
#include <stdlib.h>

#ifdef TLS_BYTES
__attribute__((tls_model("initial-exec"))) static _Thread_local char room[TLS_BYTES];
char *plugin_room(void) { return room; }
#endif

void plugin_use(void)
{
    void *volatile block = malloc(100);
    free(block);
}
