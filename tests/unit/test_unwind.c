/* Protects the walk by unwind tables: it must match libgcc's walk of the same stack. */
#define _GNU_SOURCE
#include <alloca.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unwind.h>

#include "os/os.h"
#include "os/peek.h"
#include "os/unwind.h"
#include "os/unwind_objects.h"
#include "os/unwind_rows.h"
#include "os/unwind_tables.h"
#include "support.h"

#define MOST 200u

static uintptr_t stack_low, stack_high;

/* Whether a table describes the code before this return address. */
static bool is_described(uintptr_t address)
{
    const uint8_t *table = unwind_object_of(address - 1).table;
    struct cfi_description made;

    return table && cfi_describe(table, address - 1, &made);
}

static bool anywhere(uintptr_t address) { return address >= 4096; }

static bool within(uintptr_t address) { return address >= stack_low && address < stack_high; }

struct walk {
    uintptr_t addresses[MOST];
    unsigned count;
};

static _Unwind_Reason_Code add(struct _Unwind_Context *context, void *argument)
{
    struct walk *walk = argument;

    if (walk->count == MOST || _Unwind_GetIP(context) == 0)
        return _URC_END_OF_STACK;
    walk->addresses[walk->count++] = _Unwind_GetIP(context);
    return _URC_NO_REASON;
}

/* Walks the stack by libgcc once, and twice by the tables: the second time, the first one's rows are kept. The walks
 * match from this function's caller on, and each slot holds its return address. */
static __attribute__((noinline)) void compare(void)
{
    struct unwind_frame ours[MOST];
    struct walk theirs = { .count = 0 };

    _Unwind_Backtrace(add, &theirs);
    for (unsigned round = 0; round < 2; round++) {
        unsigned count = os_tables_walk(ours, MOST, anywhere, NULL, NULL), left = count - 1;
        assert_true(count > 4);
        /* Each walk begins in this function, at another instruction. */
        assert_int_equal(theirs.count - 1, left);
        for (unsigned i = 0; i < left; i++) {
            assert_int_equal(ours[count - left + i].address, theirs.addresses[theirs.count - left + i]);
            if (ours[count - left + i].slot)
                assert_int_equal(*ours[count - left + i].slot, ours[count - left + i].address);
        }
    }
}

static __attribute__((noinline)) void descend(unsigned depth, size_t size)
{
    char space[size];
    volatile char *room = space;

    room[0] = 1;
    if (depth)
        descend(depth - 1, size * 2 % 1500 + 16);
    else
        compare();
    room[size - 1] = 2; /* prevents a tail call */
}

static void test_plain(void **state)
{
    (void)state;
    compare();
    descend(0, 16);
    descend(60, 100);
}

static int by_compare(const void *a, const void *b)
{
    static bool done;

    if (!done)
        descend(2, 40);
    done = true;
    return *(const int *)a - *(const int *)b;
}

static void test_through_libc(void **state)
{
    int numbers[] = { 4, 2, 9, 7, 1 };

    (void)state;
    qsort(numbers, 5, sizeof *numbers, by_compare);
    assert_int_equal(numbers[0], 1);
}

static void on_signal(int number)
{
    (void)number;
    descend(1, 50);
}

static void test_through_signals(void **state)
{
    static char other[65536];
    stack_t stack = { .ss_sp = other, .ss_size = sizeof other };

    (void)state;
    for (int flags = 0; flags <= 1; flags++) {
        struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags ? SA_ONSTACK : 0 };
        assert_int_equal(sigaltstack(&stack, NULL), 0);
        assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
        raise(SIGUSR1);
    }
}

