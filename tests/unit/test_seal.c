/* Protects harden/seal.h: every byte counts in checks and when memory is zeroed, and a seal tells the size and kind. */
#include "core.h"

#include <string.h>

#include "harden/seal.h"

enum { MOST = 2048, MARGIN = 64 };
static _Alignas(64) char memory[MARGIN + MOST + MARGIN];
static char *const block = memory + MARGIN;

static void secrets(void)
{
    harden.secret[0] = UINT64_C(0x1122334455667788);
    harden.secret[1] = UINT64_C(0x99aabbccddeeff01);
}

/* Nothing outside of [from, to) is read or written: the margins hold other bytes. */
static void set_margins(size_t size, int value)
{
    memset(memory, value, MARGIN);
    memset(block + size, value, MARGIN);
}

static void test_zero(void)
{
    for (size_t size = 16; size <= MOST; size += 16) {
        memset(block, 0x5a, size);
        set_margins(size, 0x77);
        seal_zero(block, size);
        for (size_t at = 0; at < size; at++)
            assert_int_equal(block[at], 0);
        for (size_t at = 1; at <= MARGIN; at++)
            assert_true(block[size + at - 1] == 0x77 && *(block - at) == 0x77);
    }
}

static void test_is_zero(void)
{
    for (size_t size = 16; size <= MOST; size += 16) {
        memset(block, 0, size);
        set_margins(size, 1);
        assert_true(seal_is_zero(block, size));
        assert_int_equal(seal_first_written(block, size), size);
        for (size_t at = 0; at < size; at++) {
            block[at] = (char)0x80;
            assert_false(seal_is_zero(block, size));
            assert_int_equal(seal_first_written(block, size), at);
            block[at] = 0;
        }
    }
}

/* In a block of each class, for each size: the seal that was put is read, no byte behind the size changes unseen, and
 * the seal is taken once. */
static void check_seals(unsigned class, size_t step)
{
    static struct ledger ledger;
    size_t size = class_size(class);
    bool in_tail = seal_in_tail(class);
    struct seal seal;

    for (size_t requested = 0; requested + SEAL_BYTES <= size; requested += step) {
        enum seal_kind kind = (enum seal_kind)(requested % 3);
        memset(block, 0, size);
        memset(block, 0x33, requested);
        ledger_clear(&ledger);
        assert_int_equal(seal_read(block, class, &ledger, 5, &seal), SEAL_NONE);
        seal_put(block, class, &ledger, 5, requested, kind);
        for (size_t at = 0; at < requested; at++)
            assert_int_equal(block[at], 0x33);
        for (size_t at = requested; at < (in_tail ? size : requested + SEAL_BYTES); at++) {
            block[at] ^= 0x10;
            assert_int_equal(seal_read(block, class, &ledger, 5, &seal), SEAL_BROKEN);
            if (!in_tail || at + SEAL_BYTES < size) { /* else the size may have changed */
                assert_int_equal(seal.changed, at);
                assert_int_equal(seal.requested, requested);
            }
            block[at] ^= 0x10;
        }
        assert_int_equal(seal_read(block, class, &ledger, 5, &seal), SEAL_WHOLE);
        assert_int_equal(seal.requested, requested);
        assert_int_equal(seal.kind, kind);
        assert_true(seal_take(block, class, &ledger, 5));
        assert_false(seal_take(block, class, &ledger, 5));
        assert_int_equal(seal_read(block, class, &ledger, 5, &seal), SEAL_NONE);
        seal_erase(block, class, requested, true);
        assert_true(seal_is_zero(block, size));
    }
}

static void test_seals(void)
{
    secrets();
    for (unsigned class = 1; class_size(class) <= MOST; class++)
        check_seals(class, class_size(class) <= 128 ? 1 : 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_zero),
        core_unit_test(test_is_zero),
        core_unit_test(test_seals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
