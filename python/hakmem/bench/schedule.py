"""Chooses which part of a run comes next. A block is one row on every allocator: one round of it, or its system calls.

The choice depends only on the finished blocks and the time left. So a resumed run goes on as if it had never
stopped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from hakmem.bench import statistics

if TYPE_CHECKING:
    from hakmem.records import Entry, Sample

FAILURES_MOST = 2
# Memory to warm for a row: the highest peak of its runs so far, times this factor, plus this much.
WARM_FACTOR = 3
WARM_MORE_MIB = 64


@dataclass(frozen=True)
class Plan:
    """What a run shall do.

    rounds_least: rounds of every row, if there is time. rounds_most: rounds of a row whose time against the best
    peer is not yet known within `narrow` (half its interval). calls: `early` (after a row's first round), `late`
    (after the rounds of all rows), or None. exit_status: how a good run of the program ends."""

    rows: tuple[str, ...]
    allocators: tuple[str, ...]
    subject: str
    copy: str
    rounds_least: int
    rounds_most: int
    budget_s: float | None = None
    narrow: float = 0.03
    calls: str | None = "early"
    warm_mib: int = 1024
    idle: bool = False
    exit_status: int = 0

    @property
    def peers(self) -> list[str]:
        """The allocators except the subject and its copy."""
        return [name for name in self.allocators if name not in (self.subject, self.copy)]


@dataclass(frozen=True)
class Block:
    """One row on every allocator. number: the round, counted from 0; None for the block of system calls."""

    row: str
    number: int | None


@dataclass
class State:
    """The finished blocks and their samples."""

    samples: list[Sample] = field(default_factory=list)
    calls: list[Entry] = field(default_factory=list)
    # {row: {number of the block: seconds}}
    seconds: defaultdict[str, dict[Optional[int], float]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, block: Block, seconds: float, samples: Iterable[Sample], calls: Iterable[Entry]) -> None:
        """Adds a finished block."""
        self.seconds[block.row][block.number] = seconds
        self.samples += samples
        self.calls += calls

    def rounds(self, row: str) -> int:
        """Returns the number of finished rounds of a row."""
        return sum(1 for number in self.seconds.get(row, ()) if number is not None)

    def elapsed(self) -> float:
        """Returns the seconds that all finished blocks took."""
        return sum(sum(blocks.values()) for blocks in self.seconds.values())

    def of(self, row: str, allocator: str | None = None) -> list[Sample]:
        """Returns the samples of a row, or of one allocator in it."""
        return [sample for sample in self.samples
                if sample["row"] == row and allocator in (None, sample["allocator"])]


def rotated(names: Sequence[str], number: int, place: int) -> list[str]:
    """Returns the names in the order of this round: each round and each row begins with another allocator."""
    turn = (number + place) % len(names)
    return list(names[turn:]) + list(names[:turn])


def failed_too_often(samples: Sequence[Sample]) -> bool:
    """Returns whether the allocator failed too often to be run again."""
    return [sample["status"] != "ok" for sample in samples].count(True) >= FAILURES_MOST


def warm_mib(plan: Plan, samples: Sequence[Sample]) -> int:
    """Returns the MiB to warm before a run: by the peaks of the row's runs, or the maximum before the first."""
    peaks = [sample["peak_rss_kib"] for sample in samples if "peak_rss_kib" in sample]
    if not peaks:
        return plan.warm_mib
    wanted: int = round(max(peaks) / 1024 * WARM_FACTOR) + WARM_MORE_MIB
    return min(plan.warm_mib, wanted)


def estimate(state: State, block: Block) -> float:
    """Returns the seconds that a block will probably take, judged by finished blocks; 0 if nothing is known."""
    own = state.seconds.get(block.row, {})
    first = [blocks[0] for blocks in state.seconds.values() if 0 in blocks]
    if block.number is None:
        known = [(blocks[None], blocks[0]) for blocks in state.seconds.values() if None in blocks and 0 in blocks]
        by_round = max((calls / max(one, 1e-9) for calls, one in known), default=1.0)
        return own[0] * min(by_round, 4.0)
    later = [own[number] for number in sorted(key for key in own if key)]
    if later:
        return max(later[-2:])
    if 0 in own:
        return own[0]
    return sum(first) / len(first) if first else 0.0


def uncertainty(plan: Plan, state: State, row: str) -> float:
    """Returns half_width() of the row's time against the peer with the least median; 0 without a peer."""
    runs = statistics.group_samples(state.of(row))[row]
    times = {name: time for name in plan.peers
             if runs.get(name) and not any(s["status"] != "ok" for s in state.of(row, name))
             and (time := statistics.middle(runs[name].values(), "time_s")) is not None}
    if not times or plan.subject not in runs:
        return 0.0
    best = min(times, key=lambda name: times[name])
    ratios = statistics.ratios_by_round(runs[plan.subject], runs[best], "time_s")
    return statistics.half_width(statistics.describe_ratios(ratios)) if ratios else 0.0


def wanted(plan: Plan, state: State, uncertain: Callable[[str], float]) -> list[Block]:
    """Returns the blocks that are still wanted, in the order in which they should come."""
    counts = {row: state.rounds(row) for row in plan.rows}
    calls = [Block(row, None) for row in plan.rows
             if plan.calls and counts[row] and None not in state.seconds.get(row, {})]
    least = [Block(row, counts[row]) for row in sorted(plan.rows, key=lambda row: counts[row])
             if counts[row] < plan.rounds_least]
    more = [row for row in plan.rows
            if plan.rounds_least <= counts[row] < plan.rounds_most and uncertain(row) > plan.narrow]
    extra = [Block(row, counts[row]) for row in sorted(more, key=lambda row: (-uncertain(row), counts[row]))]
    return [*calls, *least, *extra] if plan.calls == "early" else [*least, *calls, *extra]


def fits(plan: Plan, state: State, block: Block, elapsed: float) -> bool:
    """Returns whether the block fits into the budget."""
    return plan.budget_s is None or elapsed + estimate(state, block) <= plan.budget_s


def next_block(plan: Plan, state: State, elapsed: float, uncertain: Callable[[str], float]) -> Block | None:
    """Returns the first wanted block that fits into the time; None if there is none."""
    if plan.budget_s is not None and elapsed >= plan.budget_s:
        return None
    return next((block for block in wanted(plan, state, uncertain) if fits(plan, state, block, elapsed)), None)


def time_left(plan: Plan, state: State, elapsed: float, uncertain: Callable[[str], float]) -> float:
    """Returns the seconds until the run is over: for all wanted blocks, or what is left of the budget."""
    need = 0.0
    for block in wanted(plan, state, uncertain):
        rounds = 1 if block.number is None or block.number >= plan.rounds_least else plan.rounds_least - block.number
        need += rounds * estimate(state, block)
    return need if plan.budget_s is None else max(0.0, min(need, plan.budget_s - elapsed))