/* The walk ends at memory that it may not read, and takes no frame from there. */
static void test_bounds(void **state)
{
    struct unwind_frame frames[MOST];
    unsigned all = os_tables_walk(frames, MOST, anywhere, NULL, NULL);

    (void)state;
    stack_low = (uintptr_t)frames;
    stack_high = (uintptr_t)frames[2].slot;
    if (frames[2].slot == NULL) /* a processor that signs return addresses */
        return;
    assert_true(os_tables_walk(frames, MOST, within, NULL, NULL) <= 2);
    stack_low = stack_high = 0;
    assert_true(os_tables_walk(frames, MOST, within, NULL, NULL) <= 1); /* at most the frame of a link register */
    assert_int_equal(os_tables_walk(frames, 3, anywhere, NULL, NULL), 3);
    assert_true(all >= 3);
}

/* Code as a compiler makes it at run time: without tables, but with a frame pointer. It calls its argument. */
static void (*make_code(void))(void (*)(void))
{
#if defined(__x86_64__)
    static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
#elif defined(__riscv)
    static const uint32_t code[] = { 0xff010113, 0x00113423, 0x00813023, 0x01010413, 0x000500e7,
                                     0x00813083, 0x00013403, 0x01010113, 0x00008067 };
#else
    static const uint32_t code[] = { 0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0 };
#endif
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    union {
        void *memory;
        void (*function)(void (*)(void));
    } made = { memory };

    assert_true(memory != MAP_FAILED);
    memcpy(memory, code, sizeof code);
    __builtin___clear_cache(memory, (char *)memory + sizeof code);
    assert_int_equal(mprotect(memory, 4096, PROT_READ | PROT_EXEC), 0);
    return made.function;
}

static struct unwind_frame through[MOST];
static unsigned through_count;

static __attribute__((noinline)) void walk_own(void)
{
    through_count = os_tables_walk(through, MOST, anywhere, NULL, NULL);
}
static __attribute__((noinline)) void walk_any(void) { through_count = os_unwind(through, MOST); }

/* The walk by tables, and os_unwind, which may read the stack alone, find the code and the frames behind it. */
static void test_through_code_without_tables(void **state)
{
    void (*const walks[])(void) = { walk_own, walk_any };
    void (*code)(void (*)(void)) = make_code();

    (void)state;
    assert_true(os_unwind_prepare(UNWIND_TABLES, false));
    for (unsigned i = 0; i < 2; i++) {
        struct unwind_frame direct[MOST];
        unsigned count, behind = 0;

        walks[i]();
        count = through_count;
        memcpy(direct, through, sizeof direct);
        code(walks[i]);
        while (through[behind].address - (uintptr_t)code >= 4096)
            assert_true(++behind < through_count);
        assert_false(is_described(through[behind].address));
        assert_true(is_described(through[behind + 1].address));
        /* Behind this function the frames are the same. */
        for (unsigned k = 1; k < through_count - behind - 1; k++)
            assert_int_equal(through[through_count - k].address, direct[count - k].address);
        assert_true(through_count - behind > 4); /* cmocka's frames, and main's */
    }
}

/* ---- Tables made at run time ---- */

/* Code without tables of its own, and the tables that __wrap_unwind_object_of tells for it. */
enum { MADE_SIZE = 3 * 4096, MADE_TABLE = 4096, MADE_COMMON = MADE_TABLE + 64, MADE_FDE = MADE_TABLE + 128 };
static uint8_t *made_memory;

struct made_bytes {
    unsigned count;
    uint8_t bytes[24];
};
#define BYTES(...) { sizeof((uint8_t[]){ __VA_ARGS__ }), { __VA_ARGS__ } }

/* The differences from a compiler's table. */
struct made_table {
    const char *name;
    struct made_bytes head;   /* of .eh_frame_hdr */
    struct made_bytes common; /* the CIE from its version on */
    struct made_bytes own;    /* the FDE behind the code's size */
    uint8_t form;             /* of the code's address and size */
    bool no_common, short_own, long_own;
    uint32_t common_id;
    bool described;           /* cfi_describe finds it */
};
#define HEAD BYTES(1, 0x1b, 3, 0x3b)
#define COMMON(form) BYTES(1, 'z', 'R', 0, 1, 0x78, CFI_RETURN, 1, form, 0x0c, CFI_STACK, 8)
#define OWN BYTES(0)
enum { CFI_RETURN = CFI_RETURN_REGISTER, CFI_STACK = CFI_STACK_REGISTER };

