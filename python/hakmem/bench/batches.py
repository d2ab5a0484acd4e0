"""The grid of batches: block sizes, numbers of blocks and orders of freeing. Each cell is a row of bench_batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hakmem.amount import number_of
from hakmem.bench.deterministic import SmallRow
from hakmem.bench.rows import Row
from hakmem.units import bytes_exact

KIB, MIB = 1 << 10, 1 << 20
SIZES = (16, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB)
NUMBERS = (10, 100, 1000, 10000, 100000)
ORDERS = ("fifo", "lifo", "shuffled")
# Cells of more memory than this are left out.
MOST_MIB = 2048
# The largest block.
SIZE_MOST = 1 << 30
SEED = 42
PROGRAM = "bench_batches"
# A pair is one malloc and its free.
OPERATIONS_A_PAIR = 2
# Under callgrind: pairs to run until an allocator has settled, and pairs to count. Both are whole rounds, at least one.
SETTLING_PAIRS, COUNTED_PAIRS = 2000, 10000


def parse_size(text: str) -> int:
    """Returns the bytes of a text such as 64, 4K or 1MiB; raises ValueError if it is not a size."""
    size = number_of(text)
    if size is None or not 1 <= size <= SIZE_MOST:
        raise ValueError(f"'{text}' is no size from 1 to 1024M, such as 64, 4K or 1M")
    return size


@dataclass(frozen=True)
class Cell:
    """One batch: `number` blocks of `size` bytes, freed in `order`. With touch, one byte of each block is written."""

    size: int
    number: int
    order: str = "fifo"
    touch: bool = True

    @property
    def name(self) -> str:
        """The name of the cell's row."""
        size = bytes_exact(self.size).replace(" ", "")
        return f"{size}-{self.number}-{self.order}{'' if self.touch else '-untouched'}"

    @property
    def label(self) -> str:
        """The cell's size and number, for tables."""
        return f"{bytes_exact(self.size)} x {self.number:,}"

    @property
    def about(self) -> str:
        """What the cell measures, in words."""
        return (f"batches of {self.number:,} blocks of {bytes_exact(self.size)}, freed {self.order}, "
                f"{'a byte of each written' if self.touch else 'not touched'}")

    def command(self, rounds: int, milliseconds: int = 0) -> tuple[str, ...]:
        """Returns the command for the rounds, or for the milliseconds if these are over earlier."""
        return (PROGRAM, str(rounds), self.order, str(self.number), "1", str(SEED), str(self.size),
                str(int(self.touch)), str(milliseconds))

    def row(self, milliseconds: int) -> Row:
        """Returns the cell's row. It runs as many rounds as fit into the time, at least one, so that an allocator a
        hundred times slower takes no longer."""
        return Row(self.name, "driver", 1, self.about, self.command(1 << 40, milliseconds), "rate")

    def small_row(self) -> SmallRow:
        """Returns the cell as a row for callgrind."""
        settled = max(1, SETTLING_PAIRS // self.number)
        counted = max(1, COUNTED_PAIRS // self.number)
        return SmallRow(self.name, self.command(settled + counted), self.command(settled))


def grid(sizes: Iterable[int] = SIZES, numbers: Iterable[int] = NUMBERS, orders: Iterable[str] = ORDERS,
         touches: Iterable[bool] = (True, False), most_mib: int = MOST_MIB) -> tuple[list[Cell], list[Cell]]:
    """Returns (cells, cells that are left out because they need more than most_mib)."""
    pairs = [(size, number) for size in sizes for number in numbers]
    cells = [Cell(size, number, order, touch) for touch in touches for order in orders
             for size, number in pairs if size * number <= most_mib * MIB]
    return cells, [Cell(size, number) for size, number in pairs if size * number > most_mib * MIB]
