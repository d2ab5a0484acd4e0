#!/usr/bin/env python3
"""Shows what heaptrack, memray, jeprof, pprof and hakmem heap say of three programs, in pictures and figures.

Writes docs/images/compare/*.png, tools/compare_tools/figures.json, and the tables of figures in docs/dev/compare-tools.md.
Run it as root with build/venv/bin/python after ./hakmem build. It installs the Debian packages in packages.txt that are
missing, and memray into build/compare/venv. It takes ten minutes, and more on a busy machine.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
import programs
import screens
import tables
from figures import printed
from programs import Program, rss, wait_for

if TYPE_CHECKING:
    from selenium.webdriver import Chrome as WebDriver

    from screens import Action

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build/compare"
IMAGES = ROOT / "docs/images/compare"
PAGE = ROOT / "docs/dev/compare-tools.md"
LIBRARY = ROOT / "build/release/lib/libhakmem.so"
JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
INTERPRETER = "/usr/lib/heaptrack/libexec/heaptrack_interpret"
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MEMRAY = "1.20.0"
# The mean bytes between samples, of HAKMEM and jemalloc.
RATE = 16384
# The bytes that a program allocates between two files, from which HAKMEM draws the chart over time.
INTERVAL = "4M"
# Of the pictures of pages, in pixels: a Python program's stacks are deep.
HEIGHTS = {"frag": 660, "leak": 960, "redis": 960}
JEPROF_HEIGHTS = {"frag": 1000, "leak": 600, "redis": 600}
PPROF_HEIGHTS = {"frag": 240, "leak": 960, "redis": 480}
HIDDEN = "^std::|^__gnu"
# A package whose command may come from elsewhere.
COMMANDS = {"golang-go": "go", "llvm": "llvm-symbolizer"}


def install() -> None:
    """Installs the Debian packages that are missing, and memray."""
    wanted = [line.split()[0] for line in (HERE / "packages.txt").read_text().splitlines() if not line.startswith("#")]
    shown = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted], capture_output=True,
                           text=True, check=False).stdout
    missing = [name for name in wanted if f"{name} installed" not in shown.splitlines()
               and not shutil.which(COMMANDS.get(name, ""))]
    if missing:
        subprocess.run(["apt-get", "-o", "DPkg::Lock::Timeout=600", "install", "-y", "--no-install-recommends",
                        *missing], check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    venv = WORK / "venv"
    if not (venv / "bin/memray").exists():
        subprocess.run([programs.DEBIAN_PYTHON, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "--quiet", f"memray=={MEMRAY}"], check=True)


def versions() -> dict[str, Any]:
    """The machine and the versions of everything."""
    names = ["heaptrack", "libjemalloc2", "redis-server", "python3", "libc6"]
    debian = dict(line.split() for line in printed(["dpkg-query", "-W", "-f", "${Package} ${Version}\n",
                                                    *names]).splitlines())
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": platform.machine(),
            "kernel": platform.release(), "debian": Path("/etc/debian_version").read_text().strip(),
            "huge pages": re.findall(r"\[(\w+)\]", HUGE_PAGES.read_text())[0],
            "packages": debian, "memray": MEMRAY, "go": printed(["go", "version"]).split()[2],
            "chromium": printed(["chromium", "--version"]).split()[1],
            "hakmem": printed([ROOT / "hakmem", "--version"]).strip(),
            "commit": printed(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]).strip()}


def hakmem_of(*words: object) -> list[str]:
    return [sys.executable, "-m", "hakmem", *map(str, words)]


def alone(program: Program) -> dict[str, int]:
    """The resident bytes without any tool: on the program's own allocator, jemalloc and HAKMEM."""
    found = {}
    for name, env in (("own", {}), ("jemalloc", {"LD_PRELOAD": JEMALLOC}), ("hakmem", {"LD_PRELOAD": str(LIBRARY)}),
                      ("hakmem without huge pages", {"LD_PRELOAD": str(LIBRARY), "HAKMEM_THP": "never"})):
        with program.waiting(env=env) as process:
            found[name] = rss(process.pid)
    return found


