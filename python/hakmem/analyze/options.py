"""Advises on a program by running it: on the system's malloc, on HAKMEM, and on HAKMEM with one option set at a time.

Rounds are interleaved as in hakmem compare. Options that seem to help are measured again, together, against the
defaults: of several candidates, one may seem to help by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem.analyze.observe import RunFailed
from hakmem.analyze.process import OPTIONS_MOST
from hakmem.bench import statistics
from hakmem.bench.allocators import Allocator, again, with_copy
from hakmem.bench.runner import Conditions, run_once
from hakmem.bench.schedule import Plan, State
from hakmem.bench.session import run_session
from hakmem.bench.verdict import ROUNDS_LEAST, Comparison, Range, differs

if TYPE_CHECKING:
    from hakmem.bench.progress import Display
    from hakmem.bench.rows import Row
    from hakmem.records import Result

SUBJECT, SYSTEM, CHOSEN = "hakmem", "system", "chosen"
ROUNDS = 7
# Tried in this order, as many as the time allows.
CANDIDATES = ("HAKMEM_PURGE_DELAY=0", "HAKMEM_THP=always", "HAKMEM_CACHE_BYTES=64K", "HAKMEM_PURGE_DELAY=10000",
              "HAKMEM_THP=never", "HAKMEM_POPULATE=0", "HAKMEM_CACHE_BYTES=8M")
# The first part's share of the time. The rest is for the second part.
FIRST_PART = 0.75
# The most that an option may cost: of time if it saves memory, of memory if it saves time.
COST_MOST = 0.05
MEMORY = ("peak_rss", "mean_rss")
FIGURES = ("time", "cpu", "peak_rss", "mean_rss", "end_rss")


class NoJournal:
    """A journal that keeps nothing."""

    def write(self, kind: str, value: object) -> None:
        """Does nothing."""
        pass


@dataclass
class Part:
    """One interleaved session. The result's allocators are named after what was run."""

    result: Result
    whole: bool = True

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return max((sample["round"] + 1 for sample in self.result["samples"]), default=0)

    def compared(self, figure: str) -> Comparison:
        """Returns the Comparison of a figure."""
        return Comparison(self.result, "program", figure)

    def range(self, figure: str, name: str, other: str = SUBJECT) -> tuple[Range | None, int]:
        """Returns (Range of the first's figure divided by the other's; -1, 0 or 1 for how they differ), or (None, 0)
        if it cannot be told."""
        compared = self.compared(figure)
        if name not in compared.names or other not in compared.names:
            return None, 0
        found = compared.range(name, other)
        return found, differs(found, compared.noise) if found else 0


@dataclass
class Outcome:
    """first: the system's malloc, HAKMEM and the candidates. second: HAKMEM with the chosen settings, if any."""

    first: Part
    second: Part | None = None
    chosen: dict[str, str] = field(default_factory=dict)  # setting: the figure that it was chosen for
    holds: dict[str, Range] = field(default_factory=dict)  # by figure; only figures that the second part confirmed
    left_out: list[str] = field(default_factory=list)  # candidates for which there was no time


def session(row: Row, allocators: dict[str, Allocator], conditions: Conditions, *, rounds: int, budget: float | None,
            warm: int, status: int, progress: Callable[[], Display]) -> Part:
    """Returns the Part of some allocators. Ctrl-C ends it with whole=False."""
    plan = Plan(rows=(row.name,), allocators=tuple(allocators), subject=SUBJECT, copy=again(SUBJECT),
                rounds_least=rounds, rounds_most=rounds, budget_s=budget, calls=None, warm_mib=warm, exit_status=status)
    state, whole = State(), True
    try:
        with progress() as bar:
            run_session(plan, {row.name: row}, allocators, conditions, state, NoJournal(), bar)
    except KeyboardInterrupt:
        whole = False
    rows = {row.name: {"group": row.group}} if state.rounds(row.name) else {}
    summary = statistics.summarize(state.samples, rows, list(allocators), SUBJECT, again(SUBJECT))
    return Part({"subject": SUBJECT, "allocators": dict.fromkeys(allocators), "samples": state.samples,
                 "summary": summary}, whole)


