/*
 * What operator new needs of a C++ run-time. Compiled with -fexceptions, because exceptions pass through here.
 *
 * Only runtime_catch ends an exception. C cannot do that, so its frame is assembly with a personality routine (Itanium
 * C++ ABI: Exception Handling, 2.5) that claims every exception but a forced unwinding.
 */
#define _GNU_SOURCE
#include "api/runtime.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unwind.h>

#include "base/format.h"
#include "os/symbols.h"

/* From the process's C++ run-time, if there is one. The dynamic loader's functions are weak, too, so that a static
 * program does not get the loader for them alone. */
extern void _ZSt17__throw_bad_allocv(void) __attribute__((weak, visibility("default")));
extern runtime_new_handler _ZSt15get_new_handlerv(void) __attribute__((weak, visibility("default")));
extern void *__cxa_begin_catch(void *exception) __attribute__((weak, visibility("default")));
extern void __cxa_end_catch(void) __attribute__((weak, visibility("default")));
#pragma weak _Unwind_SetGR
#pragma weak _Unwind_SetIP
extern __typeof__(dlsym) dlsym __attribute__((weak));

/* ISO C cannot convert dlsym's result to a pointer to a function. */
union symbol {
    void *address;
    void (*throw_bad_alloc)(void);
    runtime_new_handler (*get_handler)(void);
    void *(*begin_catch)(void *exception);
    void (*end_catch)(void);
    void (*set_register)(struct _Unwind_Context *context, int number, _Unwind_Word value);
    void (*set_address)(struct _Unwind_Context *context, _Unwind_Ptr value);
};

/* For a run-time loaded by dlopen: the weak names were bound before, and the library may be loaded with RTLD_LOCAL. */
static void *find_symbol(const char *name)
{
    static const char *const libraries[] = { "libstdc++.so.6", "libc++.so.1",    "libc++abi.so.1",
                                             "libgcc_s.so.1",  "libunwind.so.1", NULL };
    void *address = dlsym == NULL ? NULL : dlsym(RTLD_DEFAULT, name);

    return address != NULL ? address : os_symbol_of(libraries, name);
}

runtime_new_handler runtime_handler_in_force(void)
{
    union symbol get = { .get_handler = _ZSt15get_new_handlerv };
    if (get.get_handler == NULL)
        get.address = find_symbol("_ZSt15get_new_handlerv");
    return get.address == NULL ? NULL : get.get_handler();
}

_Noreturn void runtime_throw_bad_alloc(size_t size)
{
    union symbol thrower = { .throw_bad_alloc = _ZSt17__throw_bad_allocv };
    if (thrower.throw_bad_alloc == NULL)
        thrower.address = find_symbol("_ZSt17__throw_bad_allocv");
    if (thrower.address != NULL)
        thrower.throw_bad_alloc();
    base_message("operator new(%zu): out of memory, and there is no C++ run-time to throw std::bad_alloc", size);
    abort();
}

/* ---- runtime_catch ---- */

/* The functions of the run-time and its unwinder that end an exception; all are needed. */
struct catcher {
    union symbol begin_catch, end_catch, set_register, set_address;
};

static bool find_catcher(struct catcher *catcher)
{
    catcher->begin_catch.begin_catch = __cxa_begin_catch;
    catcher->end_catch.end_catch = __cxa_end_catch;
    catcher->set_register.set_register = _Unwind_SetGR;
    catcher->set_address.set_address = _Unwind_SetIP;
    if (catcher->begin_catch.address == NULL)
        catcher->begin_catch.address = find_symbol("__cxa_begin_catch");
    if (catcher->end_catch.address == NULL)
        catcher->end_catch.address = find_symbol("__cxa_end_catch");
    if (catcher->set_register.address == NULL)
        catcher->set_register.address = find_symbol("_Unwind_SetGR");
    if (catcher->set_address.address == NULL)
        catcher->set_address.address = find_symbol("_Unwind_SetIP");
    return catcher->begin_catch.address && catcher->end_catch.address && catcher->set_register.address &&
           catcher->set_address.address;
}

#if defined(__x86_64__) || defined(__aarch64__) || defined(__riscv)

HAK_IN_ASSEMBLY const char hak_runtime_landing[]; /* in hak_runtime_call */

/* The unwinder calls it for hak_runtime_call's frame: first to ask whether the exception ends there, then to go
 * there. */
HAK_FOR_ASSEMBLY _Unwind_Reason_Code hak_runtime_personality(int version, _Unwind_Action actions,
                                                        _Unwind_Exception_Class kind,
                                                        struct _Unwind_Exception *exception,
                                                        struct _Unwind_Context *context);
_Unwind_Reason_Code hak_runtime_personality(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                            struct _Unwind_Exception *exception, struct _Unwind_Context *context)
{
    struct catcher catcher;

    (void)kind;
    if (version != 1 || (actions & _UA_FORCE_UNWIND) != 0 || !find_catcher(&catcher))
        return _URC_CONTINUE_UNWIND;
    if (actions & _UA_SEARCH_PHASE)
        return _URC_HANDLER_FOUND;
    if (!(actions & _UA_HANDLER_FRAME))
        return _URC_CONTINUE_UNWIND;
    catcher.set_register.set_register(context, __builtin_eh_return_data_regno(0), (_Unwind_Word)(uintptr_t)exception);
    catcher.set_address.set_address(context, (_Unwind_Ptr)(uintptr_t)hak_runtime_landing);
    return _URC_INSTALL_CONTEXT;
}