def heaptrack(program: Program, env: dict[str, str], folder: Path) -> dict[str, Any]:
    """Records raw data, and interprets it later: else the command would open its window when the program ends."""
    raw, recording = folder / f"{program.name}-raw", folder / f"{program.name}.heaptrack.zst"
    with program.waiting(["heaptrack", "--raw", "-o", raw]):
        pass
    subprocess.run(["sh", "-c", f"zstd -dc {raw}.raw.zst | {INTERPRETER} | zstd -qo {recording}"], check=True)
    # (444, 37) is the tab Flame Graph, (546, 37) is Consumed. (208, 81) is the box that chooses what the graph shows:
    # Memory Peak, or below it Leaked, which is what a program that frees nothing held at its end. (312, 81) turns the
    # graph upside down.
    graphs: dict[str, list[Action]] = {"frag": [(208, 81), "Down", "Return"], "leak": [(312, 81)], "redis": []}
    graph = graphs[program.name]
    screens.heaptrack_window(env, recording, IMAGES / f"{program.name}-heaptrack.png", [(444, 37), *graph])
    screens.heaptrack_window(env, recording, IMAGES / f"{program.name}-heaptrack-consumed.png", [(546, 37)])
    return figures.of_heaptrack(recording, folder)


def memray(program: Program, driver: WebDriver, folder: Path) -> dict[str, Any]:
    recording, page = folder / "memray.bin", folder / "memray.html"
    command = program.command
    program.command = command[1:]
    try:
        with program.waiting([WORK / "venv/bin/memray", "run", "--quiet", "-o", recording]):
            pass
    finally:
        program.command = command
    printed([WORK / "venv/bin/memray", "flamegraph", "--no-web", "-f", "-o", page, recording], cwd=folder)
    screens.page(driver, page.as_uri(), IMAGES / f"{program.name}-memray.png", height=760)
    return figures.of_memray(WORK / "venv/bin/python", recording)


def jemalloc(program: Program, env: dict[str, str], driver: WebDriver, folder: Path) -> dict[str, Any]:
    """jemalloc writes a profile when the program asks it to. Here gdb does so in the program's place."""
    graph = folder / f"{program.name}.svg"
    options = {"LD_PRELOAD": JEMALLOC, "MALLOC_CONF": f"prof:true,lg_prof_sample:{RATE.bit_length() - 1},"
               f"prof_prefix:{folder}/{program.name}"}
    dump = 'print ((int (*)(const char *, void *, void *, void *, unsigned long)) mallctl)("prof.dump", 0, 0, 0, 0)'
    with program.waiting(env=options) as process:
        found: dict[str, Any] = {"rss": rss(process.pid)}
        printed(["gdb", "-nx", "-batch", "-p", process.pid, "-ex", dump])
    profile = next(folder.glob(f"{program.name}.{process.pid}.*.m0.heap"))
    graph.write_text(printed(["jeprof", "--svg", "--inuse_space", program.command[0], profile]))
    screens.page(driver, graph.as_uri(), IMAGES / f"{program.name}-jeprof.png", screens.TO_THE_END,
                 height=JEPROF_HEIGHTS[program.name], trimmed=True)
    return {**found, **figures.of_jeprof(program.command[0], profile)}


