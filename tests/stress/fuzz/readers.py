"""Feeds mutated files to the readers in python/hakmem. A reader accepts a file, or says in one message what is wrong.

    python tests/stress/fuzz/readers.py TARGET [--minutes N] [--seed S]

TARGET is a name in TARGETS. Mutation number N of seed S is always the same, on every machine, so two numbers repeat a
failure. The file itself is kept in the folder that is printed.
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import random
import struct
import sys
import tempfile
import time
import traceback
import zlib
from pathlib import Path

import click.testing

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", REPOSITORY / "build/release")).absolute()
sys.path[:0] = [str(REPOSITORY / "python"), str(HERE)]

from google.protobuf.descriptor import FieldDescriptor  # noqa: E402  (a package of the tools' environment)

import image  # noqa: E402
from hakmem.heap.profile_pb2 import Profile  # noqa: E402
from hakmem.limits import TooLong, seconds_at_most  # noqa: E402

# A reader must finish a file in this many seconds.
SECONDS = 60

EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = ("", "/", "a\nb", "\0", "/dev/null", "/proc/self/mem", "(", "%s%n", "x" * 5000, "inuse_space",
         "lifetime_from", "milliseconds", "_ZN", "[stack]")


class Fault(AssertionError):
    """Something that a reader must not do."""


# ---- Bytes ----


def mutate_bytes(chance, data, others=()):
    """One to four changes that damage files: bits; lost, doubled and foreign parts; edge values of numbers."""
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        length = chance.choice((1, 2, 4, 8, 16, 64))
        kind = chance.randrange(8)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[at:at + length]
        elif kind == 2:
            data[at:at] = data[at:at + length]
        elif kind == 3:
            data[at:at] = chance.randbytes(length)
        elif kind == 4:
            del data[at:]
        elif kind == 5 and others:
            other = chance.choice(others)
            data[at:] = other[chance.randrange(len(other) + 1):]
        else:
            form = chance.choice(("<B", "<H", "<I", "<Q"))
            word = struct.pack(form, chance.choice(EDGES) & (256**struct.calcsize(form) - 1))
            data[at:at + len(word)] = word
    return bytes(data)


# ---- Profiles ----


def messages_in(message):
    """The message and all messages in it."""
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from messages_in(inner)


def mutate_message(chance, message):
    """Changes a field of the message, or of one inside it, to a value that the format can hold."""
    target = chance.choice(list(messages_in(message)))
    field = chance.choice(target.DESCRIPTOR.fields)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        if field.is_repeated and chance.randrange(2):
            getattr(target, field.name).add()
        else:
            target.ClearField(field.name)
        return
    if field.type == FieldDescriptor.TYPE_STRING:
        value = chance.choice(TEXTS)
    elif field.type == FieldDescriptor.TYPE_BOOL:
        value = bool(chance.randrange(2))
    else:
        signed = field.type in (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_INT32)
        value = chance.choice((*EDGES, chance.randrange(30)))
        value = min(value, 2**63 - 1) * chance.choice((1, 1, -1)) if signed else value
    values = getattr(target, field.name)
    if not field.is_repeated:
        setattr(target, field.name, value)
    elif values and chance.randrange(3):
        values[chance.randrange(len(values))] = value
    else:
        values.append(value)


def mutate_profile(chance, data, others):
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    if chance.randrange(3):
        profile = Profile.FromString(data)
        for _ in range(chance.choice((1, 1, 2, 5))):
            mutate_message(chance, profile)
        data = profile.SerializeToString()
    else:
        data = mutate_bytes(chance, data, others)
    if chance.randrange(3) == 0:
        data = gzip.compress(data, mtime=0)
        if chance.randrange(2):
            data = mutate_bytes(chance, data)
    return data


# ---- Traces: their sums are corrected, so that the reader goes on behind them ----


def mutate_trace(chance, data, others):
    data = bytearray(mutate_bytes(chance, data, others))
    if chance.randrange(8) and len(data) >= 112:
        data[:12] = b"HAKTRACE\x01\0\0\0"
        struct.pack_into("<Q", data, 16, len(data))
        struct.pack_into("<I", data, 12, zlib.crc32(data[16:]))
    return bytes(data)


# ---- Results: JSON with changed values ----


def mutate_result(chance, data, others):
    if chance.randrange(4) == 0:
        return mutate_bytes(chance, data, others)
    result = json.loads(data)
    for _ in range(chance.choice((1, 1, 3))):
        inner, key = result, None
        while True:
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            if not keys:
                break
            key = chance.choice(keys)
            if not isinstance(inner[key], dict | list) or chance.randrange(4) == 0:
                inner[key] = chance.choice((None, True, -1, 0, 1e308, -1e308, 2**70, "", "glibc", "\0", [], {}, [[]],
                                            "x" * 300))
                break
            inner = inner[key]
    return json.dumps(result).encode()


# ---- The readers: each ends quietly, or raises Fault ----


def judge_command(command, *arguments):
    """A command of the tools must end with 0, or with 1 and one message."""
    done = click.testing.CliRunner().invoke(command, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise Fault("".join(traceback.format_exception(done.exception)))
    if done.exit_code not in (0, 1) or "Traceback" in done.output:
        raise Fault(f"exit status {done.exit_code}: {done.output}")
    if done.exit_code == 1 and not any(line.startswith("Error: ") for line in done.stderr.splitlines()):
        raise Fault(f"no message: {done.output}")
    return done.exit_code


def read_heap(path, number):
    from hakmem.heap.command import heap

    options = ((), ("--tree",), ("--json",), ("--lifetimes",), ("--lines", "--alloc"), ("--html", f"{path}.html"),
               ("--symbolized", f"{path}.symbolized"), ("--focus", "a", "--objects"))
    return judge_command(heap, path, *options[number % len(options)])


def read_info(path, number):
    from hakmem.trace.command import trace

    return judge_command(trace, "info", *(["--json"] if number % 2 else []), path)


def read_report(path, number):
    """Makes the page for only one of twenty valid results, because it takes seconds."""
    from hakmem.report.command import report
    from hakmem.report.result import ResultError, load_result

    try:
        load_result(path)
    except ResultError:
        return 1
    return 0 if number % 20 else judge_command(report, path, "--html", f"{path}.html")


def read_symbols(path, number):
    from hakmem.elf import ElfProblem, read_elf

    try:
        elf = read_elf(path)
        for entry in elf.symbols.table[:50]:
            elf.symbols.find(entry.value)
        return 0
    except ElfProblem:
        return 1


def read_linking(path, number):
    from hakmem.doctor.elf import read_elf

    try:
        with open(path, "rb") as file:
            read_elf(file)
        return 0
    except ValueError:
        return 1


def read_image(path, number):
    """The heap of a process, and everything made from it."""
    from hakmem.heap.outside import as_text, code_of, look, whole
    from hakmem.live.descriptor import read_descriptor
    from hakmem.live.explain import by_proportion, claims_of
    from hakmem.live.heap import as_dict, snapshot
    from hakmem.live.map import map_page
    from hakmem.live.memory import LiveError
    from hakmem.live.prometheus import prometheus_text
    from hakmem.live.show import print_snapshot
    from hakmem.screen import Console
    from hakmem.serve.watch import Seen

    data = path.read_bytes()
    memory = image.Image(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    try:
        descriptor = read_descriptor(memory, memory.descriptor)
    except LiveError:
        return 1
    status = 0
    try:
        shot = snapshot(memory, descriptor)
        claims_of(shot, shot.huge)
        by_proportion(shot, 1 << 24)
        told = json.loads(json.dumps(as_dict(shot)))
        print_snapshot(Console(width=200, file=io.StringIO()), shot, True)
        prometheus_text(shot)
        Seen({
            **told, "at": 1.0, "took": 0.1, "program": 1, "rss": 1, "minor_faults": 0, "major_faults": 0,
            "resident": {}
        })
        if number % 4 == 0:
            as_dict(shot, True)
            map_page(shot)
    except LiveError as error:
        status = 1
        if not str(error).isprintable():
            raise Fault(f"not one line: {error!r}") from error
    try:
        seen = look(memory, descriptor)
        as_text(seen)
        whole(seen).SerializeToString()
        code_of(memory)
    except LiveError as error:
        if not str(error).isprintable():
            raise Fault(f"not one line: {error!r}") from error
    return status


def read_jit(path, number):
    """Reads it as a perf map and as a jitdump, for addresses in the committed files."""
    from hakmem.foreign import open_regular
    from hakmem.heap.jit import read_dump, read_map

    wanted = [0, 0x7F00, 0x7F20, 0x8000, 0x8008, 0x9000, 2**63, 2**64 - 1]
    with open_regular(path) as file:
        found = [*read_map(file, wanted).values(), *read_dump(file, wanted).values()]
    if not all(made.name.isprintable() and made.file.isprintable() and 0 <= made.line < 2**31 for made in found):
        raise Fault(f"names that are not clean: {found}")
    return 0 if found else 1


def seeds_in(folder, *patterns):
    return lambda: [path.read_bytes() for pattern in patterns for path in sorted(folder.glob(pattern))]


def mutate_plainly(chance, data, others):
    return mutate_bytes(chance, data, others)


# name: (the reader, the mutator, the first files)
TARGETS = {
    "heap": (read_heap, mutate_profile, seeds_in(HERE / "corpus/heap", "*")),
    "info": (read_info, mutate_trace, seeds_in(HERE / "corpus/info", "*")),
    "jit": (read_jit, mutate_plainly, seeds_in(HERE / "corpus/jit", "*")),
    "report": (read_report, mutate_result, seeds_in(HERE / "corpus/report", "*")),
    "symbols": (read_symbols, mutate_plainly, seeds_in(BUILD / "bin/fuzz", "fuzz_trace")),
    "image": (read_image, image.mutate_image, seeds_in(HERE / "corpus/image", "*")),
    "linking": (read_linking, mutate_plainly, seeds_in(BUILD / "bin/fuzz", "fuzz_trace")),
}


def mutation(name, seed, number):
    """Mutation `number` of the seed. Its bytes depend on nothing else."""
    _, mutate, seeds = TARGETS[name]
    files = seeds()
    if not files:
        raise Fault(f"{name} has no files to begin with")
    chance = random.Random(f"{name} {seed} {number}")
    return mutate(chance, chance.choice(files), files)


def run(name, data, number, folder):
    """The reader's exit status. A Fault names the mutation and keeps its file."""
    path = Path(folder) / "file"
    path.write_bytes(data)
    # pyelftools prints more than the tools do.
    begun = time.monotonic()
    try:
        with contextlib.redirect_stderr(io.StringIO()), seconds_at_most(SECONDS):
            status = TARGETS[name][0](path, number)
    except TooLong as error:
        raise Fault(f"no end after {SECONDS} seconds") from error
    if time.monotonic() - begun > SECONDS:
        raise Fault(f"an end after {time.monotonic() - begun:.0f} seconds")
    return status


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--number", type=int, help="this mutation alone")
    options = parser.parse_args()
    kept = Path(tempfile.mkdtemp(prefix=f"hakmem-fuzz-{options.target}-"))
    print(f"{options.target}: seed {options.seed}; files of failures go to {kept}", flush=True)
    end = time.monotonic() + 60 * options.minutes
    number, faults, statuses, told = 0, 0, {}, set()
    while time.monotonic() < end and (options.number is None or number == 0):
        at = number if options.number is None else options.number
        data = mutation(options.target, options.seed, at)
        try:
            status = run(options.target, data, at, kept)
            statuses[status] = statuses.get(status, 0) + 1
        except Exception as error:  # whatever it is, a reader let it through
            faults += 1
            text = str(error) if isinstance(error, Fault) else traceback.format_exc()
            if text[-300:] not in told:
                told.add(text[-300:])
                (kept / f"{options.seed}-{at}").write_bytes(data)
                print(f"FAILED: --seed {options.seed} --number {at}\n{text}", flush=True)
        number += 1
    print(f"{options.target}: {number} files, {faults} failures; exit statuses {dict(sorted(statuses.items()))}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