/* Called by hak_runtime_call when its function threw. Its result is the result of hak_runtime_call. */
HAK_FOR_ASSEMBLY void *hak_runtime_caught(void *exception);
void *hak_runtime_caught(void *exception)
{
    struct catcher catcher;

    if (find_catcher(&catcher)) {
        (void)catcher.begin_catch.begin_catch(exception);
        catcher.end_catch.end_catch();
    }
    return NULL;
}

/* A call with the personality routine above. 0x1b: the routine's address is relative to its own place, in 4 bytes. */
HAK_IN_ASSEMBLY void *hak_runtime_call(void *(*function)(size_t, size_t), size_t first, size_t second);
#if defined(__x86_64__)
__asm__(".pushsection " HAK_CODE_SECTION ", \"ax\", @progbits\n"
        ".hidden hak_runtime_call, hak_runtime_landing, hak_runtime_personality, hak_runtime_caught\n"
        ".globl hak_runtime_call, hak_runtime_landing\n"
        ".type hak_runtime_call, @function\n"
        "hak_runtime_call:\n"
        ".cfi_startproc\n"
        ".cfi_personality 0x1b, hak_runtime_personality\n"
        "endbr64\n"
        "subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "movq %rdi, %rax\n"
        "movq %rsi, %rdi\n"
        "movq %rdx, %rsi\n"
        "call *%rax\n"
        "addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "ret\n"
        ".cfi_adjust_cfa_offset 8\n"
        "hak_runtime_landing:\n"
        "movq %rax, %rdi\n"
        "addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "jmp hak_runtime_caught\n"
        ".cfi_endproc\n"
        ".size hak_runtime_call, . - hak_runtime_call\n"
        ".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection " HAK_CODE_SECTION ", \"ax\", %progbits\n"
        ".hidden hak_runtime_call\n"
        ".hidden hak_runtime_landing\n"
        ".hidden hak_runtime_personality\n"
        ".hidden hak_runtime_caught\n"
        ".globl hak_runtime_call\n"
        ".globl hak_runtime_landing\n"
        ".type hak_runtime_call, %function\n"
        ".balign 4\n"
        "hak_runtime_call:\n"
        ".cfi_startproc\n"
        ".cfi_personality 0x1b, hak_runtime_personality\n"
        "hint #34\n" /* bti c */
        "stp x29, x30, [sp, #-16]!\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset 29, -16\n"
        ".cfi_offset 30, -8\n"
        "mov x29, sp\n"
        "mov x3, x0\n"
        "mov x0, x1\n"
        "mov x1, x2\n"
        "blr x3\n"
        "ldp x29, x30, [sp], #16\n"
        ".cfi_remember_state\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        ".cfi_def_cfa_offset 0\n"
        "ret\n"
        ".cfi_restore_state\n"
        "hak_runtime_landing:\n"
        "hint #36\n" /* bti j */
        "ldp x29, x30, [sp], #16\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        ".cfi_def_cfa_offset 0\n"
        "b hak_runtime_caught\n"
        ".cfi_endproc\n"
        ".size hak_runtime_call, . - hak_runtime_call\n"
        ".popsection\n");
#else
__asm__(".pushsection " HAK_CODE_SECTION ", \"ax\", %progbits\n"
        ".hidden hak_runtime_call\n"
        ".hidden hak_runtime_landing\n"
        ".hidden hak_runtime_personality\n"
        ".hidden hak_runtime_caught\n"
        ".globl hak_runtime_call\n"
        ".globl hak_runtime_landing\n"
        ".type hak_runtime_call, %function\n"
        ".balign 4\n"
        "hak_runtime_call:\n"
        ".cfi_startproc\n"
        ".cfi_personality 0x1b, hak_runtime_personality\n"
        "addi sp, sp, -16\n"
        ".cfi_def_cfa_offset 16\n"
        "sd ra, 8(sp)\n"
        ".cfi_offset ra, -8\n"
        "mv t1, a0\n"
        "mv a0, a1\n"
        "mv a1, a2\n"
        "jalr t1\n"
        "ld ra, 8(sp)\n"
        "addi sp, sp, 16\n"
        ".cfi_remember_state\n"
        ".cfi_restore ra\n"
        ".cfi_def_cfa_offset 0\n"
        "ret\n"
        ".cfi_restore_state\n"
        "hak_runtime_landing:\n"
        "ld ra, 8(sp)\n"
        "addi sp, sp, 16\n"
        ".cfi_restore ra\n"
        ".cfi_def_cfa_offset 0\n"
        "tail hak_runtime_caught\n"
        ".cfi_endproc\n"
        ".size hak_runtime_call, . - hak_runtime_call\n"
        ".popsection\n");
#endif

void *runtime_catch(void *(*function)(size_t size, size_t alignment), size_t size, size_t alignment)
{
    return hak_runtime_call(function, size, alignment);
}

#else /* exceptions pass through */

void *runtime_catch(void *(*function)(size_t size, size_t alignment), size_t size, size_t alignment)
{
    (void)find_catcher;
    return function(size, alignment);
}

#endif