@contextmanager
def pprof_page(profile: str, folder: Path) -> Iterator[str]:
    """The address of pprof's pages of a profile."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(["go", "tool", "pprof", "-no_browser", f"-http=127.0.0.1:{port}", profile],
                          env={**os.environ, "PPROF_TMPDIR": str(folder)}, stderr=subprocess.DEVNULL,
                          start_new_session=True) as server:
        def answers() -> bool:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/ui/", timeout=60) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        try:
            wait_for("pprof", answers)
            yield f"http://127.0.0.1:{port}/ui"
        finally:
            os.killpg(server.pid, 15)


@contextmanager
def served_profile(pid: int) -> Iterator[str]:
    """The address at which `hakmem serve` has a process's profile, with its token as a password."""
    with subprocess.Popen(hakmem_of("serve", pid, "--port", "0"), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            url, _, token = server.stdout.readline().strip().partition("?token=")
            yield url.replace("://", f"://hakmem:{token}@") + "debug/pprof/heap"
        finally:
            server.terminate()


def hakmem(program: Program, env: dict[str, str], driver: WebDriver, folder: Path) -> dict[str, Any]:
    """The running process, by this project's commands and by pprof."""
    name, page, over_time = program.name, folder / f"{program.name}.html", folder / f"{program.name}.timeline.html"
    options = {"LD_PRELOAD": str(LIBRARY), "HAKMEM_HEAP_PROFILE": str(folder / f"{name}.%n.gz"),
               "HAKMEM_HEAP_PROFILE_RATE": str(RATE), "HAKMEM_HEAP_PROFILE_INTERVAL": INTERVAL}
    with program.waiting(env=options) as process:
        pid = process.pid
        heap = [*hakmem_of("heap", "--hide", HIDDEN)]
        found = {"rss": rss(pid), **figures.of_hakmem(printed([*heap, "--json", pid])),
                 "why": figures.of_why(printed([*heap, "--why", "--json", pid]))}
        screens.terminal(env, [*heap, "--why", "-n", 6, pid], IMAGES / f"{name}-hakmem-why.png",
                         f"hakmem heap --why -n 6 --hide '{HIDDEN}' {pid}")
        printed([*heap, "--html", page, pid])
        screens.page(driver, page.as_uri(), IMAGES / f"{name}-hakmem.png", height=HEIGHTS[name])
        files = sorted(folder.glob(f"{name}.[0-9]*.gz"))
        printed([*hakmem_of("heap", "--timeline"), "--html", over_time, *files])
        screens.page(driver, over_time.as_uri(), IMAGES / f"{name}-hakmem-timeline.png", height=HEIGHTS[name])
        with served_profile(pid) as address, pprof_page(address, folder) as pages:
            screens.page(driver, f"{pages}/flamegraph?si=inuse_space", IMAGES / f"{name}-pprof.png",
                         height=PPROF_HEIGHTS[name])
            found["pprof"] = figures.of_pprof(printed(["go", "tool", "pprof", "-top", "-unit=B", "-nodecount=10000",
                                                       "-sample_index=inuse_space", address],
                                                      env={**os.environ, "PPROF_TMPDIR": str(folder)}))
    return found


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("frag", "leak", "redis"), help="only these programs")
    parser.add_argument("--tools", nargs="+", choices=("alone", "heaptrack", "memray", "jemalloc", "hakmem"),
                        help="only these tools; figures.json keeps the others'")
    chosen = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    WORK.mkdir(parents=True, exist_ok=True)
    install()
    lock = open(WORK / "lock", "w", encoding="utf-8")  # a second run would remove the first one's files
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = WORK / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    IMAGES.mkdir(parents=True, exist_ok=True)
    path = HERE / "figures.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    found["versions"] = versions()
    with screens.screen(WORK / "home") as env, screens.browser() as driver:
        runs: dict[str, Callable[[Program], dict[str, Any]]] = {
            "alone": alone, "heaptrack": lambda program: heaptrack(program, env, folder),
            "memray": lambda program: memray(program, driver, folder),
            "jemalloc": lambda program: jemalloc(program, env, driver, folder),
            "hakmem": lambda program: hakmem(program, env, driver, folder)}
        for name, program in programs.all_of(folder).items():
            for tool, run in runs.items():
                wanted = name in (chosen.only or [name]) and tool in (chosen.tools or [tool])
                if wanted and (tool != "memray" or name == "leak"):
                    print(f"{name}: {tool}", flush=True)
                    found.setdefault(name, {})[tool] = run(program)
                    # A function's two figures stand on one line.
                    path.write_text(re.sub(r"\[\s+(-?\d+),\s+(-?\d+)\s+\]", r"[\1, \2]",
                                           json.dumps(found, indent=1, sort_keys=True)) + "\n")
    PAGE.write_text(tables.put(PAGE.read_text(), found))


if __name__ == "__main__":
    main()