struct unwind_object __real_unwind_object_of(uintptr_t address);
struct unwind_object __wrap_unwind_object_of(uintptr_t address)
{
    if (made_memory == NULL || address - (uintptr_t)made_memory >= MADE_SIZE)
        return __real_unwind_object_of(address);
    return (struct unwind_object){ (uintptr_t)made_memory, (uintptr_t)made_memory + MADE_SIZE,
                                   made_memory + MADE_TABLE };
}

static uint8_t *put(uint8_t *at, uint64_t value, unsigned size)
{
    memcpy(at, &value, size);
    return at + size;
}

/* The code is described as the first CODE_SIZE bytes of made_memory. */
enum { CODE_SIZE = 64 };

static void make_table(const struct made_table *table)
{
    static const unsigned sizes[16] = { [0] = 8, [2] = 2, [3] = 4, [4] = 8, [10] = 2, [11] = 4, [12] = 8 };
    unsigned size = sizes[table->form & 15];
    static uint32_t objects; /* the head of each tells another place of the frame descriptions, which the walk skips */
    uint8_t *at = made_memory + MADE_TABLE, *fde = made_memory + MADE_FDE, *common = made_memory + MADE_COMMON;

    memset(made_memory + MADE_TABLE, 0, MADE_SIZE - MADE_TABLE);
    memcpy(at, table->head.bytes, table->head.count);
    put(at + 4, ++objects, 4);
    put(at + 8, 1, 4);
    put(at + 12, (uint32_t)-MADE_TABLE, 4);
    put(at + 16, MADE_FDE - MADE_TABLE, 4);

    at = put(fde + 4, table->no_common ? 0 : (uint32_t)(fde + 4 - common), 4);
    at = put(at, table->form & 0x10 ? (uint64_t)(made_memory - at) : (uint64_t)(uintptr_t)made_memory, size);
    at = put(at, CODE_SIZE, size);
    memcpy(at, table->own.bytes, table->own.count);
    put(fde, table->short_own ? 6 : table->long_own ? 0xffffffff : (uint64_t)(at + table->own.count - fde - 4), 4);

    put(common, 4 + table->common.count, 4);
    put(common + 4, table->common_id, 4);
    memcpy(common + 8, table->common.bytes, table->common.count);
}

