"""redis.py FOLDER REQUESTS KIND: redis-server on the allocator that BENCH_PRELOAD names, under redis-benchmark.

The server alone gets the allocator. Its figures, between the first request and the last, are printed as a RESULT
line; the seconds are those that redis-benchmark measured for its requests. REQUESTS is what the heaviest test sends.
Ends with status 1 when the server does not keep its data, counts other requests than were sent, or does not end well;
when a signal ends the server, this process ends by the same.

KIND says what the clients do: `strings` (set, read, append, count), `collections` (lists, sets, hashes, sorted sets),
`stream` (entries, trimmed and read), or `eviction` (a server whose keys expire or make place for others).

With `flush`, REQUESTS SETs of 300 bytes on half as many keys, then FLUSHALL: what is left of their memory 1.5 s later.
"""

from __future__ import annotations

import csv
import ctypes
import io
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from subprocess import Popen

# Debian's redis-server is linked with jemalloc, so the C library must come first for a run on the system's malloc.
SYSTEM = "libc.so.6"
SERVER = ["redis-server", "--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "no",
          "--daemonize", "no", "--databases", "1"]
PIPELINE = 16
CLIENT = ["redis-benchmark", "-s", "socket", "--csv", "-c", "16", "-P", str(PIPELINE)]
VALUE = {size: "v" * size for size in (100, 700, 4000)}

# Each test of a kind: (share of REQUESTS, number of random keys, command).
TESTS = {
    "strings": [
        (1.0, 8000, ["SET", "key:__rand_int__", VALUE[100]]),
        (0.6, 8000, ["SET", "key:__rand_int__", VALUE[700]]),
        (0.3, 4000, ["SET", "key:__rand_int__", VALUE[4000]]),
        (1.0, 8000, ["GET", "key:__rand_int__"]),
        (0.6, 2000, ["APPEND", "log:__rand_int__", VALUE[100]]),
        (0.6, 8000, ["INCR", "count:__rand_int__"]),
        (0.6, 8000, ["SET", "key:__rand_int__", VALUE[100]]),
    ],
    "collections": [
        (0.8, 500, ["LPUSH", "list:__rand_int__", VALUE[100]]),
        (0.8, 700, ["HSET", "hash:__rand_int__", "field:__rand_int__", VALUE[700]]),
        (0.8, 30000, ["SADD", "set:__rand_int__", "a", "b", "a longer member of a set", VALUE[100]]),
        (0.8, 30000, ["ZADD", "board", "__rand_int__", "member:__rand_int__"]),
        (0.1, 500, ["LRANGE", "list:__rand_int__", "0", "30"]),
        (0.1, 700, ["HGETALL", "hash:__rand_int__"]),
        (0.4, 500, ["RPOP", "list:__rand_int__"]),
        (0.4, 30000, ["SPOP", "set:__rand_int__"]),
        (0.4, 30000, ["ZREM", "board", "member:__rand_int__"]),
    ],
    "stream": [
        (2.0, 200, ["XADD", "stream:__rand_int__", "MAXLEN", "~", "500", "*", "kind", "event", "text", VALUE[100]]),
        (0.2, 200, ["XRANGE", "stream:__rand_int__", "-", "+", "COUNT", "20"]),
        (0.5, 200, ["XADD", "stream:__rand_int__", "MAXLEN", "~", "500", "*", "kind", "dump", "text", VALUE[700]]),
        (0.1, 200, ["XTRIM", "stream:__rand_int__", "MAXLEN", "100"]),
    ],
    # Only keys that expire may go, so the kept ones stay.
    "eviction": [
        (1.0, 100000, ["SET", "key:__rand_int__", VALUE[700], "EX", "3600"]),
        (0.5, 50000, ["SET", "key:__rand_int__", VALUE[4000], "EX", "3600"]),
        (1.0, 100000, ["SET", "key:__rand_int__", VALUE[100], "EX", "3600"]),
        (0.5, 100000, ["GET", "key:__rand_int__"]),
        (0.5, 100000, ["SET", "key:__rand_int__", VALUE[700], "EX", "3600"]),
    ],
}
# What the server of a kind gets beside SERVER.
MORE = {"eviction": ["--maxmemory", "48mb", "--maxmemory-policy", "volatile-lru"]}
KEPT = 1000
# So many operations of `eviction` need more than its memory.
ENOUGH = 300_000
SAMPLE_S = 0.01
IDLE_S = 1.5
PRIVATE_REST = 20
SIGNAL_OF_PARENT_DEATH = 1
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


