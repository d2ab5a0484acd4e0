"""Builds the peers: fetches with cargo, builds by the recipe, checks, writes the manifest."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import inspect
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Optional

from hakmem import paths
from hakmem.compat import read_toml
from hakmem.peers import Peer, PeersError, digest_of, probe, read_manifest, write_manifest
from hakmem.peers.progress import Display
from hakmem.peers.recipes import HERE, RECIPES, SHARED_STEPS, Recipe
from hakmem.peers.steps import Steps

# The oldest cargo that can read the manifests of all crates in the lock file.
OLDEST_CARGO = (1, 87)
CARGO_HINT = "install it with apt-get install cargo-web (Debian 12), or from https://rustup.rs"
DEBIAN_OF = {"cc": "gcc libc6-dev", "c++": "g++", "cmake": "cmake", "ninja": "ninja-build", "make": "make"}


# {name: (version, checksum)}
Crates = dict[str, tuple[str, Optional[str]]]


# ---- Sources ----

def locked_crates() -> Crates:
    """Returns {name: (version, checksum)} of bench/peers/Cargo.lock."""
    packages = read_toml(HERE / "Cargo.lock")["package"]
    return {package["name"]: (package["version"], package.get("checksum")) for package in packages}


def describe_origin(recipe: Recipe, crates: Crates) -> str:
    """Returns where a peer's sources come from. A crate's version ends at '+': cargo ignores what is behind it."""
    if recipe.crate:
        return f"crates.io {recipe.crate} {crates[recipe.crate][0].partition('+')[0]}"
    return f"Debian {recipe.package}"


def require_cargo() -> None:
    """Raises PeersError without a new enough cargo."""
    if not shutil.which("cargo"):
        raise PeersError(f"cargo, which fetches the sources, is not there; {CARGO_HINT}")
    said = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"cargo (\d+)\.(\d+)", said.stdout)
    if not version:
        raise PeersError(f"cargo --version fails: {(said.stderr or said.stdout).strip()}")
    if tuple(map(int, version.groups())) < OLDEST_CARGO:
        raise PeersError(f"{said.stdout.strip()} is too old for the crates, which need "
                         f"{'.'.join(map(str, OLDEST_CARGO))}; {CARGO_HINT}")


def are_fetched(folder: Path) -> bool:
    """Returns whether the locked crates are in folder/crates."""
    stamp = folder / "crates/locked"
    return stamp.exists() and stamp.read_text() == digest_of(HERE / "Cargo.lock")


def fetch_sources(folder: Path, progress: Display | None = None) -> Path:
    """Has cargo put the locked crates into folder/crates, checked against the lock file. Does nothing if they are
    there."""
    crates, stamp, wanted = folder / "crates", folder / "crates/locked", digest_of(HERE / "Cargo.lock")
    if are_fetched(folder):
        return crates
    require_cargo()
    progress = progress or Display()
    shutil.rmtree(crates, ignore_errors=True)
    progress.begin("sources", folder / "fetch.log")
    try:
        steps = Steps("cargo", folder / "fetch.log", progress)
        fetch_with(steps, crates)
    finally:
        progress.end()
    stamp.write_text(wanted)
    return crates


def fetch_with(steps: Steps, crates: Path) -> None:
    """Has cargo fetch the crates."""
    steps.run("cargo", "vendor", "--locked", "--versioned-dirs", "--manifest-path", HERE / "Cargo.toml", crates)


def version_of(recipe: Recipe, folder: Path) -> str:
    """Returns a peer's version, once its sources or its package are there."""
    if not recipe.crate:
        return describe_package(recipe)[0]
    _, version = recipe.made_by()
    return version(folder / "crates" / f"{recipe.crate}-{locked_crates()[recipe.crate][0]}")


def packages_for(recipes: Sequence[Recipe], folder: Path) -> list[str]:
    """Returns the Debian packages that are missing to build these peers, each once."""
    wanted: list[str] = []
    for recipe in recipes:
        wanted += [package for command in recipe.needs if not shutil.which(command)
                   for package in DEBIAN_OF[command].split()]
        if recipe.package:
            try:
                describe_package(recipe)
            except PeersError:
                wanted.append(recipe.package)
        elif not are_fetched(folder) and not shutil.which("cargo"):
            wanted.append("cargo-web")
    return list(dict.fromkeys(wanted))


def describe_package(recipe: Recipe) -> tuple[str, Path]:
    """Returns (version, library) of a Debian package."""
    said = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", recipe.package],
                          capture_output=True, text=True, check=False) if shutil.which("dpkg-query") else None
    if said is None:
        raise PeersError(f"{recipe.name} is Debian's {recipe.package}, and this is not Debian")
    status, _, version = said.stdout.partition(" ")
    if said.returncode != 0 or status != "installed":
        raise PeersError(f"{recipe.name} is Debian's {recipe.package}: apt-get install {recipe.package}")
    files = subprocess.run(["dpkg-query", "-L", recipe.package], capture_output=True, text=True, check=True).stdout
    for line in files.splitlines():
        if Path(line).name == recipe.file:
            return version, Path(line)
    raise PeersError(f"{recipe.name}: {recipe.package} {version} has no {recipe.file}")


# ---- Building ----

