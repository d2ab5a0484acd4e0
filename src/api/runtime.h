/* The process's C++ run-time, if it has one. HAKMEM is not linked with it, but finds it. */
#ifndef HAK_API_RUNTIME_H
#define HAK_API_RUNTIME_H

#include "base/base.h"

typedef void (*runtime_new_handler)(void);

/* std::get_new_handler. */
HAK_HIDDEN runtime_new_handler runtime_handler_in_force(void);

/* Throws std::bad_alloc. Without a run-time it prints a message and aborts. */
HAK_HIDDEN _Noreturn void runtime_throw_bad_alloc(size_t size);

/* Calls the function. NULL if it throws: the exception ends here. A thread's cancellation passes through. */
HAK_HIDDEN void *runtime_catch(void *(*function)(size_t size, size_t alignment), size_t size, size_t alignment);

#endif
