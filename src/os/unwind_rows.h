/*
 * Rows of unwind tables that walks have found (os/unwind_tables.c), kept for later walks. To find a row costs 2,000
 * instructions, to take a kept one 30. A thread's first stack is new to the thread, but few of its rows are new to the
 * process.
 *
 * A kept row is known by the code's address, its object's table, and what the table's head tells of the object. So an
 * object that is loaded where another was has rows of its own. Any thread may find and keep rows at any time.
 */
#ifndef HAK_OS_UNWIND_ROWS_H
#define HAK_OS_UNWIND_ROWS_H

#include "base/base.h"

/* By the numbers that tables have for registers. CFI_HERE_REGISTER: a number that no table uses for another register
 * holds the instruction's address. CFI_HAS_LINK: CFI_RETURN_REGISTER is a register of the processor. */
#if defined(__x86_64__)
enum {
    CFI_REGISTERS = 17,
    CFI_STACK_REGISTER = 7,
    CFI_FRAME_REGISTER = 6,
    CFI_RETURN_REGISTER = 16,
    CFI_HERE_REGISTER = 16,
    CFI_HAS_LINK = 0,
    CFI_CAN_WALK = 1,
    ROW_REGISTERS = 7
};
#elif defined(__aarch64__)
enum {
    CFI_REGISTERS = 33,
    CFI_STACK_REGISTER = 31,
    CFI_FRAME_REGISTER = 29,
    CFI_RETURN_REGISTER = 30,
    CFI_HERE_REGISTER = 32,
    CFI_HAS_LINK = 1,
    CFI_CAN_WALK = 1,
    ROW_REGISTERS = 12
};
#elif defined(__riscv)
enum {
    CFI_REGISTERS = 32,
    CFI_STACK_REGISTER = 2,
    CFI_FRAME_REGISTER = 8,
    CFI_RETURN_REGISTER = 1,
    CFI_HERE_REGISTER = 0,
    CFI_HAS_LINK = 1,
    CFI_CAN_WALK = 1,
    ROW_REGISTERS = 13
};
#else
enum {
    CFI_REGISTERS = 1,
    CFI_STACK_REGISTER = 0,
    CFI_FRAME_REGISTER = 0,
    CFI_RETURN_REGISTER = 0,
    CFI_HERE_REGISTER = 0,
    CFI_HAS_LINK = 0,
    CFI_CAN_WALK = 0,
    ROW_REGISTERS = 1
};
#endif

/* How a register of the caller is found. */
enum cfi_rule {
    CFI_RULE_SAME = 0,
    CFI_RULE_UNDEFINED,
    CFI_RULE_AT,
    CFI_RULE_IS,
    CFI_RULE_REGISTER,
    CFI_RULE_AT_EXPRESSION,
    CFI_RULE_IS_EXPRESSION
};

struct cfi_row {
    int32_t cfa_offset;   /* or where the CFA's expression is, from the object's table on */
    uint8_t cfa_register; /* CFI_REGISTERS: by the expression */
    uint8_t rules[CFI_REGISTERS];
    int32_t values[CFI_REGISTERS];
};

/* A row in which each register is unchanged or lies in one of the words below the CFA, as in nearly all rows. */
struct unwind_row {
    uint32_t cfa_register;
    int32_t cfa_offset;
    /* By place in unwind_row_registers: how many words below the CFA the register lies. 0: unchanged. The return
     * address is the last; 0: there is no caller. */
    uint8_t below[16];
};
_Static_assert(sizeof(struct unwind_row) == 3 * sizeof(uint64_t), "three words are kept of a row");

/* The registers that a callee saves, and the return address. */
HAK_DATA const uint8_t unwind_row_registers[ROW_REGISTERS];

/* Finds the row for the address, in an object with the table. */
HAK_HIDDEN bool unwind_row_find(uintptr_t address, const uint8_t *table, struct unwind_row *row);

/* Keeps the row, unless it has other rules. */
HAK_HIDDEN void unwind_row_keep(uintptr_t address, const uint8_t *table, const struct cfi_row *row);

#endif