static const struct made_table read_tables[] = {
    { "as a linker makes it", HEAD, COMMON(0x1b), OWN, .form = 0x1b, .described = true },
    { "addresses of 8 bytes", HEAD, COMMON(0x00), OWN, .form = 0x00, .described = true },
    { "addresses of 8 bytes without a sign", HEAD, COMMON(0x04), OWN, .form = 0x04, .described = true },
    { "addresses of 8 bytes with a sign", HEAD, COMMON(0x1c), OWN, .form = 0x1c, .described = true },
    { "addresses of 2 bytes with a sign", HEAD, COMMON(0x1a), OWN, .form = 0x1a, .described = true },
    { "addresses of 2 bytes without a sign", HEAD, COMMON(0x12), OWN, .form = 0x12 }, /* would be behind the table */
    { "addresses of 4 bytes without a sign", HEAD, COMMON(0x13), OWN, .form = 0x13 },
    { "addresses in a form of no linker", HEAD, COMMON(0x01), OWN, .form = 0x1b },
    { "another version of the head", BYTES(2, 0x1b, 3, 0x3b), COMMON(0x1b), OWN, .form = 0x1b },
    { "another form of .eh_frame's address", BYTES(1, 0x1c, 3, 0x3b), COMMON(0x1b), OWN, .form = 0x1b },
    { "another form of the number of rows", BYTES(1, 0x1b, 4, 0x3b), COMMON(0x1b), OWN, .form = 0x1b },
    { "another form of the rows", BYTES(1, 0x1b, 3, 0x3c), COMMON(0x1b), OWN, .form = 0x1b },
    { "every letter", HEAD,
      BYTES(1, 'z', 'P', 'L', 'R', 'S', 'B', 0, 1, 0x78, CFI_RETURN, 7, 0x1b, 1, 2, 3, 4, 0x1b, 0x1b), OWN,
      .form = 0x1b, .described = true },
    { "a letter of no compiler", HEAD, BYTES(1, 'z', 'R', 'X', 0, 1, 0x78, CFI_RETURN, 1, 0x1b), OWN, .form = 0x1b },
    { "letters without their values", HEAD, BYTES(1, 'z', 'R', 0, 1, 0x78, CFI_RETURN, 0), OWN, .form = 0x1b },
    { "letters longer than the CIE", HEAD, BYTES(1, 'z', 'R', 'L', 0, 1, 0x78, CFI_RETURN, 99, 0x1b), OWN,
      .form = 0x1b },
    { "no letters", HEAD, BYTES(1, 0, 1, 0x78, CFI_RETURN), OWN, .form = 0x00 },
    { "letters without a length", HEAD, BYTES(1, 'e', 'h', 0, 1, 0x78, CFI_RETURN), OWN, .form = 0x00 },
    { "version 2", HEAD, BYTES(2, 'z', 'R', 0, 1, 0x78, CFI_RETURN, 1, 0x1b), OWN, .form = 0x1b },
    { "version 3", HEAD, BYTES(3, 'z', 'R', 0, 1, 0x78, 0x80 | CFI_RETURN, 0, 1, 0x1b), OWN, .form = 0x1b,
      .described = true },
    { "version 4", HEAD, BYTES(4, 'z', 'R', 0, 8, 0, 1, 0x78, CFI_RETURN, 1, 0x1b), OWN, .form = 0x1b,
      .described = true },
    { "a CIE that ends early", HEAD, BYTES(1, 'z', 'R', 0, 1), OWN, .form = 0x1b },
    { "an FDE in the CIE's place", HEAD, COMMON(0x1b), OWN, .form = 0x1b, .common_id = 8 },
    { "a CIE in the FDE's place", HEAD, COMMON(0x1b), OWN, .form = 0x1b, .no_common = true },
    { "an FDE that ends early", HEAD, COMMON(0x1b), OWN, .form = 0x1b, .short_own = true },
    { "an FDE of 64 bits", HEAD, COMMON(0x1b), OWN, .form = 0x1b, .long_own = true },
    { "values longer than the FDE", HEAD, COMMON(0x1b), BYTES(9), .form = 0x1b },
    { "values in the FDE", HEAD, COMMON(0x1b), BYTES(2, 1, 2), .form = 0x1b, .described = true },
};

