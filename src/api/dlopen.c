/*
 * dlopen and dlmopen in front of the C library's, which they call without RTLD_DEEPBIND. A library opened with that
 * flag finds the C library's own malloc and free before HAKMEM's, so a block that crosses its border is freed by the
 * wrong allocator. HAKMEM_DEEPBIND=1 keeps the flag.
 *
 * The C library derives the name space, RUNPATH and $ORIGIN of the look-up from its caller's address. So the entry
 * points are jumps in assembly, which leave the program's return address in place.
 *
 * Only libhakmem.so has this file: a static program must not get the dynamic loader for it, and a program with the
 * override archive opens libraries by the C library's dlopen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "base/format.h"
#include "front/front.h"
#include "front/process.h"
#include "options/options.h"
#include "os/symbols.h"

#if defined(RTLD_DEEPBIND) && (defined(__x86_64__) || defined(__aarch64__) || defined(__riscv))

/* Before glibc 2.34 a process may lack the library that defines dlsym. */
extern __typeof__(dlsym) dlsym __attribute__((weak));

/* Where the entry point jumps next, and with which mode. Returned in two registers. */
struct route {
    void *next;
    unsigned long mode;
};

static _Atomic(void *) next_dlopen, next_dlmopen; /* Order: any; every thread finds the same code */

/* Called if no library defines the function. */
static void *absent(void)
{
    return NULL;
}

static void *find_next(_Atomic(void *) *next, const char *name)
{
    void *address = atomic_load_explicit(next, memory_order_acquire);

    if (address == NULL) {
        static const char *const libraries[] = { "libdl.so.2", NULL };
        address = dlsym != NULL ? dlsym(RTLD_NEXT, name) : os_symbol_of(libraries, name);
        atomic_store_explicit(next, address, memory_order_release);
    }
    if (address == NULL) {
        void *(*function)(void) = absent;
        __builtin_memcpy(&address, &function, sizeof address);
    }
    return address;
}

static int mode_for(const char *file, int mode)
{
    if (!(mode & RTLD_DEEPBIND) || !process_init() || hak_options.deepbind)
        return mode;
    if (hak_options.verbose)
        base_message("dlopen(%.900s): RTLD_DEEPBIND is left out, so that the library uses the process's malloc; "
                     "HAKMEM_DEEPBIND=1 keeps it",
                     file == NULL ? "NULL" : file);
    return mode & ~RTLD_DEEPBIND;
}

HAK_FOR_ASSEMBLY struct route hak_dlopen_route(const char *file, int mode);
struct route hak_dlopen_route(const char *file, int mode)
{
    return (struct route){ find_next(&next_dlopen, "dlopen"), (unsigned)mode_for(file, mode) };
}

/* Another name space has a C library of its own, and no HAKMEM. */
HAK_FOR_ASSEMBLY struct route hak_dlmopen_route(Lmid_t space, const char *file, int mode);
struct route hak_dlmopen_route(Lmid_t space, const char *file, int mode)
{
    if (space == LM_ID_BASE)
        mode = mode_for(file, mode);
    return (struct route){ find_next(&next_dlmopen, "dlmopen"), (unsigned)mode };
}