# A connection that is read and written.
Stream = io.BufferedRWPair


def fail(message: str) -> NoReturn:
    """Ends the program with a message."""
    raise SystemExit(f"redis.py: {message}")


def start_server(kind: str) -> Popen[bytes]:
    """Starts the server of a kind in the current folder. The kernel ends it if this process ends without doing so."""
    environment = {**os.environ, "LD_PRELOAD": os.environ.get("BENCH_PRELOAD") or SYSTEM}
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    with open("log", "wb") as log:
        return subprocess.Popen([*SERVER, *MORE.get(kind, [])], env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                stderr=log,
                                preexec_fn=lambda: prctl(SIGNAL_OF_PARENT_DEATH, signal.SIGKILL, 0, 0, 0))


def log_tail() -> str:
    """Returns the end of the server's log."""
    return Path("log").read_text(encoding="utf-8", errors="replace")[-2000:]


class Gone(Exception):
    """The server ended too early, or with an error."""

    def __init__(self, status: int) -> None:
        super().__init__(f"redis-server ended with status {status}\n{log_tail()}")
        self.status = status


def connect(server: Popen[bytes]) -> Stream:
    """Returns a connection as soon as the server accepts one."""
    deadline = time.monotonic() + 30
    while True:
        if server.poll() is not None:
            raise Gone(server.returncode)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect("socket")
            return connection.makefile("rwb")
        except OSError as error:
            connection.close()
            if time.monotonic() > deadline:
                fail(f"redis-server takes no connection: {error}\n{log_tail()}")
            time.sleep(0.005)


def check_preload(server: Popen[bytes]) -> None:
    """Checks that the library is loaded: otherwise the dynamic linker only writes a line into the log."""
    mapped = Path(f"/proc/{server.pid}/maps").read_text(encoding="utf-8", errors="replace")
    for library in os.environ.get("BENCH_PRELOAD", "").replace(":", " ").split():
        if f" {os.path.realpath(library)}\n" not in mapped:
            fail(f"redis-server runs without {library}\n{log_tail()}")


def ask(stream: Stream, *commands: Sequence[object]) -> list[bytes | None]:
    """Sends the commands at once and returns their replies."""
    for command in commands:
        words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
        stream.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    stream.flush()
    return [read_reply(stream) for _ in commands]


def read_reply(stream: Stream) -> bytes | None:
    """Reads a reply."""
    line = stream.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"$":
        return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2]
    if kind in (b"+", b":"):
        return rest
    fail(f"redis-server replied {line!r}")


def info(stream: Stream, section: str) -> dict[str, str]:
    """Returns a section of the server's information."""
    (text,) = ask(stream, ["INFO", section])
    pairs = (line.partition(":") for line in (text or b"").decode().split("\r\n"))
    return {name: value for name, colon, value in pairs if colon}


def kept_pairs() -> list[tuple[bytes, bytes]]:
    """Returns keys that the tests do not touch, with values of up to 9000 bytes."""
    generator = random.Random(42)
    return [(b"kept:%d" % number, generator.randbytes(generator.choice((20, 200, 3000, 9000))))
            for number in range(KEPT)]