def fingerprint(recipe: Recipe, origin: str) -> str:
    """Returns what the library is made of. While this stays the same, it need not be made again."""
    parts = [origin]
    if recipe.build:
        build, version = recipe.made_by()
        variables = inspect.getclosurevars(build).nonlocals
        compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=False).stdout
        sources = [inspect.getsource(function) for function in (build, version, *SHARED_STEPS)]
        parts += [*sources, repr(sorted(variables.items())), compiler]
    if recipe.recipe_files:
        for file in sorted((HERE / recipe.recipe_files).rglob("*")):
            if file.is_file():
                parts += [str(file.relative_to(HERE)), file.read_text()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def require_commands(recipe: Recipe) -> None:
    """Raises PeersError if a command of the recipe is missing."""
    missing = [command for command in recipe.needs if not shutil.which(command)]
    if missing:
        packages = " ".join(DEBIAN_OF[command] for command in missing)
        raise PeersError(f"{recipe.name} needs {', '.join(missing)}: apt-get install {packages}")


def check_fingerprint(recipe: Recipe) -> str:
    """Returns a digest of the library's check and of what the recipe adds to the manifest."""
    parts = [probe.SOURCE.read_text(), inspect.getsource(probe), recipe.license, json.dumps(recipe.setting)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_library(recipe: Recipe, steps: Steps, source: Path, place: Path) -> Path:
    """Builds a crate's library into the peer's folder and returns its path."""
    work = place / "work"
    work.mkdir()
    library = place / f"lib{recipe.name}.so"
    build, _ = recipe.made_by()
    shutil.copyfile(build(steps, source, work), library)
    shutil.rmtree(work)
    return library


def build_peer(recipe: Recipe, folder: Path, known: Peer | None, anew: bool,
               progress: Display | None = None) -> tuple[Peer, bool]:
    """Returns the Peer and whether it had to be made. known: its entry of the manifest, or None."""
    place = folder / recipe.name
    stamp = place / "stamp"
    if recipe.crate:
        require_commands(recipe)
        crates = locked_crates()
        crate_version, checksum = crates[recipe.crate]
        source = fetch_sources(folder) / f"{recipe.crate}-{crate_version}"
        origin, version = describe_origin(recipe, crates), recipe.made_by()[1](source)
        made_of = fingerprint(recipe, f"{origin} {checksum}")
    else:
        version, library = describe_package(recipe)
        origin = describe_origin(recipe, {})
        made_of = fingerprint(recipe, f"{origin} {version} {digest_of(library)}")
    keys = [made_of, check_fingerprint(recipe)]
    stamped = ["", ""]
    if known and known.library.exists() and digest_of(known.library) == known.sha256 and not anew and stamp.exists():
        stamped = stamp.read_text().split()
        if stamped == keys:
            return known, False
    if stamped[0] != made_of:
        shutil.rmtree(place, ignore_errors=True)
    progress = progress or Display()
    progress.begin(recipe.name, place / "build.log")
    try:
        steps = Steps(recipe.name, place / "build.log", progress)
        if recipe.crate:
            # The library of a recipe whose check alone has changed is taken as it is.
            library = known.library if known and stamped[0] == made_of else make_library(recipe, steps, source, place)
        return make_peer(recipe, steps, place, library, version, origin, keys), True
    finally:
        progress.end()


def make_peer(recipe: Recipe, steps: Steps, place: Path, library: Path, version: str, origin: str,
              keys: Sequence[str]) -> Peer:
    """Checks a peer's library and returns the Peer."""
    serves = probe.check_library(steps, probe.compile_probe(steps, place), library, recipe.setting)
    (place / "stamp").write_text(" ".join(keys))
    return Peer(recipe.name, library, version, origin, digest_of(library), recipe.license, recipe.setting, serves)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks the folder, so that only one build runs in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def prepare(recipes: Sequence[Recipe], folder: Path, progress: Display | None,
            announce: Callable[[Recipe, str | None], object]) -> None:
    """Fetches the sources and announces each peer's version. Ignores errors: the build meets them again, and
    reports them."""
    try:
        if any(recipe.crate for recipe in recipes):
            fetch_sources(folder, progress)
    except PeersError:
        pass
    for recipe in recipes:
        try:
            announce(recipe, version_of(recipe, folder))
        except (PeersError, OSError):
            announce(recipe, None)


def build_peers(recipes: Sequence[Recipe], anew: bool,
                tell: Callable[[Recipe, Peer | None, bool, PeersError | None], object],
                progress: Display | None = None,
                announce: Callable[[Recipe, str | None], object] | None = None) -> list[PeersError]:
    """Builds those recipes that are not built, one after the other. Returns the errors.

    tell(recipe, peer, made, error): called with the peer and whether it was made now, or with the error.
    announce(recipe, version): called before any is built; version is None if unknown. progress: is told of the steps.
    A peer that fails is left out of the manifest. The others are built nevertheless."""
    folder = paths.peers_folder()
    if re.search(r"[\s:]", str(folder)):
        raise PeersError(f"{folder}: LD_PRELOAD cannot name a path with a space or a colon; set HAKMEM_PEERS_DIR")
    errors = []
    with locked(folder):
        known = read_manifest_or_none(folder, anew)
        peers = {name: peer for name, peer in known.items() if name in RECIPES}
        if announce:
            prepare(recipes, folder, progress, announce)
        for recipe in recipes:
            try:
                peer, made = build_peer(recipe, folder, peers.get(recipe.name), anew, progress)
            except PeersError as error:
                peers.pop(recipe.name, None)
                errors.append(error)
                tell(recipe, None, False, error)
            else:
                peers[recipe.name] = peer
                tell(recipe, peer, made, None)
            write_manifest({name: peers[name] for name in RECIPES if name in peers}, folder)
    return errors


def read_manifest_or_none(folder: Path, anew: bool) -> dict[str, Peer]:
    """Returns the manifest. With `anew` a damaged one counts as empty."""
    try:
        return read_manifest(folder)
    except PeersError:
        if not anew:
            raise
        return {}