def first_run(row: Row, allocator: Allocator, conditions: Conditions, *, warm: int, status: int) -> float:
    """Returns the seconds of one run; raises RunFailed if it fails."""
    sample = run_once(row, allocator, conditions, warm=warm, expected=status)
    if sample["status"] != "ok":
        raise RunFailed(f"on {'the system malloc' if allocator.name == SYSTEM else allocator.name} it ended so: "
                        f"{sample['detail']}")
    seconds: float = sample["wall_s"]
    return seconds


def with_setting(allocator: Allocator, settings: Iterable[str]) -> Allocator:
    """Returns HAKMEM with settings NAME=VALUE."""
    pairs = dict(setting.split("=", 1) for setting in settings)
    return replace(allocator, setting={**allocator.setting, **pairs})


def advise_program(row: Row, hakmem: Allocator, system: Allocator, candidates: Sequence[str], conditions: Conditions,
                   folder: str | Path, *, rounds: int = ROUNDS, budget: float | None, warm: int, status: int,
                   progress: Callable[[], Display]) -> Outcome:
    """Returns the Outcome for a program. conditions.env applies to every run."""
    seconds = max(first_run(row, system, conditions, warm=warm, status=status),
                  first_run(row, hakmem, conditions, warm=warm, status=status))
    base = with_copy({SYSTEM: system, SUBJECT: hakmem}, SUBJECT, Path(folder))
    affordable = len(candidates) if budget is None else int(budget * FIRST_PART / (rounds * seconds)) - len(base)
    tried = candidates[:max(2, affordable)]
    allocators = {**base, **{setting: replace(with_setting(hakmem, [setting]), name=setting) for setting in tried}}
    first = session(row, allocators, conditions, rounds=rounds, warm=warm, status=status, progress=progress,
                    budget=None if budget is None else budget * FIRST_PART)
    made = Outcome(first, left_out=list(candidates[len(tried):]))
    made.chosen = choose(first, tried) if first.whole and first.rounds >= ROUNDS_LEAST else {}
    if made.chosen:
        both = replace(with_setting(hakmem, made.chosen), name=CHOSEN)
        made.second = session(row, {**base, CHOSEN: both}, conditions, rounds=rounds, warm=warm, status=status,
                              progress=progress, budget=None)
        made.holds = {figure: found for figure in set(made.chosen.values())
                      for found, side in [made.second.range(figure, CHOSEN)] if found and side < 0}
        if "time" not in made.holds and costs(made.second, CHOSEN, ("time",)):
            made.holds = {}
    return made


def costs(part: Part, name: str, figures: Iterable[str]) -> bool:
    """Returns whether a setting seems to cost much in the figures. A cost counts even within the noise."""
    found = (part.range(figure, name)[0] for figure in figures)
    return any(each and each.middle > 1 + COST_MOST for each in found)


def choose(part: Part, settings: Iterable[str]) -> dict[str, str]:
    """Returns {setting: figure}: the one that saves most memory without much time, and the one vice versa."""
    def gain(setting: str, figures: Iterable[str]) -> tuple[float, str] | None:
        """Returns (what is left of a figure, its name) for the figure that falls most; None if all is noise."""
        falls = [(found.middle, figure) for figure in figures for found, side in [part.range(figure, setting)]
                 if found and side < 0]
        return min(falls, default=None)

    found: dict[str, str] = {}
    for figures, against in ((MEMORY, ("time",)), (("time",), MEMORY)):
        taken = {setting.partition("=")[0] for setting in found}
        gains = [
            (*gained, setting) for setting in settings
            if (gained := gain(setting, figures)) and not costs(part, setting, against)
            and setting.partition("=")[0] not in taken
        ]
        if gains:
            _, figure, setting = min(gains)
            found[setting] = figure
    assert len(found) <= OPTIONS_MOST
    return found
