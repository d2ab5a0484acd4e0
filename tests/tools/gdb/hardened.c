/* Freed blocks, and a few in use among them. Prints what each address is, a line each, and "ready". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANY 1000

static void say(const char *what, const void *address, size_t size) { printf("%s %p %zu\n", what, address, size); }

int main(void)
{
    static char *many[MANY], *span;
    static char buffer[BUFSIZ]; /* stdio would allocate one where freed blocks were */

    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    for (int i = 0; i < MANY; i++)
        memset(many[i] = malloc(700), i, 700);
    memset(span = malloc(100000), 1, 100000);
    for (int i = 0; i < MANY; i++)
        if (i % 100 != 50)
            free(many[i]);
    free(span);
    for (int i = 0; i < MANY; i += 10)
        say(i % 100 == 50 ? "kept" : "freed", many[i], 700);
    say("span", span, 100000);
    puts("ready");
    pause();
    return 0;
}
