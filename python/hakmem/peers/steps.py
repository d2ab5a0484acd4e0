"""Running the commands of a build: in a log, one after the other, out of the way of other work."""

import os
import re
import subprocess
from pathlib import Path

from hakmem.peers import PeersError

# A build takes its settings from its recipe, not from the shell that it is started from.
FOREIGN = re.compile(r"^(CC|CXX|CPP|\w*FLAGS|LIBS|(LD|CMAKE|MALLOC|MIMALLOC)_\w+|GLIBC_TUNABLES)$")
TAIL = 25


class Steps:
    """Commands whose output goes to one log file, begun anew. One that fails is an error with the end of its output."""

    def __init__(self, name, log):
        self.name = name
        self.log = Path(log)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")

    def run(self, *command, cwd=None, setting=None):
        """Runs one command at low priority and returns what it printed on standard output."""
        command = [str(word) for word in command]
        env = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
        env.update(setting or {}, LC_ALL="C")
        with open(self.log, "a+", encoding="utf-8", errors="replace") as log:
            print("$", *command, file=log, flush=True)
            start = log.tell()
            try:
                done = subprocess.run(command, cwd=cwd, env=env, check=False, text=True, errors="replace",
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                      preexec_fn=lambda: os.nice(10))
            except OSError as error:
                raise PeersError(f"{self.name}: {command[0]}: {error.strerror}") from error
            print(done.stdout, file=log, flush=True)
            if done.returncode != 0:
                log.seek(start)
                tail = "".join(log.read().rstrip("\n").splitlines(keepends=True)[-TAIL:])
                status = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
                raise PeersError(f"{self.name}: {command[0]} failed ({status}); the end of {self.log}:\n{tail}")
        return done.stdout
