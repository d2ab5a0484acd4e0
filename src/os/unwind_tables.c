/*
 * A frame's row of the tables says where its caller's registers are: the *canonical frame address* (CFA) by a register
 * and an offset, and each register by its place relative to the CFA. The row is found by running the frame
 * description's (FDE's) instructions up to the address at which the frame is; what all descriptions of an object share
 * is in their common one (CIE). DWARF 5, section 6.4, and the Linux Standard Base's chapter on .eh_frame and
 * .eh_frame_hdr.
 *
 * Tables that make no sense end the walk. It reads nothing beyond an FDE's own length, and no word outside the stack.
 */
#define _GNU_SOURCE
#include "os/unwind_tables.h"

#include <string.h>

#include "os/unwind_objects.h"
#include "os/unwind_rows.h"

enum { CFI_SAVED_ROWS = 3, CFI_OPERANDS = 8, CFI_STEPS_MOST = 4096, CFI_OBJECTS = 6, CFI_FRAME_MOST = 16 << 10 };

struct cfi_frame {
    uintptr_t registers[CFI_REGISTERS];
    uintptr_t address;   /* at which it is */
    bool interrupted;    /* `address` is an instruction that has not run yet, not the one behind a call */
};

struct cfi_tables {
    os_tables_may_read *may_read;
    struct unwind_object objects[CFI_OBJECTS]; /* those found last */
    unsigned next;
};

/* ---- Numbers in the tables ---- */

static uint64_t cfi_take_number(struct cfi_bytes *bytes, unsigned size)
{
    uint64_t value = 0;

    if ((size_t)(bytes->end - bytes->at) < size) {
        bytes->bad = true;
        bytes->at = bytes->end;
        return 0;
    }
    memcpy(&value, bytes->at, size); /* little-endian, as the processors are */
    bytes->at += size;
    return value;
}

static uint64_t cfi_take_leb(struct cfi_bytes *bytes, bool is_signed)
{
    uint64_t value = 0, byte;
    unsigned shift = 0;

    do {
        byte = cfi_take_number(bytes, 1);
        if (shift < 64)
            value |= (byte & 127) << shift;
        shift += 7;
    } while (byte & 128);
    if (is_signed && shift < 64 && byte & 64)
        value |= ~UINT64_C(0) << shift;
    return value;
}

static uint64_t cfi_take_uleb(struct cfi_bytes *bytes) { return cfi_take_leb(bytes, false); }
static int64_t cfi_take_sleb(struct cfi_bytes *bytes) { return (int64_t)cfi_take_leb(bytes, true); }

enum {
    CFI_AS_ADDRESS = 0,
    CFI_AS_U2 = 2,
    CFI_AS_U4 = 3,
    CFI_AS_U8 = 4,
    CFI_AS_S2 = 10,
    CFI_AS_S4 = 11,
    CFI_AS_S8 = 12,
    CFI_FROM_HERE = 0x10
};

/* An address in one of the forms DW_EH_PE_. Sets `bad` for a form that linkers for these processors do not make. */
static uintptr_t cfi_take_address(struct cfi_bytes *bytes, unsigned form)
{
    const uint8_t *here = bytes->at;
    uint64_t value;

    switch (form & 15) {
    case CFI_AS_ADDRESS:
    case CFI_AS_U8:
    case CFI_AS_S8:
        value = cfi_take_number(bytes, 8);
        break;
    case CFI_AS_U4:
        value = cfi_take_number(bytes, 4);
        break;
    case CFI_AS_S4:
        value = (uint64_t)(int64_t)(int32_t)cfi_take_number(bytes, 4);
        break;
    case CFI_AS_U2:
        value = cfi_take_number(bytes, 2);
        break;
    case CFI_AS_S2:
        value = (uint64_t)(int64_t)(int16_t)cfi_take_number(bytes, 2);
        break;
    default:
        bytes->bad = true;
        return 0;
    }
    return value + ((form & 0x70) == CFI_FROM_HERE ? (uintptr_t)here : 0);
}

/* ---- Objects ---- */