class Sampler(threading.Thread):
    """Measures the server's resident set, averaged over time, and its private dirty memory at the peak."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.path = f"/proc/{pid}/statm"
        self.ended = threading.Event()
        self.total = self.count = 0
        self.most = self.private = 0
        self.next = 0.0

    def run(self) -> None:
        """Reads the figures until the end."""
        while not self.ended.wait(SAMPLE_S):
            try:
                with open(self.path, encoding="ascii") as file:
                    kib = int(file.read().split()[1]) * PAGE_KIB
                self.note_private(kib)
            except (OSError, IndexError, TypeError):
                return  # The server is gone. The main thread notices that, too.
            self.total += kib
            self.count += 1

    def note_private(self, kib: int) -> None:
        """Reads private dirty memory if memory has grown, as rarely as the launcher does (measure.c)."""
        began = time.monotonic()
        if kib <= self.most or began < self.next:
            return
        with open(self.path.replace("statm", "smaps_rollup"), encoding="ascii") as file:
            found = re.search(r"^Private_Dirty: +(\d+)", file.read(), re.MULTILINE)
        if found is None:
            raise IndexError("no line Private_Dirty")
        self.most, self.private = kib, max(self.private, int(found[1]))
        ended = time.monotonic()
        self.next = ended + PRIVATE_REST * (ended - began)

    def mean_kib(self) -> int:
        """Stops sampling and returns the mean."""
        self.ended.set()
        self.join()
        return self.total // max(1, self.count)


def usage(pid: int, stream: Stream) -> tuple[float, float, int, int]:
    """Returns CPU seconds and page faults of the server so far."""
    processor = info(stream, "cpu")
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (float(processor["used_cpu_user"]), float(processor["used_cpu_sys"]), int(fields[7]), int(fields[9]))


def peak_kib(pid: int) -> int:
    """Returns the peak of resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    fail("the kernel does not tell the peak of the server's memory")


def run_test(server: Popen[bytes], requests: int, keys: int, command: list[str]) -> float:
    """Returns the seconds that redis-benchmark took for one test."""
    done = subprocess.run([*CLIENT, "-n", str(requests), "-r", str(keys), *command],
                          capture_output=True, text=True, check=False)
    if server.poll() is not None:
        raise Gone(server.returncode)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    if done.returncode != 0 or len(rows) != 1 or done.stderr:
        fail(f"redis-benchmark, {' '.join(command[:2])}: status {done.returncode}\n{done.stderr}{done.stdout[-500:]}")
    return requests / float(rows[0]["rps"])


def expect(what: str, found: object, wanted: object) -> None:
    """Ends the program if a figure is wrong."""
    if found != wanted:
        fail(f"{what}: {found}, expected {wanted}")


def calls_of(stream: Stream, command: str) -> int:
    """Returns how often the server has run a command."""
    counts = info(stream, "commandstats").get(f"cmdstat_{command.lower()}", "calls=0,")
    found = re.match(r"calls=(\d+),", counts)
    if found is None:
        fail(f"redis-server tells no calls of {command}: {counts}")
    return int(found[1])


def check_data(stream: Stream, pairs: list[tuple[bytes, bytes]], before: dict[str, int],
               sent: dict[str, int]) -> None:
    """Checks that the server counted all requests, refused none, and still has its data."""
    statistics = info(stream, "stats")
    expect("errors that redis-server counts", statistics["total_error_replies"], "0")
    for command, calls in sent.items():
        counted = calls_of(stream, command) - before[command]
        expect(f"calls of {command} that redis-server counts", counted, calls)
    found = ask(stream, *(["GET", key] for key, _ in pairs))
    lost = [key for (key, value), one in zip(pairs, found) if one != value]
    expect("keys that redis-server lost or changed", lost, [])
    wrong = [f"{name}:{number}" for name in ("key", "list", "hash") for number in range(0, 500, 7)
             if not plausible(stream, name, number)]
    expect("keys that the tests did not write so", wrong, [])


def plausible(stream: Stream, name: str, number: int) -> bool:
    """Returns whether a key of the tests holds only what the tests write."""
    key = f"{name}:{number:012d}"
    read = {"key": ["GET", key], "list": ["LINDEX", key, "0"], "hash": ["HGET", key, f"field:{number:012d}"]}
    (found,) = ask(stream, read[name])
    return found is None or found.decode("latin-1") in VALUE.values()


def main(folder: str, requests: str, kind: str) -> None:
    """Runs the tests in a folder of their own."""
    # The client sends only whole pipelines.
    tests = [(math.ceil(int(requests) * share / PIPELINE) * PIPELINE, keys, command)
             for share, keys, command in TESTS.get(kind, [])]
    with tempfile.TemporaryDirectory(prefix="redis-", dir=folder) as place:
        os.chdir(place)  # The socket's path must be short.
        server = start_server(kind)
        try:
            if kind == "flush":
                run_flush(server, int(requests))
            else:
                run(server, kind, tests)
        finally:
            server.kill()
            server.wait()
            os.chdir("/")


