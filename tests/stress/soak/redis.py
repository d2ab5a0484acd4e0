"""redis-server with random settings: filled, reloaded with the same contents, emptied; then its memory must go back."""

import subprocess
import tempfile
import time

import running
import settings
from running import MIB, Failure, blackbox

ROUNDS, BOUND_MIB, BACK_SECONDS = 2, 64, blackbox.HANG
TESTS = "set,incr,lpush,rpush,sadd,hset,zadd,mset"


class Server:
    def __init__(self, folder, drawn):
        self.socket = f"{folder}/socket"
        with open(f"{folder}/output", "wb") as output:
            self.process = subprocess.Popen(
                ["redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "", "--dir", folder,
                 "--enable-debug-command", "yes", "--io-threads", "2"],
                env=blackbox.environment(drawn, blackbox.LIBRARY), stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True)
        self.peak = 0
        end = time.monotonic() + blackbox.HANG
        while self.command("PING") != "PONG":
            if time.monotonic() > end or self.process.poll() is not None:
                raise Failure(f"redis-server does not begin: status {self.process.poll()}")
            time.sleep(0.1)

    def command(self, *words):
        return blackbox.run(["redis-cli", "-s", self.socket, *words], timeout=120).stdout.strip()

    def resident(self):
        now = running.resident(self.process.pid)
        self.peak = max(self.peak, now)
        return now


def fill(server, chance):
    done = blackbox.run(["redis-benchmark", "-s", server.socket, "-n", chance.randrange(1000, 6000), "-r", 5000,
                         "-c", chance.randrange(1, 50), "-P", chance.randrange(1, 16), "-q",
                         "-d", chance.choice((3, 100, 1000, 8000)), "-t", TESTS], timeout=300)
    if done.status != 0:
        raise Failure(f"redis-benchmark: {done.report()}")


def one_round(server, chance, base):
    fill(server, chance)
    server.resident()
    digest = server.command("DEBUG", "DIGEST")
    if server.command("DEBUG", "RELOAD") != "OK" or server.command("DEBUG", "DIGEST") != digest:
        raise Failure("redis-server has other contents after a reload")
    if server.command("FLUSHALL") != "OK":
        raise Failure("redis-server does not flush")
    end = time.monotonic() + BACK_SECONDS
    while (now := server.resident()) > base + BOUND_MIB * MIB:
        if time.monotonic() > end:
            raise Failure(f"redis-server holds {now // MIB} MiB when it is empty; at first it held {base // MIB}")
        server.command("MEMORY", "PURGE")
        time.sleep(0.3)


def run(soak, chance):
    drawn = settings.draw(chance, soak.folder)
    with tempfile.TemporaryDirectory(dir=soak.folder) as folder:
        server = Server(folder, drawn)
        try:
            base = server.resident()
            for _ in range(ROUNDS):
                one_round(server, chance, base)
            server.command("SHUTDOWN", "NOSAVE")
            if server.process.wait(timeout=blackbox.HANG) != 0:
                raise Failure(f"redis-server ends with {server.process.returncode}")
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise Failure(f"redis-server hangs: {error}\n{blackbox.thread_stacks(server.process.pid)}") from error
        finally:
            blackbox.stop_session(server.process)
            server.process.wait()
    return server.peak
