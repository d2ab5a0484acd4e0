"""Artifacts that tests share: made once for the same inputs, and kept for the next run and for other checkouts.

A group's key is a digest of all that its artifacts are made of: sources, packers, versions of tools, the time that the
artifacts have. Another key is another entry, so nothing is ever taken for other inputs. An entry has a digest of its
own contents, too; one that differs is made again. Entries are folders in ~/.cache/hakmem/packages (tests/kept.py),
written under another name and renamed when they are whole. The newest few of a group stay.
"""

import dataclasses
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import container
import kept
import libraries
import system
import wheels
from plan import Plan
from targets import TARGETS

KEPT = 3  # entries of a group


@dataclasses.dataclass(frozen=True)
class Group:
    """Artifacts that one maker makes. sources: files and folders of the checkout; tools: commands that tell versions;
    checkout: the name of the folder that has the sources; ccache: whether objects may come from there."""

    make: Callable[[Plan], None]
    sources: tuple[str, ...]
    tools: tuple[str, ...]
    needs: tuple[str, ...] = ()
    checkout: str = "checkout"
    ccache: bool = True


def compile_again(plan: Plan) -> None:
    """One of the libraries."""
    folder = plan.work / "again"
    settings = libraries.settings_of(plan, TARGETS[0], folder)
    shutil.copy(libraries.compile_in(plan, folder, settings, ("hakmem",)) / "lib/libhakmem.so", plan.dist)


def ask_lintian(plan: Plan) -> None:
    """What it says of the packages of this processor."""
    said = plan.run("lintian", "--allow-root", "--fail-on", "error,warning", *sorted(plan.dist.glob("*_amd64.deb")))
    (plan.dist / "lintian.txt").write_text(said)


GROUPS = {
    "libraries": Group(libraries.make, ("CMakeLists.txt", "LICENSE", "cmake", "include", "packaging/libraries", "src",
                                        "tools/package", "build/aarch64-root/lib/aarch64-linux-musl/libc.so"),
                       ("gcc --version", "aarch64-linux-gnu-gcc --version", "ld --version",
                        "aarch64-linux-gnu-ld --version", "cmake --version",
                        "dpkg-query -W libc6-dev libc6-dev-arm64-cross musl-dev linux-libc-dev")),
    "wheels": Group(wheels.make, ("bench/measure", "python", "tools/requirements", "tools/run"),
                    (), ("libraries",)),
    "system": Group(system.make, ("CHANGELOG.md", "docs/options.md", "packaging"),
                    ("dpkg-deb --version", "rpmbuild --version", "strip --version",
                     "dpkg-query -W liblzma5 lowdown"), ("libraries", "wheels")),
    # Two checks, whose outcome is the same as long as the artifacts are.
    "again": Group(compile_again, (), (), ("libraries",), checkout="with a blank", ccache=False),
    "lintian": Group(ask_lintian, (), ("lintian --version",), ("system",)),
    "container": Group(container.make, ("packaging/container",), ("buildah --version", "strip --version"),
                       ("libraries",)),
}


def files(root: Path, name: str) -> Iterator[Path]:
    """The files of a source: a file, all in a folder, or all whose names begin with it."""
    for path in sorted((root / name).parent.glob(f"{Path(name).name}*")):
        if path.is_dir() and path.name == Path(name).name:
            yield from sorted(each for each in path.rglob("*") if each.is_file()
                              and not re.search(r"/__pycache__/|\.egg-info/", str(each)))
        elif path.is_file():
            yield path


def sources_of(name: str) -> set[str]:
    """The sources of a group, and of those that it needs."""
    return set(GROUPS[name].sources).union(*map(sources_of, GROUPS[name].needs))


