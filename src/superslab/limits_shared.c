/* Part of libhakmem.so alone, where api/sandbox.c tells of sandboxes. */
#include "superslab/limits.h"

bool limits_await_sandbox = true;
