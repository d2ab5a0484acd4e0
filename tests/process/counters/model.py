"""A model of a thread's stack of one size class and its slabs, after docs/dev/design.md: what known calls must count. Here
the cache holds at most 8 blocks of a class (HAKMEM_FC_CAP=8). Refills and flushes move half of them."""

from collections import Counter
from dataclasses import dataclass, field

UNIT = 65536
ONE_WAY = 8   # overflows without a refill, after which blocks only pass through
WARM_FIRST = 16  # emptied slabs of one unit that wait with a heap at first (pool/heap.h, O6)


def first_capacity(size):
    return min(max(4096 // size, 1), 16)


@dataclass
class Stack:
    """The blocks of a class in a thread's cache, oldest first, by the number of their slab."""

    size: int
    most: int = 8
    capacity: int = 0
    overflows: int = 0
    blocks: list = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)

    def grow(self):
        wanted = min(self.capacity * 2 or first_capacity(self.size), self.most)
        if wanted > self.capacity:
            self.capacity = wanted
            self.counts["cache_grown"] += 1

    def free(self, slab, closed=False):
        """Returns the blocks that leave the cache, oldest first. closed: another thread's block, of an unused class."""
        if len(self.blocks) < self.capacity:
            self.blocks.append(slab)
            self.counts["tls_sll"] += 1
            return []
        one_way, leaving = self.overflows >= ONE_WAY, []
        closed = closed and not one_way and self.capacity == 0
        self.overflows += not one_way
        if closed:
            self.counts["early_free_closed"] += 1
            return [slab]
        self.grow()
        if len(self.blocks) == self.capacity:
            number = len(self.blocks) if one_way else (len(self.blocks) + 1) // 2
            leaving, self.blocks = self.blocks[:number], self.blocks[number:]
        self.blocks.append(slab)
        self.counts["tls_sll"] += 1
        return leaving


@dataclass
class Heap:
    """The slabs of a thread that allocates one class: the rest of the newest, and the stock of slabs to come."""

    stack: Stack
    slabs: int = 0      # of all classes
    carved: int = 0
    room: int = 0
    stock: int = 0
    budget: int = 0
    sparse: bool = False  # the stock for slabs that may stay nearly empty

    @property
    def counts(self):
        return self.stack.counts

    def miss(self):
        self.counts["warm_miss"] += 1
        self.counts["refill_pool"] += 1
        self.budget = min(self.budget * 2 or 1, 16, 1 + self.slabs // 24)
        self.stock += self.budget
        self.counts["warm_prefill"] += self.budget

    def get_slab(self):
        first_use = self.stack.size <= 4096 and self.carved == 0
        if self.sparse and not first_use:  # the stock for dense use starts empty
            self.stock = self.budget = 0
        self.sparse = first_use
        if self.stock:
            self.counts["warm_hit"] += 1
            self.counts["refill_warm_hit"] += 1
        else:
            self.miss()
        self.stock -= 1
        self.slabs += 1
        self.carved += 1
        self.counts["mf2_new_page"] += 1
        self.room = UNIT // self.stack.size

    def malloc(self):
        """Returns the number of the block's slab."""
        stack = self.stack
        if not stack.blocks:
            stack.overflows = 0
            stack.grow()
            want = max(stack.capacity // 2, 1)
            if self.room:
                self.counts["refill_available"] += 1
            else:
                self.get_slab()
            got = min(want, self.room)
            self.room -= got
            stack.blocks = [self.carved] * got
        return stack.blocks.pop()

    def emptied(self, number):
        """Slabs became empty. Some wait for the next use."""
        kept = min(number, WARM_FIRST)
        self.counts["warm_keep"] += kept
        self.counts["warm_release"] += number - kept


def nonzero(*counts):
    total = sum(counts, Counter())
    return {name: count for name, count in total.items() if count}