static void test_tables_in_every_form(void **state)
{
    (void)state;
    made_memory = mmap(NULL, MADE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(made_memory != MAP_FAILED);
    for (size_t i = 0; i < sizeof read_tables / sizeof read_tables[0]; i++) {
        uintptr_t code = (uintptr_t)made_memory;
        print_message("%s\n", read_tables[i].name);
        make_table(&read_tables[i]);
        assert_int_equal(is_described(code + 1), read_tables[i].described);
        assert_int_equal(is_described(code + CODE_SIZE), read_tables[i].described);
        assert_false(is_described(code + CODE_SIZE + 1));
    }
    /* An address before the first row's. */
    make_table(&read_tables[0]);
    put(made_memory + MADE_TABLE + 12, (uint32_t)(CODE_SIZE - MADE_TABLE), 4);
    assert_false(is_described((uintptr_t)made_memory + CODE_SIZE));
    assert_int_equal(munmap(made_memory, MADE_SIZE), 0);
    made_memory = NULL;
}

#if defined(__x86_64__)
/* Around the call in the made code the CFA is the stack pointer + 16, and the frame pointer is at the CFA - 16. */
#define MADE_USUAL 0x0c, CFI_STACK, 16, 0x80 | CFI_RETURN, 1, 0x86, 2
static const struct made_table run_tables[] = {
    { "as a compiler makes it", HEAD, COMMON(0x1b), BYTES(0, MADE_USUAL), .form = 0x1b, .described = true },
    { "registers beyond", HEAD, COMMON(0x1b), BYTES(0, MADE_USUAL, 0xbf, 1, 0xff, 0x06, 99, 0x05, 99, 1), .form = 0x1b,
      .described = true },
    { "an unknown instruction", HEAD, COMMON(0x1b), BYTES(0, MADE_USUAL, 0x3f), .form = 0x1b },
    { "an instruction that ends early", HEAD, COMMON(0x1b), BYTES(0, MADE_USUAL, 0x0e), .form = 0x1b },
    { "an expression longer than the FDE", HEAD, COMMON(0x1b), BYTES(0, MADE_USUAL, 0x0f, 99), .form = 0x1b },
    { "an unknown instruction in the CIE", HEAD,
      BYTES(1, 'z', 'R', 0, 1, 0x78, CFI_RETURN, 1, 0x1b, 0x3f), BYTES(0, MADE_USUAL), .form = 0x1b },
    { "an instruction that restores, in the CIE", HEAD,
      BYTES(1, 'z', 'R', 0, 1, 0x78, CFI_RETURN, 1, 0x1b, 0xc6, 0x06, 6), BYTES(0, MADE_USUAL), .form = 0x1b,
      .described = true },
    { "a return address in a register beyond", HEAD, BYTES(1, 'z', 'R', 0, 1, 0x78, 17, 1, 0x1b),
      BYTES(0, MADE_USUAL), .form = 0x1b },
    { "the return address in a register that is unchanged", HEAD, BYTES(1, 'z', 'R', 0, 1, 0x78, 3, 1, 0x1b),
      BYTES(0, MADE_USUAL), .form = 0x1b },
    { "no CFA", HEAD, BYTES(1, 'z', 'R', 0, 1, 0x78, CFI_RETURN, 1, 0x1b), BYTES(0, 0x80 | CFI_RETURN, 1),
      .form = 0x1b },
};

/* The walk passes the made code if its table makes sense, and ends there if not. */
static void test_instructions_without_sense(void **state)
{
    static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
    union {
        void *memory;
        void (*function)(void (*)(void));
    } made;

    unsigned behind;

    (void)state;
    made_memory = mmap(NULL, MADE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(made_memory != MAP_FAILED);
    memcpy(made_memory, code, sizeof code);
    assert_int_equal(mprotect(made_memory, 4096, PROT_READ | PROT_EXEC), 0);
    made.memory = made_memory;
    for (size_t i = 0; i < sizeof run_tables / sizeof run_tables[0]; i++) {
        print_message("%s\n", run_tables[i].name);
        make_table(&run_tables[i]);
        made.function(walk_own);
        behind = 0;
        while (through[behind].address - (uintptr_t)made_memory >= sizeof code)
            assert_true(++behind < through_count);
        assert_int_equal(through_count > behind + 4, run_tables[i].described);
        assert_int_equal(through_count == behind + 1, !run_tables[i].described);
    }
    /* The row is kept: the second walk does not read the instructions again. */
    make_table(&run_tables[0]);
    made.function(walk_own);
    memset(made_memory + MADE_FDE, 0, 64);
    behind = through_count;
    through_count = 0;
    made.function(walk_own);
    assert_int_equal(through_count, behind);
    /* More instructions than any compiler makes. */
    make_table(&run_tables[0]);
    put(made_memory + MADE_FDE, 5000, 4);
    made.function(walk_own);
    assert_true(through[through_count - 1].address - (uintptr_t)made_memory < sizeof code);
    assert_int_equal(munmap(made_memory, MADE_SIZE), 0);
    made_memory = NULL;
}
#endif

#if defined(__x86_64__)
/* ---- Tables written by hand: what few compilers make ---- */

/* Makes a function of one argument, which it calls. Around the call the CFA is the stack pointer + 32, and the words
 * below it are: the return address, the caller's frame pointer, and twice the CFA. The frame pointer is 0. */
#define ODD_FUNCTION(name, before, tables, after)                                                                      \
    void name(void (*call)(void));                                                                                     \
    extern const char name##_end[];                                                                                    \
    __asm__(".text\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n" before tables                            \
            "call *%rdi\n" after "ret\n.cfi_endproc\n" #name "_end:\n.size " #name ", . - " #name "\n")
#define ODD_BEFORE "pushq %rbp\nleaq 16(%rsp), %rax\npushq %rax\npushq %rax\nxorl %ebp, %ebp\n"
#define ODD_AFTER "addq $16, %rsp\npopq %rbp\n"
#define ODD_USUAL ".cfi_def_cfa_offset 32\n.cfi_offset 6, -16\n"
/* The frame pointer is where it usually is, and the CFA is the value of an expression; or all is usual, with more. */
#define ODD_CFA(name, length, code) \
    ODD_FUNCTION(name, ODD_BEFORE, ".cfi_offset 6, -16\n.cfi_escape 0x0f, " length ", " code "\n", ODD_AFTER)
#define ODD_MORE(name, code) ODD_FUNCTION(name, ODD_BEFORE, ODD_USUAL ".cfi_escape " code "\n", ODD_AFTER)

ODD_CFA(cfa_by_offset, "2", "0x77, 0x20");
ODD_CFA(cfa_read, "3", "0x77, 0x08, 0x06");
ODD_CFA(cfa_const1u, "5", "0x77, 0, 0x08, 0x20, 0x22");
ODD_CFA(cfa_const2, "10", "0x77, 0, 0x0a, 0x20, 0x01, 0x0b, 0x00, 0xff, 0x22, 0x22"); /* 288 - 256 */
ODD_CFA(cfa_const4u, "11", "0x77, 0, 0x0c, 0x30, 0, 0, 0, 0x09, 0xf0, 0x22, 0x22"); /* 48 - 16 */
ODD_CFA(cfa_const8u, "12", "0x77, 0, 0x0e, 0x20, 0, 0, 0, 0, 0, 0, 0, 0x22");
ODD_CFA(cfa_shifted, "6", "0x77, 0, 0x32, 0x34, 0x24, 0x22"); /* 2 << 4 */
ODD_CFA(cfa_and, "8", "0x77, 0, 0x08, 0x3f, 0x09, 0x20, 0x1a, 0x22");
ODD_CFA(cfa_minus, "7", "0x77, 0, 0x08, 0x28, 0x38, 0x1c, 0x22"); /* 40 - 8 */
ODD_CFA(cfa_at_least, "8", "0x77, 0, 0x33, 0x33, 0x2a, 0x4f, 0x22, 0x22"); /* (3 >= 3) + 31 */
ODD_CFA(cfa_less, "10", "0x77, 0, 0x09, 0xff, 0x33, 0x2a, 0x08, 0x20, 0x22, 0x22"); /* (-1 >= 3) + 32 */
ODD_CFA(cfa_plus_uconst, "4", "0x77, 0, 0x23, 0x20");
ODD_CFA(cfa_eight_operands, "18",
        "0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x77, 0x20, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x23, 0");
ODD_MORE(frame_by_expression, "0x10, 6, 2, 0x40, 0x1c");                 /* it lies at the CFA - 16 */
ODD_MORE(frame_by_value, "0x16, 6, 3, 0x40, 0x1c, 0x06");                /* it is what lies there */
ODD_MORE(frame_extended, "0x07, 6, 0x05, 6, 2");                         /* undefined, and then at - 2 * 8 */
ODD_MORE(frame_extended_signed, "0x07, 6, 0x11, 6, 2");
ODD_MORE(cfa_signed, "0x0c, 7, 8, 0x12, 7, 0x7c");                       /* - 4 * - 8 */
ODD_MORE(cfa_offset_signed, "0x0e, 8, 0x13, 0x7c");
ODD_MORE(stack_is, "0x14, 7, 0");                                        /* the stack pointer is the CFA */
ODD_MORE(stack_is_signed, "0x15, 7, 0");
ODD_MORE(remembered, "0x0a, 0x0a, 0x0a, 0x0e, 8, 0x07, 6, 0x0b, 0x0b, 0x0b");
ODD_MORE(sizes_of_arguments, "0x2e, 0x10, 0x00");
/* The frame pointer is unchanged, and the rule that said otherwise goes. */
ODD_FUNCTION(restored, "subq $24, %rsp\n", ".cfi_def_cfa_offset 32\n.cfi_escape 0x05, 6, 100, 0xc6\n",
             "addq $24, %rsp\n");
ODD_FUNCTION(restored_extended, "subq $24, %rsp\n", ".cfi_def_cfa_offset 32\n.cfi_escape 0x05, 6, 100, 0x06, 6\n",
             "addq $24, %rsp\n");
ODD_FUNCTION(the_same, "subq $24, %rsp\n", ".cfi_def_cfa_offset 32\n.cfi_escape 0x05, 6, 100, 0x08, 6\n",
             "addq $24, %rsp\n");
ODD_FUNCTION(in_register, "pushq %rbx\nmovq %rbp, %rbx\nxorl %ebp, %ebp\nsubq $16, %rsp\n",
             ".cfi_def_cfa_offset 32\n.cfi_offset 3, -16\n.cfi_register 6, 3\n",
             "movq %rbx, %rbp\naddq $16, %rsp\npopq %rbx\n");
ODD_FUNCTION(long_code, ODD_BEFORE ".fill 100, 1, 0x90\n",
             ".cfi_remember_state\n.fill 1000, 1, 0x90\n.cfi_restore_state\n.fill 70000, 1, 0x90\n" ODD_USUAL,
             ODD_AFTER);
ODD_FUNCTION(signal_frame, ODD_BEFORE "nop\n", ".cfi_signal_frame\n" ODD_USUAL, ODD_AFTER);

static const struct {
    const char *name;
    void (*function)(void (*)(void));
} good_tables[] = {
#define ROW(name) { #name, name }
    ROW(cfa_by_offset), ROW(cfa_read), ROW(cfa_const1u), ROW(cfa_const2), ROW(cfa_const4u), ROW(cfa_const8u),
    ROW(cfa_shifted), ROW(cfa_and), ROW(cfa_minus), ROW(cfa_at_least), ROW(cfa_less), ROW(cfa_plus_uconst),
    ROW(cfa_eight_operands), ROW(frame_by_expression), ROW(frame_by_value), ROW(frame_extended),
    ROW(frame_extended_signed), ROW(cfa_signed), ROW(cfa_offset_signed), ROW(stack_is), ROW(stack_is_signed),
    ROW(remembered), ROW(sizes_of_arguments), ROW(restored), ROW(restored_extended), ROW(the_same), ROW(in_register),
    ROW(long_code), ROW(signal_frame),
#undef ROW
};

/* The caller keeps its frame's address in the frame pointer, so the walk needs that register's value. */
static __attribute__((noinline)) void call_with_room(void (*function)(void (*)(void)), size_t size)
{
    volatile char *room = alloca(size);

    room[0] = 1;
    function(compare);
    room[size - 1] = 2;
}

/* The walk must match libgcc's, whatever instructions the tables are made of. */
static void test_tables_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good_tables / sizeof good_tables[0]; i++) {
        print_message("%s\n", good_tables[i].name);
        call_with_room(good_tables[i].function, 100 + i);
    }
}

ODD_MORE(set_location, "0x01, 0, 0, 0, 0, 0, 0, 0, 0");
ODD_MORE(remembered_too_often, "0x0a, 0x0a, 0x0a, 0x0a");
ODD_MORE(never_remembered, "0x0b");
ODD_MORE(cfa_of_no_register, "0x0c, 0xc8, 0x01, 0x20");
ODD_MORE(cfa_of_register_beyond, "0x0d, 0xff, 0xff, 0x03");
ODD_MORE(frame_by_bad_expression, "0x10, 6, 1, 0x96");
ODD_MORE(return_address_undefined, "0x07, 16");
ODD_MORE(return_address_the_same, "0x08, 16");
ODD_MORE(return_address_0, "0x16, 16, 1, 0x30");
ODD_CFA(cfa_by_unknown_operation, "1", "0x96");
ODD_CFA(cfa_of_nothing, "0", "0x00");
ODD_CFA(cfa_read_of_nothing, "1", "0x06");
ODD_CFA(cfa_plus_one_operand, "3", "0x77, 0, 0x22");
ODD_CFA(cfa_read_from_0, "2", "0x30, 0x06");
ODD_CFA(cfa_read_unaligned, "3", "0x77, 1, 0x06");
ODD_CFA(cfa_by_register_beyond, "2", "0x81, 0");
ODD_CFA(cfa_nine_operands, "9", "0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30");
ODD_CFA(cfa_cut_short, "2", "0x0a, 0x01");

static const struct {
    const char *name;
    void (*function)(void (*)(void));
    const char *end;
} bad_tables[] = {
#define ROW(name) { #name, name, name##_end }
    ROW(set_location), ROW(remembered_too_often), ROW(never_remembered),
    ROW(cfa_of_no_register), ROW(cfa_of_register_beyond), ROW(frame_by_bad_expression),
    ROW(return_address_undefined), ROW(return_address_the_same), ROW(return_address_0),
    ROW(cfa_by_unknown_operation), ROW(cfa_of_nothing), ROW(cfa_read_of_nothing), ROW(cfa_plus_one_operand),
    ROW(cfa_read_from_0), ROW(cfa_read_unaligned), ROW(cfa_by_register_beyond), ROW(cfa_nine_operands),
    ROW(cfa_cut_short),
#undef ROW
};

/* The walk ends at a function whose tables make no sense, or say that it has no caller. */
static void test_tables_without_sense(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_tables / sizeof bad_tables[0]; i++) {
        uintptr_t last;
        print_message("%s\n", bad_tables[i].name);
        through_count = 0;
        bad_tables[i].function(walk_own);
        assert_true(through_count >= 1);
        last = through[through_count - 1].address;
        assert_true(last > (uintptr_t)bad_tables[i].function && last <= (uintptr_t)bad_tables[i].end);
    }
}
#endif

