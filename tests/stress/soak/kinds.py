"""The kinds of the soak's runs. A kind's function draws parameters from `chance`, runs it, and returns its peak RSS.

To add a kind: a function here and a row in KINDS. For a real program, a row in REAL is enough.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import redis
import running
import settings
from running import REPOSITORY_TESTS, Job, blackbox

SCENARIOS = ("churn", "orphans", "phases", "producers", "ring", "batches", "heaps", "idle")


@dataclass
class Soak:
    """flavors: {name: build folder}. folder: for files of the runs. programs: those compiled so far."""

    flavors: dict
    folder: Path
    python: str

    def program(self, chance, name):
        """A program of a random flavor."""
        return self.flavors[chance.choice(list(self.flavors))] / "bin" / name

    def compiled(self, source, *flags):
        """A test's own program, built once."""
        output = self.folder / Path(source).stem
        return output if output.exists() else blackbox.compile_program(REPOSITORY_TESTS / source, output, *flags)


# ---- The stress programs, which check contents and the allocator's own figures ----


def seed(chance):
    return chance.randrange(1, 1 << 30)


def stress(soak, chance):
    seconds = chance.choice((2, 4, 8))
    command = [soak.program(chance, "stress"), chance.choice(SCENARIOS), "--seconds", seconds, "--seed", seed(chance)]
    if chance.randrange(2):
        command += ["--collect", 1]
    return running.run(Job(command, 3 * seconds, settings=settings.draw(chance, soak.folder)))


def differential(soak, chance):
    budget = chance.choice((50, 150, 300))
    return running.run(Job([soak.program(chance, "differential"), "--calls", chance.randrange(100_000, 2_000_000),
                            "--threads", chance.randrange(1, 7), "--generations", chance.randrange(1, 12),
                            "--budget", budget << 20, "--seed", seed(chance)], 60, 1024 + 2 * budget,
                           settings=settings.draw(chance, soak.folder)))


def failures(soak, chance):
    """Single cases of the sweep: random system calls fail."""
    return max(running.run(Job([soak.program(chance, "failure_sweep"), "--kind", chance.randrange(7), "--call",
                                chance.randrange(1, 300), "--from", chance.randrange(2), "--settings",
                                chance.randrange(3), "--seed", seed(chance)], 20)) for _ in range(5))


def stats_running(soak, chance):
    return running.run(Job([soak.program(chance, "stats_running"), "--seconds", 3, "--seed", seed(chance)], 15,
                           settings=settings.draw(chance, soak.folder)))


# ---- Programs under preload: births, deaths, forks ----

LIFE = {
    "fork_storm.c": (lambda chance: (chance.randrange(1, 17), chance.randrange(2, 15)), 40),
    "spawn.c": (lambda chance: (chance.randrange(2, 20),), 20),
    "thread_exit.c": (lambda chance: (chance.randrange(50, 800),), 20),
    "many_threads.c": (lambda chance: (chance.randrange(500, 20_000),), 20),
    "cancel.c": (lambda chance: (), 20),
    "tiny_stack.c": (lambda chance: (), 10),
    "thread_local.cpp": (lambda chance: (), 20),
}


def life(soak, chance):
    name = chance.choice(list(LIFE))
    arguments, seconds = LIFE[name]
    return running.run(Job([soak.compiled(f"process/life/{name}"), *arguments(chance)], seconds, 1024, preload=True,
                           settings=settings.draw(chance, soak.folder)))


def waves(soak, chance):
    """Thread storms with checked contents. After each storm the memory must have gone back."""
    drawn = settings.draw(chance, soak.folder)
    # Memory that a setting keeps on purpose is no leak.
    bound = 48 + 4 * int(drawn.get("HAKMEM_SS_PREWARM", 0)) + (16 if "HAKMEM_HEAP_PROFILE" in drawn else 0)
    drawn.pop("HAKMEM_THP", None)
    return running.run(Job([soak.compiled("stress/soak/waves.c"), chance.randrange(2, 8), chance.randrange(1, 65),
                            chance.randrange(20, 2000), seed(chance), bound], 60, 4096, preload=True,
                           settings=drawn, wanted="waves"))


# ---- The benchmarks' programs ----

