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

    def memory(self, wanted=lambda figures: True):
        """The server's figures once they are as wanted. It updates them ten times a second, if it gets a processor."""
        def told():
            pairs = (line.split(":", 1) for line in self.command("INFO", "memory").splitlines() if ":" in line)
            figures = {name: float(value) for name, value in pairs if name.startswith(("allocator_", "used_memory"))
                       and value.strip().replace(".", "").isdigit()}
            return figures if wanted(figures) else None
        return blackbox.wait_for(told, "the figures that the test wants of redis-server")

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
    before = server.memory()
    apart = before["allocator_allocated"] - before["used_memory"]
    server.command("DEBUG", "POPULATE", "100000", "key", "200")

    def true(now):
        allocated, active, resident = (now[f"allocator_{name}"] for name in ("allocated", "active", "resident"))
        # What the server counts itself. Pages from which no block was taken yet are active and not resident, and the
        # rest of the process is small.
        return (allocated <= active <= resident
                and abs(allocated - now["used_memory"] - apart) < MIB / 4
                and server.anonymous() - MIB <= resident <= server.anonymous() + 2 * MIB
                and 1.0 <= now["allocator_frag_ratio"] < 1.15 and 1.0 <= now["allocator_rss_ratio"] < 1.3)
    server.memory(true)


def test_fragmentation_is_seen_and_leaves(server):
    server.command("EVAL", "for i = 0, 99999 do if i % 4 ~= 0 then redis.call('DEL', 'key:' .. i) end end", "0")
    sparse = server.memory(lambda now: now["allocator_frag_ratio"] > 1.5)
    server.command("FLUSHALL")
    assert server.command("MEMORY", "PURGE") == "OK"
    server.memory(lambda now: now["allocator_active"] < sparse["allocator_active"] / 2
                  and now["allocator_resident"] < sparse["allocator_resident"] / 2
                  and server.anonymous() < now["allocator_resident"] + 2 * MIB)


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
    assert server.command("CONFIG", "SET", "activedefrag", "yes") != "OK"
