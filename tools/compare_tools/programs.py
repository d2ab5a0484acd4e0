"""The three programs: each starts under a tool, gets its load, waits with all that it keeps, and ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

HERE = Path(__file__).resolve().parent
DEBIAN_PYTHON = "/usr/bin/python3"
RECORDS, EACH, CHARACTERS = 20_000, 50, 2000
REDIS_LOAD = ("-n", "60000", "-r", "40000", "-d", "400", "-t", "set,lpush", "-q")
LONGEST = 120
Result = TypeVar("Result")


def rss(pid: int) -> int:
    """The resident bytes of a process."""
    kib: list[str] = re.findall(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(kib[0]) << 10


def wait_for(what: str, wanted: Callable[[], Result]) -> Result:
    """Returns the first true result of wanted()."""
    until = time.monotonic() + LONGEST
    while not (found := wanted()):
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.1)
    return found


class Program:
    """One of the three. command: the words that start it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.command: list[str] = []
        self.log = folder / f"{name}.log"

    def prepare(self) -> None:
        """Makes what the program needs."""

    def load(self, process: subprocess.Popen[str]) -> None:
        """Waits until the program has got its load."""

    def end(self, process: subprocess.Popen[str]) -> None:
        """Asks the program to end."""

    @contextmanager
    def waiting(self, wrapper: Sequence[str | Path] = (),
                env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
        """Starts the program, with a tool's words before its own, and gives its process when it waits at its end."""
        with open(self.log, "a", encoding="utf-8") as log, subprocess.Popen(
                [*wrapper, *self.command], env={**os.environ, **(env or {})}, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, cwd=self.folder) as process:
            try:
                self.load(process)
                yield process
                self.end(process)
                assert process.stdin and process.stdout
                process.stdin.close()
                process.stdout.read()
                process.wait(LONGEST)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise


class Fragmented(Program):
    """The C++ program."""

    def prepare(self) -> None:
        self.command = [str(self.folder / "frag")]
        # Files have short names in the pictures.
        subprocess.run(["g++", "-O2", "-g", f"-ffile-prefix-map={HERE}=/src", "frag.cpp", "-o", self.command[0]],
                       cwd=HERE, check=True)

    def load(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        for line in process.stdout:
            if line == "ready\n":
                return
        raise EOFError(f"{self.name} ended early: {self.log}")


class Leaking(Program):
    """The web application in Python. Its command begins with the interpreter. memray takes the
    interpreter's place."""

    def prepare(self) -> None:
        shutil.copy(HERE / "leak.py", self.folder)
        self.command = [DEBIAN_PYTHON, "leak.py"]

    def load(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        line = next((line for line in process.stdout if line.strip().isdigit()), None)
        if line is None:
            raise EOFError(f"{self.name} ended early: {self.log}")
        self.port = int(line)
        for first in range(0, RECORDS, EACH):
            self.ask("POST", "/records", [{"id": number, "text": f"{number:08}".ljust(CHARACTERS, "x")}
                                          for number in range(first, first + EACH)])

    def ask(self, method: str, path: str, value: object = None) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body=json.dumps(value) if value else None)
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        answer.read()
        connection.close()

    def end(self, process: subprocess.Popen[str]) -> None:
        self.ask("GET", "/quit")


class Redis(Program):
    """Debian's redis-server, without files on disk."""

    def prepare(self) -> None:
        self.socket = str(self.folder / "redis.socket")
        self.command = ["/usr/bin/redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "",
                        "--appendonly", "no", "--dir", str(self.folder)]

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(self.socket)
                client.sendall(b"PING\r\n")
                return client.recv(7) == b"+PONG\r\n"
            except OSError:
                return False

    def cli(self, *words: str) -> str:
        return subprocess.run(["redis-cli", "-s", self.socket, *words], capture_output=True, text=True,
                              check=True).stdout

    def load(self, process: subprocess.Popen[str]) -> None:
        # The server writes its log there, and would stop at a full pipe.
        wait_for("Redis", self.answers)
        subprocess.run(["redis-benchmark", "-s", self.socket, *REDIS_LOAD], check=True, stdout=subprocess.DEVNULL)

    def end(self, process: subprocess.Popen[str]) -> None:
        subprocess.run(["redis-cli", "-s", self.socket, "shutdown", "nosave"], check=False, capture_output=True)


def all_of(folder: Path) -> dict[str, Program]:
    """The programs by name."""
    made: dict[str, Program] = {"frag": Fragmented("frag", folder), "leak": Leaking("leak", folder),
                                "redis": Redis("redis", folder)}
    for program in made.values():
        program.prepare()
    return made
