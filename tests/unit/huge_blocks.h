/* Huge blocks in tests: take and give them back, and check the sums. */
#ifndef HAK_TESTS_UNIT_HUGE_BLOCKS_H
#define HAK_TESTS_UNIT_HUGE_BLOCKS_H

#include "core.h"

#include "pool/huge.h"

/* Take a block, and check B1, its alignment, and that it is zero if huge_allocate says so. */
char *huge_take_at(size_t size, size_t alignment);
char *huge_take(size_t size);

/* Takes blocks that do not touch each other: the blocks between them stay in use. */
void huge_take_apart(const size_t *sizes, size_t count, char **blocks);

void huge_give(char *block);

/* Bytes of freed ranges that wait. */
size_t huge_cached(void);

/* Checks B3, and that nothing else is mapped. */
void huge_check(size_t blocks, size_t live, size_t cached);

#endif