/* A walk asks for each page that it comes to first. */
static void test_pages_are_asked_for(void **state)
{
    size_t page = os_page_size();
    char *pages = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint32_t its_value = 0x5bd1e995; /* a word that has the value which the call waits to change */

    (void)state;
    assert_ptr_not_equal(pages, MAP_FAILED);
    memcpy(pages, &its_value, sizeof its_value);
    assert_int_equal(mprotect(pages + page, page, PROT_READ), 0);
    assert_int_equal(mprotect(pages + 2 * page, page, PROT_NONE), 0);
    assert_int_equal(munmap(pages + 3 * page, page), 0);
    errno = ERANGE;
    assert_true(os_can_read((uintptr_t)pages));
    assert_true(os_can_read((uintptr_t)pages + 4));
    assert_true(os_can_read((uintptr_t)pages + page + 7));
    assert_false(os_can_read((uintptr_t)pages + 2 * page));
    assert_false(os_can_read((uintptr_t)pages + 3 * page));
    assert_false(os_can_read(16));
    assert_int_equal(errno, ERANGE);
    assert_int_equal(munmap(pages, 3 * page), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_through_libc),
        cmocka_unit_test(test_through_signals),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_pages_are_asked_for),
        cmocka_unit_test(test_through_code_without_tables),
        cmocka_unit_test(test_tables_in_every_form),
#if defined(__x86_64__)
        cmocka_unit_test(test_instructions_without_sense),
        cmocka_unit_test(test_tables_by_hand),
        cmocka_unit_test(test_tables_without_sense),
#endif
    };
    if (!os_tables_can())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
