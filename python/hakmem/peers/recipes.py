"""How each peer is made: where its sources come from, how its version is read, how it is built as a library to preload.

Every build is the release build that upstream's defaults give, for any x86-64. docs/dev/peers.md tells what that means for
each of them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hakmem import paths
from hakmem.peers import PeersError
from hakmem.peers.steps import Steps

HERE = paths.CHECKOUT / "bench/peers"


Version = Callable[[Path], str]
Build = Callable[[Steps, Path, Path], Path]


@dataclass(frozen=True)
class Recipe:
    """A peer from a crate has `crate` and `build`, one from Debian `package` and `file`.

    `build(steps, source, work)` makes the library from the crate's folder in an empty folder and returns its path;
    `version(source)` reads the allocator's version. `needs` are the commands that the build calls, `recipe_files` a
    folder of bench/peers that belongs to it.
    """

    name: str
    license: str
    crate: str = ""
    build: Build | None = None
    version: Version | None = None
    needs: tuple[str, ...] = ()
    recipe_files: str | None = None
    package: str = ""
    file: str = ""
    setting: dict[str, str] = field(default_factory=dict)

    def made_by(self) -> tuple[Build, Version]:
        """Returns the functions of a recipe from a crate."""
        if self.build is None or self.version is None:
            raise PeersError(f"{self.name} is not made from a crate")
        return self.build, self.version


def find_in(path: str | Path, pattern: str, what: str) -> re.Match[str]:
    """Returns the match of the pattern in a file of the sources. If there is none, raises PeersError: the file does not
    tell `what`."""
    match = re.search(pattern, Path(path).read_text(errors="replace"), re.MULTILINE)
    if not match:
        raise PeersError(f"{path} does not tell {what}")
    return match


def cmake(steps: Steps, source: Path, work: Path, *options: str, target: str | None = None) -> None:
    """Configures and builds a release by CMake, in the folder `work`."""
    steps.run("cmake", "-S", source, "-B", work, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *options)
    steps.run("cmake", "--build", work, "--parallel", "2", *(["--target", target] if target else []))


def copy_sources(source: Path, destination: Path, *more: Path) -> Path:
    """Copies the sources, and then the folders `more` over them, to a folder that a build may write to. Returns it."""
    for folder in (source, *more):
        shutil.copytree(folder, destination, dirs_exist_ok=True)
    return destination


# ---- mimalloc: the crate has two, in folders of its own ----

MIMALLOC_FOLDERS = {2: "c_src/mimalloc", 3: "c_src/mimalloc3"}


def mimalloc_version(major: int) -> Version:
    def read(source: Path) -> str:
        header = source / f"{MIMALLOC_FOLDERS[major]}/include/mimalloc.h"
        number = find_in(header, r"#define\s+MI_MALLOC_VERSION\s+(\d)(\d\d)(\d\d)\b", "its version")
        return ".".join(str(int(part)) for part in number.groups())
    return read


def build_mimalloc(major: int, *options: str, library: str = "libmimalloc.so") -> Build:
    def build(steps: Steps, source: Path, work: Path) -> Path:
        cmake(steps, source / MIMALLOC_FOLDERS[major], work / "build", "-DMI_BUILD_STATIC=OFF",
              "-DMI_BUILD_OBJECT=OFF", "-DMI_BUILD_TESTS=OFF",
              *options)
        return work / "build" / library
    return build


# ---- snmalloc: the crate is upstream's own and carries its version ----

def snmalloc_version(source: Path) -> str:
    return find_in(source / "Cargo.toml", r'^version = "([^"]+)"', "its version")[1]


def build_snmalloc(target: str) -> Build:
    def build(steps: Steps, source: Path, work: Path) -> Path:
        cmake(steps, source / "upstream", work, "-DSNMALLOC_BUILD_TESTING=OFF", target=target)
        return work / f"lib{target}.so"
    return build


# ---- rpmalloc: no version in the source but the head of its change log ----

def rpmalloc_version(source: Path) -> str:
    return find_in(source / "rpmalloc/CHANGELOG", r"\A(\d+\.\d+\.\d+)\s", "its version")[1]


def build_rpmalloc(steps: Steps, source: Path, work: Path) -> Path:
    cmake(steps, HERE / "rpmalloc", work, f"-DPEER_SOURCE={source / 'rpmalloc/rpmalloc'}")
    return work / "librpmalloc.so"


# ---- jemalloc: the crate's own version tells the tag and the commit that its sources are of ----

def jemalloc_full_version(source: Path) -> str:
    pattern = r'^version = "[^"+]+\+(\d+\.\d+\.\d+-\d+-g[0-9a-f]+)"'
    return find_in(source / "Cargo.toml", pattern, "jemalloc's version")[1]


def jemalloc_version(source: Path) -> str:
    return jemalloc_full_version(source).split("-")[0]


def build_jemalloc(steps: Steps, source: Path, work: Path) -> Path:
    sources = copy_sources(source / "jemalloc", work, source / "configure")
    steps.run("sh", "./configure", f"--with-version={jemalloc_full_version(source)}", "--disable-doc", cwd=sources)
    steps.run("make", "-j2", "build_lib_shared", cwd=sources)
    return sources / "lib/libjemalloc.so.2"


# ---- Google's TCMalloc: it has no versions; the crate tells the day that it took the sources ----

def tcmalloc_version(source: Path) -> str:
    version = find_in(source / "Cargo.toml", r'^version = "([^"]+)"', "its version")[1]
    return find_in(source / "CHANGELOG.md", rf"^## \[{re.escape(version)}\].* - (\d{{4}}-\d\d-\d\d)", "its date")[1]


def build_tcmalloc(steps: Steps, source: Path, work: Path) -> Path:
    cmake(steps, HERE / "tcmalloc", work, f"-DPEER_SOURCE={source / 'c_src'}")
    return work / "libtcmalloc.so"


# ---- hardened_malloc: the crate is released under upstream's version ----

def hardened_version(source: Path) -> str:
    return find_in(source / "Cargo.toml", r'^version = "([\d.]+)"', "its version")[1]


def build_hardened(steps: Steps, source: Path, work: Path) -> Path:
    cmake(steps, HERE / "hardened", work, f"-DPEER_SOURCE={source / 'vendor/hardened-malloc'}")
    return work / "libhardened_malloc.so"


# Functions that several builds call.
SHARED_STEPS = (cmake, copy_sources)

CMAKE = ("cc", "cmake", "ninja")
CMAKE_CXX = ("c++", *CMAKE)

RECIPES = {recipe.name: recipe for recipe in (
    Recipe("mimalloc3", "MIT", "libmimalloc-sys2", build_mimalloc(3), mimalloc_version(3), CMAKE),
    Recipe("mimalloc2", "MIT", "libmimalloc-sys2", build_mimalloc(2), mimalloc_version(2), CMAKE),
    Recipe("snmalloc", "MIT", "snmalloc-sys", build_snmalloc("snmallocshim"), snmalloc_version, CMAKE_CXX),
    Recipe("rpmalloc", "Unlicense OR MIT", "rpmalloc-sys", build_rpmalloc, rpmalloc_version, CMAKE, "rpmalloc"),
    Recipe("jemalloc", "BSD-2-Clause", "tikv-jemalloc-sys", build_jemalloc, jemalloc_version, ("cc", "c++", "make")),
    # Its per-CPU caches take the thread's rseq registration, which glibc would hold; upstream says to set this.
    Recipe("tcmalloc", "Apache-2.0", "libtcmalloc-sys", build_tcmalloc, tcmalloc_version, CMAKE_CXX, "tcmalloc",
           setting={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}),
    Recipe("gperftools", "BSD-3-Clause", package="libtcmalloc-minimal4", file="libtcmalloc_minimal.so.4"),
    Recipe("tbb", "Apache-2.0", package="libtbbmalloc2", file="libtbbmalloc_proxy.so.2"),
    Recipe("hardened", "MIT", "hardened-malloc-sys", build_hardened, hardened_version, CMAKE_CXX, "hardened"),
    # The hardened builds of others.
    Recipe("mimalloc-secure", "MIT", "libmimalloc-sys2",
           build_mimalloc(3, "-DMI_SECURE=ON", library="libmimalloc-secure.so"), mimalloc_version(3), CMAKE),
    Recipe("snmalloc-checks", "MIT", "snmalloc-sys", build_snmalloc("snmallocshim-checks"), snmalloc_version,
           CMAKE_CXX),
    Recipe("scudo", "Apache-2.0 WITH LLVM-exception", package="libclang-rt-14-dev",
           file="libclang_rt.scudo_standalone-x86_64.so"),
)}