def run(server: Popen[bytes], kind: str, tests: Sequence[tuple[int, int, list[str]]]) -> None:
    """Runs the tests on the server and prints the figures."""
    stream = connect(server)
    check_preload(server)
    pairs = kept_pairs()
    replies = ask(stream, *(["SET", key, value] for key, value in pairs))
    expect("replies to SET", set(replies), {b"OK"})
    sent: dict[str, int] = {}
    for requests, _, command in tests:
        sent[command[0]] = sent.get(command[0], 0) + requests
    calls = {command: calls_of(stream, command) for command in sent}
    sampler = Sampler(server.pid)
    before = usage(server.pid, stream)
    sampler.start()
    seconds = sum(run_test(server, *test) for test in tests)
    mean = sampler.mean_kib()
    after = usage(server.pid, stream)
    peak = peak_kib(server.pid)
    operations = sum(requests for requests, _, _ in tests)
    check_data(stream, pairs, calls, sent)
    evicted = int(info(stream, "stats")["evicted_keys"])
    if (evicted > 0) != (kind == "eviction") and operations > ENOUGH:
        fail(f"{evicted} keys were evicted")
    stream.write(b"SHUTDOWN NOSAVE\r\n")
    stream.flush()
    if server.wait(30) != 0:
        raise Gone(server.returncode)
    user, system, soft, hard = (later - earlier for later, earlier in zip(after, before))
    print(f"RESULT name=redis_{kind} ops={operations} seconds={seconds:.6f} ops_per_s={operations / seconds:.0f} "
          f"ns_per_op={seconds * 1e9 / operations:.3f} user_s={user:.6f} sys_s={system:.6f} soft_faults={soft} "
          f"hard_faults={hard} rss_peak_kib={peak} rss_mean_kib={mean} "
          f"private_peak_kib={sampler.private}")


def run_flush(server: Popen[bytes], requests: int) -> None:
    """Fills the server, empties it, and prints what stays (bench/drivers/memory.c says what the figures mean)."""
    stream = connect(server)
    check_preload(server)
    path = Path(f"/proc/{server.pid}/statm")

    def rss_kib() -> int:
        return int(path.read_text(encoding="ascii").split()[1]) * PAGE_KIB

    time.sleep(IDLE_S)  # until what an allocator starts with the server's threads has settled
    start, used = rss_kib(), int(info(stream, "memory")["used_memory"])
    before = usage(server.pid, stream)
    seconds = run_test(server, requests, requests // 2, ["SET", "key:__rand_int__", "v" * 300])
    after = usage(server.pid, stream)
    full, live = rss_kib() - start, int(info(stream, "memory")["used_memory"]) - used
    expect("the reply to FLUSHALL", ask(stream, ["FLUSHALL"]), [b"OK"])
    freed = rss_kib() - start
    time.sleep(IDLE_S)
    held = rss_kib() - start
    user, system, soft, hard = (later - earlier for later, earlier in zip(after, before))
    print(f"RESULT name=redis_flush ops={requests} seconds={seconds:.6f} ns_per_op={seconds * 1e9 / requests:.3f} "
          f"user_s={user:.6f} sys_s={system:.6f} soft_faults={soft} hard_faults={hard} "
          f"rss_peak_kib={peak_kib(server.pid)} full_kib={full} live_kib={live // 1024} "
          f"freed_kib={max(freed, 0)} held_kib={max(held, 0)}")


if len(sys.argv) != 4 or sys.argv[3] not in (*TESTS, "flush"):
    fail(f"usage: redis.py FOLDER REQUESTS {'|'.join(TESTS)}|flush")
try:
    main(*sys.argv[1:])
except Gone as error:
    print(f"redis.py: {error}", file=sys.stderr, flush=True)
    if error.status < 0:
        signal.signal(-error.status, signal.SIG_DFL)
        os.kill(os.getpid(), -error.status)
    sys.exit(1)
