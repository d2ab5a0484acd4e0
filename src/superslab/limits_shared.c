/* In libhakmem.so alone, where api/sandbox.c calls limits_before_sandbox(). */
#include "superslab/limits.h"

bool limits_await_sandbox = true;
