"""Stores the pages that a reader of a process's heap read in a file, which serves as a process that never runs.

    HAKMEM_LIB=... build/venv/bin/python tests/stress/fuzz/image.py FILE

records corpus/image/known.gz anew, which is necessary after a change of the descriptor's format. The file: a line of
JSON with the mappings, the descriptor's address and the pages' addresses, then the pages.
"""

import gzip
import json
import struct
import sys
from bisect import bisect_right
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2] / folder) for folder in ("python", "tests", "tests/tools/live")]

from hakmem.live import find, snapshot  # noqa: E402
from hakmem.live.memory import ProcessMemory, Unreadable, parse_mappings  # noqa: E402
from hakmem.live.sites import read_sites  # noqa: E402

PAGE = 4096


class Image(ProcessMemory):
    """Reads an image. Writable memory that is not in the image reads as zeros, like unwritten memory."""

    def __init__(self, data):
        head, _, pages = data.partition(b"\n")
        told = json.loads(head)
        self.pid, self.begun, self.left, self.maps = 4242, 0, None, told["maps"]
        self.descriptor = told["descriptor"]
        self.pages = {
            page: pages[number * PAGE:][:PAGE].ljust(PAGE, b"\0") for number, page in enumerate(told["pages"])
        }
        self.known = sorted((one.start, one.end) for one in self.mappings() if "w" in one.flags)

    def mappings(self):
        return parse_mappings(self.maps)

    def read_many(self, ranges):
        ranges = list(ranges)
        if any(size < 0 for _, size in ranges):
            raise Unreadable("fewer than no bytes")
        self.allow(sum(size for _, size in ranges))
        return [self.bytes_at(address, size) for address, size in ranges]

    def bytes_at(self, address, size):
        parts, at = [], address
        while at < address + size:
            page, place = at // PAGE * PAGE, at % PAGE
            if page not in self.pages and not self.is_mapped(page):
                raise Unreadable(f"nothing at {at:#x}")
            parts.append(self.pages.get(page, bytes(PAGE))[place:place + address + size - at])
            at += len(parts[-1])
        return b"".join(parts)

    def is_mapped(self, address):
        number = bisect_right(self.known, (address, 1 << 64)) - 1
        return number >= 0 and address < self.known[number][1]

    def proc_text(self, name):
        return {"statm": "10000 1000 100 10 0 5000 0\n", "comm": "made-up\n"}[name]

    def open_mapping(self, mapping):
        return None

    def thread_name(self, tid):
        return "thread"


class Recorder(ProcessMemory):
    """Reads a process, and keeps the pages that it read."""

    def __init__(self, pid):
        super().__init__(pid)
        self.pages = set()

    def read_batch(self, ranges, target):
        for address, size in ranges:
            self.pages.update(range(address // PAGE * PAGE, address + size, PAGE))
        return super().read_batch(ranges, target)


def mutate_image(chance, data, others):
    """Changes words of the descriptor's table, next to its head, and in other pages. They stay where they are."""
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    head, _, pages = data.partition(b"\n")
    told, pages = json.loads(head), bytearray(pages)
    table = told["pages"].index(told["descriptor"] // PAGE * PAGE) * PAGE + told["descriptor"] % PAGE
    words = [at for at in range(0, len(pages), 8) if pages[at:at + 8] != bytes(8)]
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        kind = chance.randrange(4)
        at = table + chance.randrange(56 + 250 * 64) // 4 * 4 if kind == 0 else chance.choice(words)
        if kind == 3:
            at = chance.randrange(len(pages)) // 8 * 8
        form = chance.choice("BHIQ")
        size = struct.calcsize(form)
        edges = (0, 1, 7, 0xFF, 0xFFFF, 2**31, 2**32 - 1, 2**47, 2**63, 2**64 - 1, chance.choice(told["pages"]),
                 chance.randrange(1 << 20), int.from_bytes(pages[at:at + size], "little") + chance.choice(
                     (1, -1, 8, 4096)))
        if at + size <= len(pages):
            pages[at:at + size] = (chance.choice(edges) % 256**size).to_bytes(size, "little")
    return json.dumps(told).encode() + b"\n" + bytes(pages)


def main():
    import tempfile

    import blackbox
    import profiled

    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        blackbox.compile_program(profiled.SOURCE, program, *profiled.FLAGS)
        with profiled.profiled(program, blackbox.LIBRARY) as running:
            for size, count in ((3000, 300), (24, 4000), (70000, 9), (3 << 20, 2)):
                running.tell("keep", size, count)
            memory = Recorder(running.pid)
            descriptor = find(memory)
            memory.pages.clear()
            memory.read(descriptor.address, 56 + 64 * 400)
            snapshot(memory, descriptor)
            read_sites(memory, descriptor)
            pages, kept = sorted(memory.pages), []
            for page in pages:
                try:
                    kept.append((page, memory.read(page, PAGE)))
                except Unreadable:
                    continue
            maps = "".join(
                f"{one.start:x}-{one.end:x} {one.flags} {one.offset:08x} {one.device} {one.inode} /program/{number}\n"
                if one.inode else f"{one.start:x}-{one.end:x} {one.flags} 00000000 00:00 0 \n"
                for number, one in enumerate(memory.mappings()))
            head = json.dumps({"maps": maps, "descriptor": descriptor.address, "pages": [page for page, _ in kept]})
            data = head.encode() + b"\n" + b"".join(data for _, data in kept)
            Path(sys.argv[1]).write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    main()