@functools.cache
def key_of(root: Path, name: str) -> str:
    group = GROUPS[name]
    needs = [key_of(root, need) for need in group.needs]
    digest = hashlib.sha256(f"{name} {sys.version} {FixedPlan.epoch} {needs}".encode() + Path(__file__).read_bytes())
    for tool in group.tools:
        digest.update(subprocess.run(tool.split(), capture_output=True, check=False).stdout)
    for source in group.sources:
        for path in files(root, source):
            executable = os.access(path, os.X_OK)
            data = path.read_bytes()
            digest.update(f"\0{path.relative_to(root)}\0{executable}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:32]


def contents(place: Path) -> str:
    """A digest of the names, modes, links and bytes in a folder."""
    digest = hashlib.sha256()
    for path in sorted(place.rglob("*")):
        what = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        digest.update(f"\0{path.relative_to(place)}\0{path.lstat().st_mode}\0{len(what)}\0".encode() + what)
    return digest.hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Tests that run at once need the same artifacts: the first makes them, the others wait."""
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class FixedPlan(Plan):
    """A plan whose artifacts have a time of their own: by the last commit's, no entry would serve two commits."""

    epoch = 1767225600


class CompilingPlan(FixedPlan):
    """Objects come from ccache, if it is there. The group `again` has one that does not."""

    def environment(self) -> dict[str, str]:
        variables = super().environment()
        # It makes paths relative, and -ffile-prefix-map would not know them.
        variables.pop("CCACHE_BASEDIR", None)
        return variables | ({"CMAKE_C_COMPILER_LAUNCHER": "ccache"} if shutil.which("ccache") else {})


def plan_in(root: Path, base: Path, kind: type[Plan] = FixedPlan) -> Plan:
    """A plan with folders in BASE."""
    plan = kind(root, base / "work", base / "dist")
    for path in plan.work, plan.dist:
        path.mkdir(parents=True, exist_ok=True)
    return plan


def get(root: Path, name: str, base: Path) -> None:
    """Fills base/work and base/dist with the group's artifacts."""
    folder = kept.folder("packages")
    entry = folder / f"{name}-{key_of(root, name)}"
    with locked(folder / f"{name}.lock"):
        if not take(entry, base):
            store(entry, make(root, name, folder / f".making-{name}"))
            assert take(entry, base), f"{entry} is not what was written"


def take(entry: Path, base: Path) -> bool:
    """Copies an entry's files, if it is whole."""
    if not (entry / "sum").is_file():
        return False
    if (entry / "sum").read_text() != contents(entry / "made"):
        shutil.rmtree(entry)
        return False
    os.utime(entry)
    shutil.copytree(entry / "made", base, symlinks=True, dirs_exist_ok=True)
    return True


def make(root: Path, name: str, own: Path) -> Path:
    """Makes a group, in the same folder for each checkout, of copies of its sources: ccache knows the paths, and a
    source that the key leaves out is missing. Returns a folder with what is new."""
    shutil.rmtree(own, ignore_errors=True)
    copy = own / GROUPS[name].checkout
    for source in sources_of(name):
        for path in files(root, source) if not source.startswith("build/") else ():
            (copy / path.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy / path.relative_to(root))
    (copy / "build").symlink_to(root / "build")
    plan = plan_in(copy, own, CompilingPlan if GROUPS[name].ccache else FixedPlan)
    for need in GROUPS[name].needs:
        get(root, need, own)
    before = set(plan.work.iterdir()) | set(plan.dist.iterdir())
    GROUPS[name].make(plan)
    more = {path for path in plan.work.iterdir() if path.name not in ("lib", "wheel")}
    for path in before | more | {plan.root}:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return own


def store(entry: Path, made: Path) -> None:
    """Writes an entry, and removes the oldest of its group. The caller has the group's lock."""
    group = entry.name.rpartition("-")[0]
    part = entry.parent / f".part-{group}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    shutil.move(made, part / "made")
    (part / "sum").write_text(contents(part / "made"))
    shutil.rmtree(entry, ignore_errors=True)
    part.rename(entry)
    entries = sorted(entry.parent.glob(f"{group}-*"), key=lambda path: path.stat().st_mtime)
    for old in entries[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
