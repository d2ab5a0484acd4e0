/*
 * The notes are those of SystemTap's <sys/sdt.h>, version 3: in the section .note.stapsdt, which no process loads, the
 * address of the nop, that of .stapsdt.base (by which a reader sees whether the file was moved since it was linked),
 * that of the semaphore, and the names and places of the arguments. A semaphore lies in the section .probes: a tracer
 * computes its place in the file from its address.
 */
#include "os/outside.h"

__attribute__((used, section(".probes"))) struct outside hak_outside = { .magic = OUTSIDE_MAGIC };

#if defined(__x86_64__) || defined(__aarch64__) || defined(__riscv)
/* Comdat: the linker keeps one of all that it finds. */
__asm__(".pushsection .stapsdt.base, \"aG\", %progbits, .stapsdt.base, comdat\n"
        ".weak _.stapsdt.base\n"
        ".hidden _.stapsdt.base\n"
        "_.stapsdt.base:\n"
        ".space 1\n"
        ".size _.stapsdt.base, 1\n"
        ".popsection\n");

#define PROBE_NOTE(name, semaphore, places)            \
    "990: nop\n"                                       \
    ".pushsection .note.stapsdt, \"\", %%note\n"       \
    ".balign 4\n"                                      \
    ".4byte 992f - 991f, 994f - 993f, 3\n"             \
    "991: .asciz \"stapsdt\"\n"                        \
    "992: .balign 4\n"                                 \
    "993: .8byte 990b, _.stapsdt.base, " semaphore "\n" \
    ".asciz \"otel_memory\"\n"                         \
    ".asciz \"" name "\"\n"                            \
    ".asciz \"" places "\"\n"                          \
    "994: .balign 4\n"                                 \
    ".popsection\n"

/* The arguments lie where a call has them, so that a tracer that knows no notes finds them too. */
#if defined(__x86_64__)
#define PROBE_ARGUMENT(number, name) register uint64_t argument_##name __asm__(number) = (uint64_t)(name)
#define PROBE_FIRST "rdi"
#define PROBE_SECOND "rsi"
#define PROBE_THIRD "rdx"
#define PROBE_PLACE(name) "8@%%" name
#elif defined(__aarch64__)
#define PROBE_ARGUMENT(number, name) register uint64_t argument_##name __asm__(number) = (uint64_t)(name)
#define PROBE_FIRST "x0"
#define PROBE_SECOND "x1"
#define PROBE_THIRD "x2"
#define PROBE_PLACE(name) "8@" name
#elif defined(__riscv)
#define PROBE_ARGUMENT(number, name) register uint64_t argument_##name __asm__(number) = (uint64_t)(name)
#define PROBE_FIRST "a0"
#define PROBE_SECOND "a1"
#define PROBE_THIRD "a2"
#define PROBE_PLACE(name) "8@" name
#endif

#define PROBES 1
#else
#define PROBE_ARGUMENT(number, name) (void)(name)
#endif

HAK_NOINLINE void outside_allocated(const void *block, uint64_t size, uint64_t weighted_bytes)
{
    PROBE_ARGUMENT(PROBE_FIRST, block);
    PROBE_ARGUMENT(PROBE_SECOND, size);
    PROBE_ARGUMENT(PROBE_THIRD, weighted_bytes);

#if defined(PROBES)
    __asm__ volatile(PROBE_NOTE("alloc", "hak_outside",
                                PROBE_PLACE(PROBE_FIRST) " " PROBE_PLACE(PROBE_SECOND) " " PROBE_PLACE(PROBE_THIRD))
                     :
                     : "r"(argument_block), "r"(argument_size), "r"(argument_weighted_bytes)
                     : "memory");
#endif
}

HAK_NOINLINE void outside_freed(const void *block)
{
    PROBE_ARGUMENT(PROBE_FIRST, block);

#if defined(PROBES)
    __asm__ volatile(PROBE_NOTE("free", "hak_outside + 2", PROBE_PLACE(PROBE_FIRST))
                     :
                     : "r"(argument_block)
                     : "memory");
#endif
}
