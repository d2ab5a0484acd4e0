"""Runs the commands of a build: one after the other, at low priority, with their output in a log."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from hakmem.peers import PeersError
from hakmem.peers.progress import Display

# A build takes its settings from its recipe, not from the shell that it is started from.
FOREIGN = re.compile(r"^(CC|CXX|CPP|\w*FLAGS|LIBS|(LD|CMAKE|MALLOC|MIMALLOC)_\w+|GLIBC_TUNABLES)$")
TAIL = 25


class Steps:
    """Runs commands and writes their output to a log file as it comes. The log begins anew. If a command fails, the
    PeersError has the end of its output."""

    def __init__(self, name: str, log: str | Path, progress: Display | None = None) -> None:
        self.name = name
        self.log = Path(log)
        self.progress = progress or Display()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")

    def run(self, *command: object, cwd: Path | None = None, setting: dict[str, str] | None = None) -> str:
        """Runs one command at low priority and returns what it printed on standard output."""
        words = [str(word) for word in command]
        env = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
        env.update(setting or {}, LC_ALL="C")
        self.progress.step(words)
        with open(self.log, "a+b", buffering=0) as log:
            log.write(("$ " + " ".join(words) + "\n").encode())
            start = log.tell()
            try:
                process = subprocess.Popen(words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                           stderr=log, preexec_fn=lambda: os.nice(10))
            except OSError as error:
                raise PeersError(f"{self.name}: {words[0]}: {error.strerror}") from error
            printed = b""
            with process:
                try:
                    while process.stdout and (part := os.read(process.stdout.fileno(), 1 << 16)):
                        printed += part
                        log.write(part)
                except BaseException:
                    process.kill()
                    raise
            if process.returncode != 0:
                log.seek(start)
                text = log.read().decode(errors="replace")
                tail = "".join(text.rstrip("\n").splitlines(keepends=True)[-TAIL:])
                number = process.returncode
                status = f"signal {-number}" if number < 0 else f"status {number}"
                raise PeersError(f"{self.name}: {words[0]} failed ({status}); the end of {self.log}:\n{tail}")
        return printed.decode(errors="replace")
