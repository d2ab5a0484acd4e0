"""Measures what malloc and free execute on a fast hit in the released libraries (tools/package), for shipped.txt.

x86-64: single steps of a run (fastpath_trace.c). aarch64: qemu's log of a run by single instructions.

    shipped.py [--update] WORK      WORK/lib/TARGET are the libraries: build/package after ./hakmem package
"""

import re
import sys
from collections import Counter
from pathlib import Path

import check
import fast_path
from subject import HERE, CheckError, Subject, run

GOLDEN = HERE / "shipped.txt"
TITLE = ("What malloc and free execute on a fast hit in the libraries that users get. Loads and stores are those of "
         "memory "
         "operands.")
COLUMNS = ("instructions", "branches", "jumps", "calls", "loads", "stores")
SIZES = (16, 1024)
PROGRAM = HERE.parents[1] / "delivery/package/libraries/calls.c"
TARGETS = ("x86_64-linux-gnu", "x86_64-linux-musl", "aarch64-linux-gnu")


def count_arm(text: str, counts: Counter) -> None:
    """Adds one instruction in objdump's syntax."""
    name = text.split(None, 1)[0]
    counts["instructions"] += 1
    counts["branches"] += bool(re.match(r"b\.|cbn?z$|tbn?z$", name))
    counts["jumps"] += name in ("b", "br")
    counts["calls"] += name in ("bl", "blr")
    counts["loads"] += name.startswith("ld")
    counts["stores"] += name.startswith("st")


def functions_of(library: Path) -> dict[str, tuple[int, dict[int, str]]]:
    """{function: (offset, {offset: instruction})} of malloc and free."""
    listing = run(["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", "-w", library])
    found = {}
    for name in "malloc", "free":
        text = re.search(rf"^([0-9a-f]+) <{name}>:\n((?:.+\n)+)", listing, re.M)
        lines = re.findall(r"^\s+([0-9a-f]+):\t(.+?)\s*$", text[2], re.M)
        found[name] = int(text[1], 16), {int(offset, 16): line for offset, line in lines}
    return found


def arm_hits(library: Path, program: Path, size: int, log: Path) -> dict[str, list[str]]:
    """{function: the instructions of the sequence that most calls took}."""
    emulator = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_PRELOAD={library}"]
    functions = functions_of(library)
    # qemu lays out the same process in the same way each time.
    places = dict(zip(functions, (int(word, 16) for word in run([*emulator, program, size]).split()), strict=True))
    filters = [f"{places[name]:#x}+{max(code) + 4 - start:#x}" for name, (start, code) in functions.items()]
    run([*emulator, "-singlestep", "-d", "exec,nochain", "-D", log, "-dfilter", ",".join(filters), program, size])
    sequences = {name: [] for name in functions}
    for address in re.findall(r"^Trace \d+: 0x[0-9a-f]+ \[[0-9a-f]+/0*([0-9a-f]+)/", log.read_text(), re.M):
        for name, (start, code) in functions.items():
            offset = int(address, 16) - places[name] + start
            if offset == start:
                sequences[name].append([])
            if offset in code and sequences[name]:
                sequences[name][-1].append(offset)
    hits = {}
    for name, calls in sequences.items():
        if len(calls) < 4000:
            raise CheckError(f"{name} ran {len(calls)} times in {library}: it is not the program's")
        common, _ = Counter(map(tuple, calls)).most_common(1)[0]
        hits[name] = [functions[name][1][offset] for offset in common]
    return hits


def measure(work: Path, folder: Path) -> dict[str, dict[str, str]]:
    rows = {}
    for target in TARGETS:
        library = (work / "lib" / target / "lib/libhakmem.so").resolve()
        if not library.exists():
            raise CheckError(f"{library} is not there; make it with ./hakmem package --only libraries")
        if target.startswith("x86_64"):
            subject = Subject(library, folder)
            counted = fast_path.measure_fastpath(subject, sizes=SIZES,
                                                 compiler="musl-gcc" if target.endswith("musl") else "cc")
            rows |= {
                f"{target} {row}": {column: values[column] for column in COLUMNS} for row, values in counted.items()
            }
            continue
        program = folder / "calls-aarch64"
        run(["aarch64-linux-gnu-gcc", "-O1", "-fno-builtin", PROGRAM, "-o", program])
        for size in SIZES:
            for name, instructions in arm_hits(library, program, size, folder / "log").items():
                counts = Counter()
                for text in instructions:
                    count_arm(text, counts)
                rows[f"{target} {name} {size}"] = {column: str(counts[column]) for column in COLUMNS}
    return {row: rows[row] for row in sorted(rows)}


def limits(rows: dict[str, dict[str, str]]) -> list[str]:
    return [f"{row}: {values['calls']} calls on a fast hit; there must be none" for row, values in rows.items()
            if values["calls"] != "0"]


def verify(work: Path, folder: Path) -> None:
    """Raises CheckError with a report of what differs from the golden file."""
    rows = measure(work, folder)
    problems = limits(rows)
    golden = check.read_rows(GOLDEN)
    if golden != rows:
        problems.append(f"expected:\n{GOLDEN.read_text()}")
    if problems:
        raise CheckError("\n".join(problems) + "\nmeasured:\n" + check.format_rows(TITLE, rows)
                         + "\nIf the change is meant: python tests/cost/golden/shipped.py --update build/package")


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="hakmem-golden-") as folder:
        work, update = Path(sys.argv[-1]).resolve(), "--update" in sys.argv
        try:
            if update:
                GOLDEN.write_text(check.format_rows(TITLE, measure(work, Path(folder))))
            verify(work, Path(folder))
        except CheckError as error:
            sys.exit(f"shipped.py: {error}")
    print(GOLDEN.read_text(), end="")


if __name__ == "__main__":
    main()
