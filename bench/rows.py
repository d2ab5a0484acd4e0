"""What run.py runs: the rows of its tables, and the allocators."""

import random
import sqlite3
from dataclasses import dataclass
from pathlib import Path

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")

# Debian's packages of the peers; the key is the name in tables.
PEERS = {
    "mimalloc": ("libmimalloc2.0", "libmimalloc.so.2.0"),
    "jemalloc": ("libjemalloc2", "libjemalloc.so.2"),
    "tcmalloc": ("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
}


@dataclass(frozen=True)
class Row:
    """One line of the tables. kind: `rate` (the program reports operations a second), or `memory` (any program: its
    peak RSS is what counts). group: `main` is run unless told otherwise, `more` on request. {files} in an argument is
    the folder of make_files."""

    name: str
    kind: str
    group: str
    command: tuple


ROWS = [
    Row("random-mixed-256", "rate", "main", ("bench_random_mixed", "20000000", "256", "42")),
    Row("random-mixed-4096", "rate", "main", ("bench_random_mixed", "20000000", "4096", "42")),
    Row("random-mixed-100000", "rate", "main", ("bench_random_mixed", "10000000", "100000", "42")),
    Row("larson-4", "rate", "main", ("larson", "2", "8", "128", "1024", "1", "12345", "4")),
    Row("phases", "rate", "main", ("bench_phases", "40", "4", "20000", "0", "42")),
    Row("phases-large", "rate", "main", ("bench_phases", "25", "8", "2000", "100", "42")),
    Row("big-1-16MiB", "rate", "main", ("bench_big", "1000", "20", "1024", "16384", "42")),
    Row("true", "memory", "main", ("true",)),
    Row("sort-1MB", "memory", "main", ("sort", "{files}/lines.txt", "-o", "/dev/null")),
    Row("sqlite-small", "memory", "main",
        ("sqlite3", "{files}/small.db", "select word, count(*) from words group by word order by 2 desc limit 5")),
    Row("fixed-64KiB", "rate", "more", ("bench_fixed", "65536", "100", "200000", "42")),
    Row("fixed-256KiB", "rate", "more", ("bench_fixed", "262144", "100", "100000", "42")),
    Row("string-builder", "rate", "more", ("bench_string_builder", "3000000", "64", "64", "42")),
    Row("tiny-16B-1", "rate", "more", ("bench_tiny_mt", "1", "100000000", "16", "64")),
    Row("tiny-16B-4", "rate", "more", ("bench_tiny_mt", "4", "50000000", "16", "64")),
    Row("producer-consumer-2", "rate", "more", ("bench_producer_consumer", "2", "20000", "42")),
    Row("producer-consumer-4", "rate", "more", ("bench_producer_consumer", "4", "10000", "42")),
    Row("thread-churn", "rate", "more", ("bench_thread_churn", "20000", "100", "4", "42")),
    Row("big-untouched", "rate", "more", ("bench_big", "200000", "20", "1024", "16384", "42", "0")),
]


def make_files(folder):
    """The inputs of the memory rows, the same on every machine."""
    generator = random.Random(20251109)
    words = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randint(3, 9))) for _ in range(500)]
    lines = []
    size = 0
    while size < 1_000_000:
        lines.append(" ".join(generator.choices(words, k=generator.randint(2, 12))) + "\n")
        size += len(lines[-1])
    Path(folder, "lines.txt").write_text("".join(lines))
    database = sqlite3.connect(Path(folder, "small.db"))
    with database:
        database.execute("create table words (word text, line integer)")
        database.executemany("insert into words values (?, ?)",
                             ((word, number) for number, line in enumerate(lines[:500]) for word in line.split()))
    database.close()