#if defined(__x86_64__)
__asm__(".pushsection .text, \"ax\", @progbits\n"
        ".hidden hak_dlopen_route, hak_dlmopen_route\n"
        ".globl dlopen, dlmopen\n"
        ".type dlopen, @function\n"
        "dlopen:\n" /* file in rdi, mode in esi */
        ".cfi_startproc\n"
        "endbr64\n"
        "pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call hak_dlopen_route\n"
        "popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "movl %edx, %esi\n"
        "jmpq *%rax\n"
        ".cfi_endproc\n"
        ".size dlopen, . - dlopen\n"
        ".type dlmopen, @function\n"
        "dlmopen:\n" /* space in rdi, file in rsi, mode in edx, where the route has it too */
        ".cfi_startproc\n"
        "endbr64\n"
        "pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "pushq %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call hak_dlmopen_route\n"
        "addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "jmpq *%rax\n"
        ".cfi_endproc\n"
        ".size dlmopen, . - dlmopen\n"
        ".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text, \"ax\", %progbits\n"
        ".hidden hak_dlopen_route\n"
        ".hidden hak_dlmopen_route\n"
        ".globl dlopen\n"
        ".globl dlmopen\n"
        ".balign 4\n"
        ".type dlopen, %function\n"
        "dlopen:\n" /* file in x0, mode in w1 */
        ".cfi_startproc\n"
        "hint #34\n" /* bti c */
        "stp x29, x30, [sp, #-32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset 29, -32\n"
        ".cfi_offset 30, -24\n"
        "mov x29, sp\n"
        "str x0, [sp, #16]\n"
        "bl hak_dlopen_route\n"
        "mov x16, x0\n"
        "ldr x0, [sp, #16]\n"
        "ldp x29, x30, [sp], #32\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        ".cfi_def_cfa_offset 0\n"
        "br x16\n" /* the mode is in w1 already */
        ".cfi_endproc\n"
        ".size dlopen, . - dlopen\n"
        ".type dlmopen, %function\n"
        "dlmopen:\n" /* space in x0, file in x1, mode in w2 */
        ".cfi_startproc\n"
        "hint #34\n"
        "stp x29, x30, [sp, #-32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset 29, -32\n"
        ".cfi_offset 30, -24\n"
        "mov x29, sp\n"
        "stp x0, x1, [sp, #16]\n"
        "bl hak_dlmopen_route\n"
        "mov x16, x0\n"
        "mov w2, w1\n"
        "ldp x0, x1, [sp, #16]\n"
        "ldp x29, x30, [sp], #32\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        ".cfi_def_cfa_offset 0\n"
        "br x16\n"
        ".cfi_endproc\n"
        ".size dlmopen, . - dlmopen\n"
        ".popsection\n");
#else
__asm__(".pushsection .text, \"ax\", %progbits\n"
        ".hidden hak_dlopen_route\n"
        ".hidden hak_dlmopen_route\n"
        ".globl dlopen\n"
        ".globl dlmopen\n"
        ".balign 4\n"
        ".type dlopen, %function\n"
        "dlopen:\n" /* file in a0, mode in a1 */
        ".cfi_startproc\n"
        "addi sp, sp, -32\n"
        ".cfi_def_cfa_offset 32\n"
        "sd ra, 24(sp)\n"
        ".cfi_offset ra, -8\n"
        "sd a0, 0(sp)\n"
        "call hak_dlopen_route\n"
        "mv t1, a0\n"
        "ld a0, 0(sp)\n"
        "ld ra, 24(sp)\n"
        "addi sp, sp, 32\n"
        ".cfi_restore ra\n"
        ".cfi_def_cfa_offset 0\n"
        "jr t1\n" /* the mode is in a1 already */
        ".cfi_endproc\n"
        ".size dlopen, . - dlopen\n"
        ".type dlmopen, %function\n"
        "dlmopen:\n" /* space in a0, file in a1, mode in a2 */
        ".cfi_startproc\n"
        "addi sp, sp, -32\n"
        ".cfi_def_cfa_offset 32\n"
        "sd ra, 24(sp)\n"
        ".cfi_offset ra, -8\n"
        "sd a0, 0(sp)\n"
        "sd a1, 8(sp)\n"
        "call hak_dlmopen_route\n"
        "mv t1, a0\n"
        "mv a2, a1\n"
        "ld a0, 0(sp)\n"
        "ld a1, 8(sp)\n"
        "ld ra, 24(sp)\n"
        "addi sp, sp, 32\n"
        ".cfi_restore ra\n"
        ".cfi_def_cfa_offset 0\n"
        "jr t1\n"
        ".cfi_endproc\n"
        ".size dlmopen, . - dlmopen\n"
        ".popsection\n");
#endif

#endif