DRIVERS = {
    "larson": lambda chance: (2, 8, chance.choice((128, 1000, 5000)), chance.randrange(100, 2000), 1,
                              chance.randrange(1, 1 << 30), chance.randrange(1, 9)),
    "bench_thread_churn": lambda chance: (chance.randrange(100, 5000), chance.randrange(1, 300), chance.randrange(1, 9),
                                          seed(chance)),
    "bench_random_mixed": lambda chance: (chance.randrange(10**5, 10**6), chance.randrange(100, 20_000), seed(chance)),
    "bench_producer_consumer": lambda chance: (chance.randrange(1, 5), chance.randrange(100, 3000), seed(chance)),
    "bench_phases": lambda chance: (chance.randrange(2, 12), chance.randrange(1, 6), chance.randrange(500, 8000),
                                    chance.randrange(20), seed(chance)),
    "bench_fragmentation": lambda chance: (chance.randrange(4, 24), chance.randrange(1000, 8000), chance.randrange(60),
                                           seed(chance)),
    "bench_ring": lambda chance: (chance.randrange(2, 8), chance.randrange(1000, 60_000), chance.randrange(1, 6),
                                  seed(chance)),
    "bench_aligned_heavy": lambda chance: (chance.randrange(10**4, 10**5), chance.randrange(100, 4000), seed(chance)),
    "bench_vector_growth": lambda chance: (chance.randrange(500, 5000), chance.randrange(4, 48), 4096, "both",
                                           seed(chance)),
    "bench_calloc_heavy": lambda chance: (chance.randrange(1000, 15_000), chance.randrange(20, 300), seed(chance)),
    "bench_fork": lambda chance: (chance.randrange(4, 64), chance.randrange(2, 12), chance.randrange(500, 5000),
                                  seed(chance)),
}


def drivers(soak, chance):
    name = chance.choice(list(DRIVERS))
    return running.run(Job([soak.flavors["release"] / "bin" / name, *DRIVERS[name](chance)], 60, preload=True,
                           settings=settings.draw(chance, soak.folder)))


# ---- Real programs: pytest files that compare what they do with what they do on the system's allocator. CI runs the
# files test_*.py as well, and no file soak_*.py. ----

# kind: (the programs that it needs, the file)
REAL = {
    "crowds": ((), "process/drivers/soak_crowds.py"),
    "bind": (("named", "dig"), "process/je/soak_bind.py"),
    "change-of-sizes": ((), "process/life/soak_footprint.py"),
    "ffmpeg": (("ffmpeg",), "process/programs/soak_media.py"),
    "java-ruby": (("ruby", "java", "javac"), "process/programs/soak_runtimes.py"),
    "mariadb": (("mariadbd", "sysbench"), "process/programs/soak_mariadb.py"),
    "memcached": (("memcached",), "process/programs/soak_memcached.py"),
    "nginx": (("nginx", "ab", "openssl"), "process/programs/test_programs_nginx.py"),
    "php": (("php", "nginx"), "process/programs/soak_php.py"),
    "postgres": (("psql",), "process/programs/soak_postgres.py"),
    "python": (("/usr/bin/python3",), "process/programs/soak_python.py"),
    "redis-contents": (("redis-server", "redis-benchmark", "redis-cli"), "process/programs/test_programs_redis.py"),
    "rust-go-node": (("cargo", "go", "node"), "process/programs/soak_languages.py"),
    "serve": ((), "tools/serve/soak_serve.py"),
    "serve-fleet": (("prometheus", "promtool", "go"), "tools/serve/soak_fleet.py"),
    "stress-ng": (("stress-ng",), "process/programs/soak_stress_ng.py"),
}


def real(name):
    """The kind's row in KINDS."""
    programs, file = REAL[name]

    def run(soak, _):
        environment = {"HAKMEM_LIB": str(blackbox.LIBRARY), "HAKMEM_BUILD_DIR": str(soak.flavors["release"]),
                       "PYTHONDONTWRITEBYTECODE": "1"}
        with tempfile.TemporaryDirectory(dir=soak.folder) as folder:
            command = [soak.python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--basetemp",
                       f"{folder}/pytest", REPOSITORY_TESTS / file]
            return running.run(Job(command, 600, settings=environment, folder=os.fspath(REPOSITORY_TESTS)))

    return 1, run, lambda: all(shutil.which(program) for program in programs)


def redis_memory(soak, chance):
    return redis.run(soak, chance)


# name: (its share of all runs, function, whether it can run here)
KINDS = {
    "stress": (6, stress, lambda: True),
    "differential": (3, differential, lambda: True),
    "failures": (2, failures, lambda: True),
    "stats_running": (1, stats_running, lambda: True),
    "life": (5, life, lambda: True),
    "waves": (4, waves, lambda: True),
    "drivers": (5, drivers, lambda: True),
    "redis": (1, redis_memory, lambda: shutil.which("redis-server") and shutil.which("redis-benchmark")),
    **{name: real(name) for name in REAL},
}
