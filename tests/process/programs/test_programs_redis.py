"""Protects redis-server under redis-benchmark: the contents at the end are the same on either allocator."""

import shutil
import subprocess
import tempfile
import time

import pytest

import blackbox

BENCHMARK = "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,zadd,lrange_100,mset"

# Fills the server with data that the benchmark lacks: growing strings, big hashes, streams, expiry, scripts.
FILL = """
for i = 1, 3000 do
    redis.call('SET', 'string:' .. i, string.rep('v', i))
    redis.call('APPEND', 'grown', string.rep('g', i % 50))
    redis.call('HSET', 'hash:' .. (i % 20), 'field' .. i, string.rep('h', i % 300))
    redis.call('ZADD', 'sorted', i * 7919 % 3001, 'member' .. i)
    redis.call('RPUSH', 'list:' .. (i % 5), string.rep('l', i % 100))
    redis.call('XADD', 'stream', i .. '-1', 'key', 'value' .. i)
    if i % 3 == 0 then redis.call('DEL', 'string:' .. (i - 1)) end
end
redis.call('SETRANGE', 'sparse', 5000000, 'end')
return redis.call('DBSIZE')
"""


class Server:
    """A redis-server on its own socket, in its own folder."""

    def __init__(self, preload, log_folder=None):
        self.folder = tempfile.mkdtemp(prefix="hakmem-redis-")
        self.socket = f"{self.folder}/socket"
        env = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": f"{log_folder}/log"} if log_folder else {}
        with open(f"{self.folder}/output", "wb") as output:
            self.process = subprocess.Popen(
                [
                    "redis-server",
                    "--port",
                    "0",
                    "--unixsocket",
                    self.socket,
                    "--save",
                    "",
                    "--daemonize",
                    "no",
                    "--enable-debug-command",
                    "yes",
                    "--dir",
                    self.folder,
                    "--io-threads",
                    "2",
                    "--activedefrag",
                    "no",
                ],
                env=blackbox.environment(env, preload),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + blackbox.HANG
        while self.command("PING") != "PONG":
            assert time.monotonic() < deadline and self.process.poll() is None, self.output()
            time.sleep(0.05)

    def output(self):
        with open(f"{self.folder}/output", encoding="utf-8", errors="replace") as output:
            return output.read()

    def command(self, *words, stdin=None):
        return blackbox.run(["redis-cli", "-s", self.socket, *words], stdin=stdin).stdout.strip()

    def stop(self):
        blackbox.stop_session(self.process)
        self.process.wait()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def contents(tmp_path_factory, library):
    """The server's answers after the same work, on the system's allocator and on HAKMEM."""
    answers = {}
    for name, preload in (("plain", None), ("hakmem", library)):
        logs = tmp_path_factory.mktemp(f"redis-{name}")
        server = Server(preload, logs)
        try:
            benchmark = blackbox.run(
                [
                    "redis-benchmark",
                    "-s",
                    server.socket,
                    "-n",
                    "3000",
                    "-c",
                    "20",
                    "-P",
                    "4",
                    "-q",
                    "-d",
                    "200",
                    "-t",
                    BENCHMARK,
                ],
                timeout=100,
            )
            assert benchmark.status == 0, benchmark.report()
            # Many clients pushed to it and popped from it: the remaining elements depend on chance.
            server.command("DEL", "mylist")
            filled = server.command("EVAL", FILL, "0")
            saved = server.command("SAVE")
            answers[name] = {
                "filled": filled,
                "saved": saved,
                "size": server.command("DBSIZE"),
                "digest": server.command("DEBUG", "DIGEST"),
                "reloaded": server.command("DEBUG", "RELOAD"),
                "digest after reload": server.command("DEBUG", "DIGEST"),
                "flushed": server.command("FLUSHALL"),
                "size after flush": server.command("DBSIZE"),
            }
            memory = dict(line.split(":", 1) for line in server.command("INFO", "memory").split() if ":" in line)
            purge = server.command("MEMORY", "PURGE")
            server.command("SHUTDOWN", "NOSAVE")
            status = server.process.wait(timeout=blackbox.HANG)
            answers[f"{name} facts"] = {
                "memory": memory,
                "purge": purge,
                "status": status,
                "output": server.output(),
                "bound": blackbox.bound_to_library(logs, server.process.pid),
            }
        finally:
            server.stop()
    return answers


def test_contents_are_the_same(contents):
    assert contents["hakmem"] == contents["plain"]
    assert contents["hakmem"]["saved"] == "OK"
    assert int(contents["hakmem"]["size"]) > 2000
    assert contents["hakmem"]["digest"] == contents["hakmem"]["digest after reload"]
    assert contents["hakmem"]["size after flush"] == "0"


def test_server_ran_on_the_library_and_ended_well(contents):
    assert contents["hakmem facts"]["bound"]
    assert not contents["plain facts"]["bound"]
    for name in ("plain facts", "hakmem facts"):
        assert contents[name]["status"] == 0
        assert "REDIS BUG REPORT" not in contents[name]["output"]


def test_memory_that_redis_counts_is_plausible(contents):
    """Redis sums malloc_usable_size of all its blocks. Once emptied, it must count about as much as on glibc."""
    plain = int(contents["plain facts"]["memory"]["used_memory"])
    ours = int(contents["hakmem facts"]["memory"]["used_memory"])
    assert 0.5 * plain < ours < 1.5 * plain
    assert int(contents["hakmem facts"]["memory"]["used_memory_rss"]) > 0
