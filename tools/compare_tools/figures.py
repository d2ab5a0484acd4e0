"""What each tool says in figures, in bytes: by function, itself and with all that it calls."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

# Functions of each kind that are kept.
NUMBER = 8
UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}
# {function: [what it has itself, with all that it calls]}
Functions = dict[str, list[int]]
# Runs in memray's own environment. Stacks are given innermost first.
READ_MEMRAY = """
import json, sys
from memray import FileReader
with FileReader(sys.argv[1]) as reader:
    records = reader.get_high_watermark_allocation_records(merge_threads=True)
    stacks = [([name for name, _, _ in one.stack_trace()], one.size) for one in records]
    print(json.dumps({"calls": reader.metadata.total_allocations, "peak": reader.metadata.peak_memory,
                      "stacks": stacks}))
"""


def printed(words: Sequence[object], **more: Any) -> str:
    """What a command prints. What it says besides is shown."""
    return str(subprocess.run([*map(str, words)], stdout=subprocess.PIPE, text=True, check=True, **more).stdout)


def number_in(pattern: str, text: str) -> int:
    """The number that a pattern finds in a text."""
    numbers: list[str] = re.findall(pattern, text)
    return int(numbers[0])


def most(functions: Functions) -> Functions:
    """The functions that have most by themselves, and those that have most with all that they call."""
    ranked = [sorted(functions, key=lambda name: -functions[name][place])[:NUMBER] for place in (0, 1)]
    return {name: functions[name] for name in functions if any(name in names for names in ranked)}


def by_function(stacks: Iterable[tuple[list[str], int]]) -> Functions:
    """{function: [itself, with all that it calls]}. stacks: (names, innermost first, bytes)."""
    itself: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for names, size in stacks:
        itself[names[0] if names else "?"] += size
        for name in set(names):
            whole[name] += size
    return most({name: [itself[name], size] for name, size in whole.items()})


def short(name: str) -> str:
    """A C++ function without its parameters."""
    return re.sub(r"\(.*\)( const)?$", "", name).strip()


def of_heaptrack(recording: Path, folder: Path) -> dict[str, Any]:
    """Calls, peak, what was left, and the functions of the latter two."""
    text = printed(["heaptrack_print", recording, "-p0", "-a0", "-l0", "-T0"])
    found: dict[str, Any] = {"calls": number_in(r"calls to allocation functions: (\d+)", text)}
    for key, label in (("peak", "peak heap memory consumption"), ("left", "total memory leaked")):
        number, unit = re.findall(rf"{label}: ([\d.]+)(\w?)", text)[0]
        found[key] = round(float(number) * UNITS[unit.removesuffix("B")])
    for key, kind in (("peak", "peak"), ("left", "leaked")):
        path = folder / "flame.txt"
        printed(["heaptrack_print", recording, "-p0", "-a0", "-l0", "-T0", "-F", path, "--flamegraph-cost-type", kind])
        stacks = [line.rpartition(" ") for line in path.read_text().splitlines()]
        found[f"{key} by function"] = by_function(
            [([short(name) for name in reversed(names.rstrip(";").split(";"))], int(size))
             for names, _, size in stacks])
    return found


def of_memray(python: Path, recording: Path) -> dict[str, Any]:
    """Calls and peak, and the functions of the latter."""
    said = json.loads(printed([python, "-c", READ_MEMRAY, recording]))
    return {"calls": said["calls"], "peak": said["peak"], "peak by function": by_function(said["stacks"])}


def of_jeprof(program: str, profile: Path) -> dict[str, Any]:
    """The total in use, and the functions."""
    text = printed(["jeprof", "--text", "--show_bytes", "--inuse_space", program, profile])
    rows = re.findall(r"^ *(\d+) +[\d.]+% +[\d.]+% +(\d+) +[\d.]+% (.+)$", text, re.M)
    return {"in use": number_in(r"Total: (\d+) B", text),
            "by function": most({short(name): [int(itself), int(whole)] for itself, whole, name in rows})}


def of_pprof(text: str) -> dict[str, Any]:
    """The total and the functions in the output of pprof -top -unit=B."""
    rows = [line.split(None, 5) for line in text.partition("cum%\n")[2].splitlines()]
    return {"in use": number_in(r"of (\d+)B total", text),
            "by function": most({row[5]: [int(row[0].rstrip("B")), int(row[3].rstrip("B"))] for row in rows})}


def of_hakmem(text: str) -> dict[str, Any]:
    """The total in use and the functions in the output of hakmem heap --json."""
    data = json.loads(text)
    kind = "inuse_space"
    return {"in use": data["totals"][kind],
            "by function": most({short(site["name"]): [site["flat"][kind], site["cum"][kind]]
                                 for site in data["sites"]})}


def of_why(text: str) -> dict[str, Any]:
    """The parts of the resident bytes, and the parts of the sites in hakmem heap --why --json."""
    data = json.loads(text)
    kinds = ("held_space", "rounding_space", "untouched_space", "inuse_space")
    sites = sorted(data["sites"], key=lambda site: -max(site["flat"][kind] for kind in kinds))[:NUMBER]
    return {"parts": {part["name"]: part["bytes"] for part in data["why"]["chain"]},
            "by site": {short(site["name"]): {kind: site["flat"][kind] for kind in kinds} for site in sites}}
