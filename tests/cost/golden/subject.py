"""The library to measure, and how its benchmark programs run."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
RUN_SECONDS = 1200

PRIVATE_VARIABLE = re.compile(r"^(HAKMEM_|BENCH_|LD_|MALLOC_|GLIBC_TUNABLES|VALGRIND)")


class CheckError(Exception):
    """A measurement failed, or differs from the golden file."""


@dataclass(frozen=True)
class Subject:
    """The library to measure, and the folder with the benchmark programs."""

    library: Path
    programs: Path

    def program(self, name):
        path = self.programs / name
        if not path.exists():
            raise CheckError(f"{path} is not there; build it with ./hakmem build")
        return str(path)


def default_subject(build=None, library=None):
    build = Path(build or os.environ.get("HAKMEM_BUILD_DIR", REPOSITORY / "build/release")).absolute()
    library = Path(library or os.environ.get("HAKMEM_LIB", build / "lib/libhakmem.so")).resolve()
    if not library.exists():
        raise CheckError(f"{library} is not there; build it with ./hakmem build")
    return Subject(library, build / "bin")


def run(argv, extra=None):
    """Runs a command in an environment without allocator settings. Returns its standard output."""
    env = {name: value for name, value in os.environ.items() if not PRIVATE_VARIABLE.match(name)}
    env.update(LC_ALL="C", **(extra or {}))
    argv = [str(argument) for argument in argv]
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    except FileNotFoundError:
        raise CheckError(f"{argv[0]} is not installed (tools/packages/bench.txt lists what is needed)") from None
    except subprocess.TimeoutExpired:
        raise CheckError(f"{' '.join(argv)}: no end after {RUN_SECONDS} s") from None
    if done.returncode != 0:
        raise CheckError(f"{' '.join(argv)}: status {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return done.stdout
