"""Runs hostile.c, and makes the descriptors that it shows."""

import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import blackbox
import pytest

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

from hakmem.live.descriptor import CONSTANT, FIELD, FORMAT, HEAD, MAGIC, ROOT, ROW, TYPE  # noqa: E402

SOURCE = Path(__file__).with_name("hostile.c")
COMMAND = [sys.executable, "-m", "hakmem"]
ENVIRONMENT = {"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "PYTHONDONTWRITEBYTECODE": "1"}


class Hostile:
    """The program: its PID, and the addresses of its descriptor and its zeroed memory."""

    def __init__(self, process):
        self.process, self.pid = process, process.pid
        _, table, arena = process.stdout.readline().split()
        self.table, self.arena = int(table), int(arena)

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer == "0\n", (words[:2], answer)

    def hold(self, address, size):
        """Makes readers of these pages wait for ever, where the kernel lets a process do so."""
        self.process.stdin.write(f"hold {address} {size}\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "0\n":
            pytest.skip("userfaultfd is not permitted here")

    def poke(self, address, data):
        for start in range(0, len(data), 1 << 16):
            self.tell("poke", address + start, data[start:start + (1 << 16)].hex())

    def name(self, name):
        self.tell("name", name.encode().hex())

    def show(self, rows, **head):
        """Shows a descriptor with these rows: (kind, name, value, size, count)."""
        self.poke(self.table, packed(rows, **head))

    def show_empty_heap(self, honest_rows):
        """Shows an empty heap. Returns the addresses of its roots."""
        places = iter(range(self.arena, self.arena + (16 << 20), 1 << 19))
        rows = [(kind, name, next(places) if kind == ROOT else value, size, count)
                for kind, name, value, size, count in honest_rows]
        self.show(rows)
        roots = {name: value for kind, name, value, *_ in rows if kind == ROOT}
        offsets = {name: value for kind, name, value, *_ in rows if kind == FIELD}
        nothing = next(places)
        for name in HUGE_ADDRESSES:
            self.poke(roots["huge_inside"] + offsets[f"huge_inside.{name}"], struct.pack("<Q", nothing))
        self.rows, self.offsets, self.roots = rows, offsets, roots
        return roots


# The parts of the list that struct huge_inside points to.
HUGE_ADDRESSES = ("buckets", "ranges", "range_count", "range_bytes", "live_bytes", "live_blocks")


def packed(rows, version=b"0.2.0", row_size=ROW.size, size=None, count=None, form=FORMAT):
    """The bytes of a descriptor."""
    data = b"".join(
        ROW.pack(name.encode("latin-1"), value, size, count, kind, 0) for kind, name, value, size, count in rows)
    count = len(rows) if count is None else count
    whole = HEAD.size + len(data) if size is None else size
    return HEAD.pack(MAGIC, form, whole, version, count, row_size, HEAD.size, 8) + data


def rows_of(descriptor):
    """The rows of a Descriptor."""
    return [*((TYPE, name, 0, size, 1) for name, size in descriptor.types.items()),
            *((FIELD, name, place.offset, place.size, place.count) for name, place in descriptor.fields.items()),
            *((CONSTANT, name, value, 8, 1) for name, value in descriptor.constants.items()),
            *((ROOT, name, address, 8, 1) for name, address in descriptor.roots.items())]


def changed(rows, kind, name, **values):
    """The rows with one value, size or count changed, or with that row removed (gone=True)."""
    made = []
    for row in rows:
        if row[:2] != (kind, name):
            made.append(row)
        elif not values.get("gone"):
            _, _, value, size, count = row
            made.append((kind, values.get("rename", name), values.get("value", value), values.get("size", size),
                         values.get("count", count)))
    assert made != rows, name
    return made


@contextmanager
def hostile(program, **more):
    process = subprocess.Popen([str(program)], env=blackbox.environment(), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, **more)
    try:
        yield Hostile(process)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def hakmem(*arguments, **more):
    """Runs `hakmem ARGUMENTS`."""
    return blackbox.run([*COMMAND, *arguments], env=ENVIRONMENT, **more)


def one_line(result):
    """The only line of a command's failure."""
    assert result.status == 1 and "Traceback" not in result.stderr, result.report()
    (line,) = [line for line in result.stderr.splitlines() if line]
    assert line.startswith("Error: ") and line.isprintable(), result.report()
    return line
