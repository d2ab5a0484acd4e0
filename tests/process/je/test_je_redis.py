"""Protects Debian's redis-server, which is linked with jemalloc: its memory figures are true on libhakmem-je.so."""

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import blackbox

MIB = 1 << 20


class Server:
    def __init__(self, preload):
        self.folder = Path(tempfile.mkdtemp(prefix="hakmem-je-"))
        with open(self.folder / "output", "wb") as output:
            self.process = subprocess.Popen([
                "redis-server", "--port", "0", "--unixsocket", self.folder / "socket", "--save", "", "--dir",
                self.folder, "--enable-debug-command", "yes"
            ], env=blackbox.environment({}, preload), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                            start_new_session=True,
                                            )
        deadline = time.monotonic() + blackbox.HANG
        while self.command("PING") != "PONG":
            assert time.monotonic() < deadline and self.process.poll() is None, (self.folder / "output").read_text()
            time.sleep(0.05)

    def command(self, *words):
        return blackbox.run(["redis-cli", "-s", self.folder / "socket", *words]).stdout.strip()

    def memory(self):
        time.sleep(0.25)  # the server updates its figures ten times a second
        pairs = (line.split(":", 1) for line in self.command("INFO", "memory").splitlines() if ":" in line)
        return {name: value.strip() for name, value in pairs}

    def anonymous(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("RssAnon:")).split()[1]) * 1024

    def stop(self):
        blackbox.stop_session(self.process)
        self.process.wait()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def server(je_library):
    server = Server(je_library)
    yield server
    server.stop()


def test_figures(server):
    before = {name: int(value) for name, value in server.memory().items() if value.isdigit()}
    server.command("DEBUG", "POPULATE", "100000", "key", "200")
    info = server.memory()
    figures = {name: int(value) for name, value in info.items() if value.isdigit()}
    allocated, active, resident = (figures[f"allocator_{name}"] for name in ("allocated", "active", "resident"))
    assert allocated <= active <= resident
    used = figures["used_memory"] - before["used_memory"]
    assert abs(allocated - before["allocator_allocated"] - used) < MIB / 4, "what the server counts itself"
    # Pages from which no block was taken yet are active and not resident. The rest of the process is small.
    assert server.anonymous() - MIB <= resident <= server.anonymous() + 2 * MIB
    assert 1.0 <= float(info["allocator_frag_ratio"]) < 1.15 and 1.0 <= float(info["allocator_rss_ratio"]) < 1.3


def test_fragmentation_is_seen_and_leaves(server):
    server.command("EVAL", "for i = 0, 99999 do if i % 4 ~= 0 then redis.call('DEL', 'key:' .. i) end end", "0")
    sparse = server.memory()
    assert float(sparse["allocator_frag_ratio"]) > 1.5
    server.command("FLUSHALL")
    assert server.command("MEMORY", "PURGE") == "OK"
    empty = server.memory()
    assert int(empty["allocator_active"]) < int(sparse["allocator_active"]) / 2
    assert int(empty["allocator_resident"]) < int(sparse["allocator_resident"]) / 2
    assert server.anonymous() < int(empty["allocator_resident"]) + 2 * MIB


def test_commands_of_memory(server):
    words = server.command("MEMORY", "STATS").split()
    stats = dict(zip(words[::2], words[1::2]))
    assert 0 < int(stats["allocator.allocated"]) <= int(stats["allocator.active"]) <= int(stats["allocator.resident"])
    assert server.command("MEMORY", "DOCTOR").startswith(("Sam", "Hi Sam"))
    assert "live" in server.command("MEMORY", "MALLOC-STATS")
    assert "HAKMEM" in server.command("DEBUG", "MALLCTL-STR", "version")
    assert int(server.command("DEBUG", "MALLCTL", "stats.allocated")) > 0
    assert server.command("CONFIG", "SET", "jemalloc-bg-thread", "no") == "OK"
    assert server.command("CONFIG", "SET", "jemalloc-bg-thread", "yes") == "OK"
    # Debian's build has no active defragmentation, and the server says so.
    assert "cannot be enabled" in server.command("CONFIG", "SET", "activedefrag", "yes")