static const uint8_t *cfi_table_of(struct cfi_tables *tables, uintptr_t address)
{
    struct unwind_object *object;

    for (unsigned i = 0; i < CFI_OBJECTS; i++)
        if (address - tables->objects[i].start < tables->objects[i].end - tables->objects[i].start)
            return tables->objects[i].table;
    object = &tables->objects[tables->next++ % CFI_OBJECTS];
    *object = unwind_object_of(address);
    return object->table;
}

/* The FDE that the object's sorted table has for the address, or the one before it. */
static const uint8_t *cfi_find_fde(const uint8_t *table, uintptr_t address)
{
    enum { HEAD = 12, TABLE_FORM = 0x3b }; /* signed 4 bytes from the table's start */
    const uint8_t *row = table + HEAD;
    uint32_t count, low = 0;
    int32_t pair[2];

    if (table[0] != 1 || table[1] != (CFI_FROM_HERE | CFI_AS_S4) || table[2] != CFI_AS_U4 || table[3] != TABLE_FORM)
        return NULL;
    memcpy(&count, table + 8, sizeof count);
    for (uint32_t high = count; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        memcpy(pair, row + (size_t)middle * sizeof pair, sizeof pair);
        if ((uintptr_t)table + (uintptr_t)(intptr_t)pair[0] <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    memcpy(pair, row + (size_t)(low - 1) * sizeof pair, sizeof pair);
    return table + pair[1];
}

/* ---- Descriptions ---- */

/* The contents of the entry that starts at `at`, without its length. */
static struct cfi_bytes cfi_entry_at(const uint8_t *at)
{
    struct cfi_bytes head = { at, at + 4, false };
    uint64_t length = cfi_take_number(&head, 4);

    return (struct cfi_bytes){ at + 4, at + 4 + (length < 0xfffffff0 ? length : 0), false };
}

static bool cfi_read_common(const uint8_t *at, struct cfi_description *made, unsigned *form)
{
    struct cfi_bytes bytes = cfi_entry_at(at);
    uint64_t version;
    const char *words;

    *form = CFI_AS_ADDRESS;
    if (cfi_take_number(&bytes, 4) != 0)
        return false;
    version = cfi_take_number(&bytes, 1);
    words = (const char *)bytes.at;
    while (cfi_take_number(&bytes, 1) != 0) {
    }
    if (version == 4)
        cfi_take_number(&bytes, 2);
    made->code_unit = cfi_take_uleb(&bytes);
    made->data_unit = cfi_take_sleb(&bytes);
    made->return_register = version == 1 ? cfi_take_number(&bytes, 1) : cfi_take_uleb(&bytes);
    if (bytes.bad || (version != 1 && version != 3 && version != 4) || (words[0] != 'z' && words[0] != '\0'))
        return false;
    if (words[0] == 'z') {
        uint64_t length = cfi_take_uleb(&bytes);
        struct cfi_bytes more = { bytes.at, bytes.at + base_min(length, (size_t)(bytes.end - bytes.at)), false };
        for (words++; *words; words++) {
            if (*words == 'R')
                *form = (unsigned)cfi_take_number(&more, 1);
            else if (*words == 'P')
                cfi_take_address(&more, (unsigned)cfi_take_number(&more, 1) & 15);
            else if (*words == 'L')
                cfi_take_number(&more, 1);
            else if (*words == 'S')
                made->is_signal_frame = true;
            else if (*words != 'B') /* the key that return addresses are signed with */
                return false;
        }
        if (more.bad)
            return false;
        bytes.at = more.end;
    } else {
        return false; /* only compilers older than .eh_frame_hdr made such augmentations */
    }
    made->common = bytes;
    return !bytes.bad;
}

static bool cfi_read_description(const uint8_t *at, struct cfi_description *made)
{
    struct cfi_bytes bytes = cfi_entry_at(at);
    const uint8_t *from = bytes.at;
    uint64_t back = cfi_take_number(&bytes, 4), length;
    unsigned form;

    *made = (struct cfi_description){ .size = 0 };
    if (bytes.bad || back == 0 || !cfi_read_common(from - back, made, &form))
        return false;
    made->start = cfi_take_address(&bytes, form);
    made->size = cfi_take_address(&bytes, form & 15);
    length = cfi_take_uleb(&bytes);
    if (bytes.bad || length > (size_t)(bytes.end - bytes.at))
        return false;
    bytes.at += length;
    made->own = bytes;
    return true;
}

bool cfi_describe(const uint8_t *table, uintptr_t address, struct cfi_description *made)
{
    const uint8_t *fde = table ? cfi_find_fde(table, address) : unwind_object_registered(address);

    return fde != NULL && cfi_read_description(fde, made) && address - made->start < made->size;
}

/* ---- Rows ---- */

static void cfi_set_rule(struct cfi_row *row, uint64_t number, enum cfi_rule rule, int64_t value)
{
    if (number < CFI_REGISTERS) {
        row->rules[number] = (uint8_t)rule;
        row->values[number] = (int32_t)value;
    }
}

/* Returns the place of an expression relative to the tables, which a rule keeps as its value. Skips the expression. */
static int64_t cfi_take_expression(struct cfi_bytes *bytes, const uint8_t *table)
{
    int64_t place = bytes->at - table;
    uint64_t length = cfi_take_uleb(bytes);

    if (length > (size_t)(bytes->end - bytes->at) || place != (int32_t)place)
        bytes->bad = true;
    else
        bytes->at += length;
    return place;
}

/* Runs the instructions until the code's address is behind `address`. False: they make no sense. first: the row that
 * the CIE makes. */
static bool cfi_run(struct cfi_bytes bytes, const struct cfi_description *made, const uint8_t *table, uintptr_t address,
                    struct cfi_row *row, const struct cfi_row *first)
{
    struct cfi_row saved[CFI_SAVED_ROWS];
    unsigned depth = 0;
    uintptr_t here = made->start;

    for (unsigned steps = 0; bytes.at < bytes.end && here <= address; steps++) {
        unsigned code = (unsigned)cfi_take_number(&bytes, 1), low = code & 63;
        uint64_t number;

        if (steps == CFI_STEPS_MOST)
            return false;
        switch (code & 0xc0) {
        case 0x40: /* advance_loc */
            here += low * made->code_unit;
            continue;
        case 0x80: /* offset */
            cfi_set_rule(row, low, CFI_RULE_AT, (int64_t)cfi_take_uleb(&bytes) * made->data_unit);
            continue;
        case 0xc0: /* restore */
            if (first && low < CFI_REGISTERS)
                cfi_set_rule(row, low, first->rules[low], first->values[low]);
            continue;
        }
        switch (code) {
        case 0x00: /* nop */
        case 0x2d: /* AARCH64_negate_ra_state: signed addresses are known by their bits */
            break;
        case 0x01: /* set_loc: compilers for these processors do not use it */
            return false;
        case 0x02: /* advance_loc1, 2, 4 */
        case 0x03:
        case 0x04:
            here += cfi_take_number(&bytes, 1u << (code - 2)) * made->code_unit;
            break;
        case 0x05: /* offset_extended */
            number = cfi_take_uleb(&bytes);
            cfi_set_rule(row, number, CFI_RULE_AT, (int64_t)cfi_take_uleb(&bytes) * made->data_unit);
            break;
        case 0x06: /* restore_extended */
            number = cfi_take_uleb(&bytes);
            if (first && number < CFI_REGISTERS)
                cfi_set_rule(row, number, first->rules[number], first->values[number]);
            break;
        case 0x07: /* undefined */
            cfi_set_rule(row, cfi_take_uleb(&bytes), CFI_RULE_UNDEFINED, 0);
            break;
        case 0x08: /* same_value */
            cfi_set_rule(row, cfi_take_uleb(&bytes), CFI_RULE_SAME, 0);
            break;
        case 0x09: /* register */
            number = cfi_take_uleb(&bytes);
            cfi_set_rule(row, number, CFI_RULE_REGISTER, (int64_t)cfi_take_uleb(&bytes));
            break;
        case 0x0a: /* remember_state */
            if (depth == CFI_SAVED_ROWS)
                return false;
            saved[depth++] = *row;
            break;
        case 0x0b: /* restore_state */
            if (depth == 0)
                return false;
            *row = saved[--depth];
            break;
        case 0x0c: /* def_cfa, def_cfa_sf */
        case 0x12:
            number = cfi_take_uleb(&bytes);
            row->cfa_register = (uint8_t)base_min(number, 255);
            row->cfa_offset =
                (int32_t)(code == 0x0c ? (int64_t)cfi_take_uleb(&bytes) : cfi_take_sleb(&bytes) * made->data_unit);
            break;
        case 0x0d: /* def_cfa_register */
            row->cfa_register = (uint8_t)base_min(cfi_take_uleb(&bytes), 255);
            break;
        case 0x0e: /* def_cfa_offset, def_cfa_offset_sf */
            row->cfa_offset = (int32_t)cfi_take_uleb(&bytes);
            break;
        case 0x13:
            row->cfa_offset = (int32_t)(cfi_take_sleb(&bytes) * made->data_unit);
            break;
        case 0x0f: /* def_cfa_expression */
            row->cfa_register = CFI_REGISTERS;
            row->cfa_offset = (int32_t)cfi_take_expression(&bytes, table);
            break;
        case 0x10: /* expression, val_expression */
        case 0x16:
            number = cfi_take_uleb(&bytes);
            cfi_set_rule(row, number, code == 0x10 ? CFI_RULE_AT_EXPRESSION : CFI_RULE_IS_EXPRESSION,
                         cfi_take_expression(&bytes, table));
            break;
        case 0x11: /* offset_extended_sf */
            number = cfi_take_uleb(&bytes);
            cfi_set_rule(row, number, CFI_RULE_AT, cfi_take_sleb(&bytes) * made->data_unit);
            break;
        case 0x14: /* val_offset, val_offset_sf */
            number = cfi_take_uleb(&bytes);
            cfi_set_rule(row, number, CFI_RULE_IS, (int64_t)cfi_take_uleb(&bytes) * made->data_unit);
            break;
        case 0x15:
            number = cfi_take_uleb(&bytes);
            cfi_set_rule(row, number, CFI_RULE_IS, cfi_take_sleb(&bytes) * made->data_unit);
            break;
        case 0x2e: /* GNU_args_size */
            cfi_take_uleb(&bytes);
            break;
        default:
            return false;
        }
    }
    return !bytes.bad;
}

/* ---- Values ---- */

static bool cfi_read_word(const struct cfi_tables *tables, uintptr_t address, uintptr_t *value)
{
    if (address % sizeof *value != 0 || !tables->may_read(address))
        return false;
    memcpy(value, (const void *)address, sizeof *value);
    return true;
}

/* The value of an expression. Knows the operations that the tables of linkers and C libraries use. */
static bool cfi_evaluate(const struct cfi_tables *tables, const struct cfi_frame *frame, const uint8_t *at,
                         const uintptr_t *first, uintptr_t *value)
{
    struct cfi_bytes bytes = { at, at + 10, false };
    uint64_t length = cfi_take_uleb(&bytes), number;
    uintptr_t stack[CFI_OPERANDS];
    unsigned depth = 0;

    bytes.end = bytes.at + length;
    if (first)
        stack[depth++] = *first;
    while (bytes.at < bytes.end && !bytes.bad) {
        unsigned code = (unsigned)cfi_take_number(&bytes, 1);
        uintptr_t made, *top = depth ? &stack[depth - 1] : NULL;

        if (code >= 0x30 && code < 0x50) { /* lit0.. */
            made = code - 0x30;
        } else if (code >= 0x70 && code < 0x90) { /* breg0.. */
            number = code - 0x70;
            if (number >= CFI_REGISTERS)
                return false;
            made = frame->registers[number] + (uintptr_t)cfi_take_sleb(&bytes);
        } else if (code == 0x08 || code == 0x0a || code == 0x0c || code == 0x0e) { /* const1u, 2u, 4u, 8u */
            made = cfi_take_number(&bytes, 1u << (code - 0x08) / 2);
        } else if (code == 0x09) { /* const1s */
            made = (uintptr_t)(intptr_t)(int8_t)cfi_take_number(&bytes, 1);
        } else if (code == 0x0b) { /* const2s */
            made = (uintptr_t)(intptr_t)(int16_t)cfi_take_number(&bytes, 2);
        } else if (code == 0x06 && top) { /* deref */
            if (!cfi_read_word(tables, *top, top))
                return false;
            continue;
        } else if (code == 0x23 && top) { /* plus_uconst */
            *top += cfi_take_uleb(&bytes);
            continue;
        } else if (depth >= 2 && (code == 0x1a || code == 0x1c || code == 0x22 || code == 0x24 || code == 0x2a)) {
            depth--;
            top = &stack[depth - 1];
            *top = code == 0x1a   ? *top & stack[depth]
                   : code == 0x1c ? *top - stack[depth]
                   : code == 0x22 ? *top + stack[depth]
                   : code == 0x24 ? *top << (stack[depth] & 63)
                                  : (uintptr_t)((intptr_t)*top >= (intptr_t)stack[depth]);
            continue;
        } else {
            return false;
        }
        if (depth == CFI_OPERANDS)
            return false;
        stack[depth++] = made;
    }
    if (bytes.bad || depth == 0)
        return false;
    *value = stack[depth - 1];
    return true;
}

/* A register of the caller; *slot: where it lies on the stack, or NULL. */
static bool cfi_register_of_caller(const struct cfi_tables *tables, const struct cfi_frame *frame, const uint8_t *table,
                                   uintptr_t cfa, uint8_t rule, int32_t value, uintptr_t *result,
                                   const uintptr_t **slot)
{
    uintptr_t place;

    *slot = NULL;
    switch (rule) {
    case CFI_RULE_IS:
        *result = cfa + (uintptr_t)(intptr_t)value;
        return true;
    case CFI_RULE_REGISTER:
        *result = frame->registers[(uint32_t)value < CFI_REGISTERS ? value : 0];
        return true;
    case CFI_RULE_IS_EXPRESSION:
        return cfi_evaluate(tables, frame, table + value, &cfa, result);
    case CFI_RULE_AT:
        place = cfa + (uintptr_t)(intptr_t)value;
        break;
    case CFI_RULE_AT_EXPRESSION:
        if (!cfi_evaluate(tables, frame, table + value, &cfa, &place))
            return false;
        break;
    default: /* CFI_RULE_UNDEFINED */
        return false;
    }
    *slot = (const uintptr_t *)place;
    return cfi_read_word(tables, place, result);
}

/* A signed return address without its signature. */
static uintptr_t cfi_without_signature(uintptr_t address)
{
#if defined(__aarch64__)
    register uintptr_t link __asm__("x30") = address;
    __asm__("hint #7" : "+r"(link)); /* xpaclri, which older processors take for a nop */
    return link;
#else
    return address;
#endif
}

/* From the code that the kernel returns to from a signal's handler to what the signal interrupted. Kernels for aarch64
 * and riscv64 have no table for it: it is known by its two instructions, and what was interrupted lies on the stack. */
static bool cfi_step_signal(const struct cfi_tables *tables, struct cfi_frame *frame)
{
#if defined(__aarch64__) || defined(__riscv)
#if defined(__aarch64__)
    /* in struct rt_sigframe: siginfo; in ucontext_t: mcontext; the fault's address */
    enum { REGISTERS_AT = 128 + 176 + 8 };
    static const uint32_t code[] = { 0xd2801168, 0xd4000001 }; /* mov x8, #__NR_rt_sigreturn; svc #0 */
#else
    enum { REGISTERS_AT = 128 + 176 };
    static const uint32_t code[] = { 0x08b00893, 0x00000073 }; /* li a7, __NR_rt_sigreturn; ecall */
#endif
    uintptr_t saved = frame->registers[CFI_STACK_REGISTER] + REGISTERS_AT;

    if (frame->address % 4 != 0 || !tables->may_read(frame->address) || !tables->may_read(frame->address + 7) ||
        memcmp((const void *)frame->address, code, sizeof code) != 0)
        return false;
    /* by number, the instruction's address too */
    for (unsigned number = 0; number < CFI_REGISTERS; number++)
        if (!cfi_read_word(tables, saved + number * sizeof saved, &frame->registers[number]))
            return false;
    frame->address = frame->registers[CFI_HERE_REGISTER];
    frame->interrupted = true;
    return frame->address != 0;
#else
    (void)tables;
    (void)frame;
    return false;
#endif
}

/* From code without tables to its caller by the frame pointer. V8's compilers keep it, and the JVM's by an option. The
 * other registers that a callee keeps are lost, but tables seldom ask for them. */
static bool cfi_step_pointer(const struct cfi_tables *tables, struct cfi_frame *frame, const uintptr_t **slot)
{
    uintptr_t place = frame->registers[CFI_FRAME_REGISTER] + FRAME_WORDS * sizeof place,
              stack = frame->registers[CFI_STACK_REGISTER], outer, address;

    /* A register that holds something else seldom points to a word that is a little above the frame's end. */
    if (frame->interrupted || place < stack || place - stack > CFI_FRAME_MOST ||
        !cfi_read_word(tables, place, &outer) || !cfi_read_word(tables, place + sizeof place, &address))
        return false;
    address = cfi_without_signature(address);
    if (address < 4096) /* no code */
        return false;
    frame->registers[CFI_FRAME_REGISTER] = outer; /* any value, if the caller has tables */
    frame->registers[CFI_STACK_REGISTER] = place + 2 * sizeof place;
    frame->registers[CFI_RETURN_REGISTER] = address;
    frame->address = address;
    *slot = (const uintptr_t *)place + 1;
    return true;
}

/* Moves the frame to its caller, whose registers have been found. False: the stack ends here. */
static bool cfi_arrive(struct cfi_frame *frame, uintptr_t address, const uintptr_t **slot)
{
    frame->address = cfi_without_signature(address);
    if (frame->address != address)
        *slot = NULL; /* the slot holds a signed address */
    return frame->address != 0;
}

/* From a frame to its caller's by a kept row. */
static bool cfi_step_kept(const struct cfi_tables *tables, struct cfi_frame *frame, const struct unwind_row *row,
                          const uintptr_t **slot)
{
    uintptr_t cfa = frame->registers[row->cfa_register] + (uintptr_t)(intptr_t)row->cfa_offset;

    if (row->below[ROW_REGISTERS - 1] == 0)
        return false;
    for (unsigned i = 0; i < ROW_REGISTERS; i++) {
        uintptr_t place = cfa - row->below[i] * sizeof place;
        if (row->below[i] && !cfi_read_word(tables, place, &frame->registers[unwind_row_registers[i]]))
            return false;
        *slot = (const uintptr_t *)place; /* at last the return address's */
    }
    frame->registers[CFI_STACK_REGISTER] = cfa;
    frame->interrupted = false;
    return cfi_arrive(frame, frame->registers[CFI_RETURN_REGISTER], slot);
}

/* As cfi_step_kept, by a row that is found anew. `table`: as of cfi_describe. */
static HAK_NOINLINE bool cfi_step_anew(const struct cfi_tables *tables, struct cfi_frame *frame, uintptr_t address,
                                       const uint8_t *table, const uintptr_t **slot)
{
    const uint8_t *base; /* of expressions' places */
    struct cfi_description made;
    struct cfi_row row = { .cfa_register = 255 }, first;
    struct cfi_frame caller;
    const uintptr_t *unused;
    uintptr_t cfa;

    if (!cfi_describe(table, address, &made))
        return cfi_step_signal(tables, frame) || cfi_step_pointer(tables, frame, slot);
    base = table ? table : made.own.at;
    if (made.return_register >= CFI_REGISTERS ||
        !cfi_run(made.common, &made, base, made.start, &row, NULL))
        return false;
    first = row;
    if (!cfi_run(made.own, &made, base, address, &row, &first))
        return false;
    if (table && !made.is_signal_frame && made.return_register == CFI_RETURN_REGISTER)
        unwind_row_keep(address, table, &row);
    if (row.cfa_register < CFI_REGISTERS)
        cfa = frame->registers[row.cfa_register] + (uintptr_t)(intptr_t)row.cfa_offset;
    else if (row.cfa_register != CFI_REGISTERS || !cfi_evaluate(tables, frame, base + row.cfa_offset, NULL, &cfa))
        return false;
    caller = *frame;
    caller.registers[CFI_STACK_REGISTER] = cfa;
    for (unsigned number = 0; number < CFI_REGISTERS; number++)
        if (row.rules[number] != CFI_RULE_SAME && row.rules[number] != CFI_RULE_UNDEFINED &&
            number != made.return_register &&
            !cfi_register_of_caller(tables, frame, base, cfa, row.rules[number], row.values[number],
                                    &caller.registers[number], &unused))
            return false;
    if (row.rules[made.return_register] == CFI_RULE_SAME) {
        caller.address = frame->registers[made.return_register];
        if (made.return_register != CFI_RETURN_REGISTER || !CFI_HAS_LINK || frame->address == caller.address)
            return false; /* only a link register keeps a return address */
    } else if (!cfi_register_of_caller(tables, frame, base, cfa, row.rules[made.return_register],
                                       row.values[made.return_register], &caller.address, slot)) {
        return false;
    }
    caller.registers[made.return_register] = caller.address;
    caller.interrupted = made.is_signal_frame;
    *frame = caller;
    return cfi_arrive(frame, caller.address, slot);
}

/* From a frame to its caller's; *slot: where the return address lies. False: there is none, or it is not known. */
static bool cfi_step(struct cfi_tables *tables, struct cfi_frame *frame, const uintptr_t **slot)
{
    uintptr_t address = frame->address - !frame->interrupted;
    const uint8_t *table = cfi_table_of(tables, address);
    struct unwind_row row;

    *slot = NULL;
    return table && unwind_row_find(address, table, &row) ? cfi_step_kept(tables, frame, &row, slot)
                                                          : cfi_step_anew(tables, frame, address, table, slot);
}

/* ---- The walk ---- */

#if defined(__x86_64__)
#define CFI_TAKE_REGISTERS(frame) \
    __asm__ volatile("movq %%rbx, 24(%0)\n\tmovq %%rbp, 48(%0)\n\tmovq %%rsp, 56(%0)\n\tmovq %%r12, 96(%0)\n\t" \
                     "movq %%r13, 104(%0)\n\tmovq %%r14, 112(%0)\n\tmovq %%r15, 120(%0)\n\tleaq 0(%%rip), " \
                     "%%rcx\n\tmovq %%rcx, 128(%0)" \
                     : : "r"((frame)->registers) : "rcx", "memory")
#elif defined(__aarch64__)
#define CFI_TAKE_REGISTERS(frame) \
    __asm__ volatile("stp x19, x20, [%0, #152]\n\tstp x21, x22, [%0, #168]\n\tstp x23, x24, [%0, #184]\n\t" \
                     "stp x25, x26, [%0, #200]\n\tstp x27, x28, [%0, #216]\n\tstp x29, x30, [%0, #232]\n\t" \
                     "mov x9, sp\n\tadr x10, .\n\tstp x9, x10, [%0, #248]" \
                     : : "r"((frame)->registers) : "x9", "x10", "memory")
#elif defined(__riscv)
#define CFI_TAKE_REGISTERS(frame) \
    __asm__ volatile("sd ra, 8(%0)\n\tsd sp, 16(%0)\n\tsd s0, 64(%0)\n\tsd s1, 72(%0)\n\tsd s2, 144(%0)\n\t" \
                     "sd s3, 152(%0)\n\tsd s4, 160(%0)\n\tsd s5, 168(%0)\n\tsd s6, 176(%0)\n\tsd s7, 184(%0)\n\t" \
                     "sd s8, 192(%0)\n\tsd s9, 200(%0)\n\tsd s10, 208(%0)\n\tsd s11, 216(%0)\n\t" \
                     "auipc t0, 0\n\tsd t0, 0(%0)" \
                     : : "r"((frame)->registers) : "t0", "memory")
#else
#define CFI_TAKE_REGISTERS(frame) (void)(frame)
#endif

bool os_tables_can(void) { return CFI_CAN_WALK && unwind_objects_can(); }

HAK_NOINLINE unsigned os_tables_walk(struct unwind_frame *frames, unsigned capacity, os_tables_may_read *may_read,
                                     bool (*stop)(void *argument, unsigned count), void *argument)
{
    struct cfi_tables tables = { .may_read = may_read };
    struct cfi_frame frame = { .interrupted = true };
    unsigned count = 0;

    CFI_TAKE_REGISTERS(&frame);
    frame.address = frame.registers[CFI_HERE_REGISTER];
    while (count < capacity) {
        uintptr_t before = frame.registers[CFI_STACK_REGISTER];
        const uintptr_t *slot;
        if (!cfi_step(&tables, &frame, &slot) ||
            (frame.registers[CFI_STACK_REGISTER] <= before && slot && !frame.interrupted))
            break;
        frames[count++] = (struct unwind_frame){ frame.address, slot };
        if (stop && stop(argument, count))
            break;
    }
    return count;
}
