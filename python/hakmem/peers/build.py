"""Building the peers: fetch with cargo, build by the recipe, check, write the manifest."""

import contextlib
import fcntl
import hashlib
import inspect
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

from hakmem import paths
from hakmem.peers import Peer, PeersError, digest_of, probe, read_manifest, write_manifest
from hakmem.peers.recipes import HERE, RECIPES, SHARED_STEPS
from hakmem.peers.steps import Steps

# The oldest cargo that reads every manifest of the lock file's crates.
OLDEST_CARGO = (1, 87)
CARGO_HINT = "install it with apt-get install cargo-web (Debian 12), or from https://rustup.rs"
DEBIAN_OF = {"cc": "gcc libc6-dev", "c++": "g++", "cmake": "cmake", "ninja": "ninja-build", "make": "make"}


# ---- Sources ----

def locked_crates():
    """{name: (version, checksum)} of bench/peers/Cargo.lock."""
    packages = tomllib.loads((HERE / "Cargo.lock").read_text())["package"]
    return {package["name"]: (package["version"], package.get("checksum")) for package in packages}


def describe_origin(recipe, crates):
    """Where a peer's sources come from; of a crate's version the part before '+', which alone counts."""
    if recipe.crate:
        return f"crates.io {recipe.crate} {crates[recipe.crate][0].partition('+')[0]}"
    return f"Debian {recipe.package}"


def require_cargo():
    if not shutil.which("cargo"):
        raise PeersError(f"cargo, which fetches the sources, is not there; {CARGO_HINT}")
    said = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"cargo (\d+)\.(\d+)", said.stdout)
    if not version:
        raise PeersError(f"cargo --version fails: {(said.stderr or said.stdout).strip()}")
    if tuple(map(int, version.groups())) < OLDEST_CARGO:
        raise PeersError(f"{said.stdout.strip()} is too old for the crates, which need "
                         f"{'.'.join(map(str, OLDEST_CARGO))}; {CARGO_HINT}")


def fetch_sources(folder):
    """Has cargo put the locked crates into folder/crates, checked against the lock file; nothing if they are there."""
    crates, stamp, wanted = folder / "crates", folder / "crates/locked", digest_of(HERE / "Cargo.lock")
    if stamp.exists() and stamp.read_text() == wanted:
        return crates
    require_cargo()
    shutil.rmtree(crates, ignore_errors=True)
    steps = Steps("cargo", folder / "fetch.log")
    steps.run("cargo", "vendor", "--locked", "--versioned-dirs", "--manifest-path", HERE / "Cargo.toml", crates)
    stamp.write_text(wanted)
    return crates


def describe_package(recipe):
    """(version, library) of a Debian package."""
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

def fingerprint(recipe, origin):
    """What the library is made of: when this is the same, it need not be made again."""
    parts = [origin]
    if recipe.build:
        variables = inspect.getclosurevars(recipe.build).nonlocals
        compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=False).stdout
        functions = (recipe.build, recipe.version, *SHARED_STEPS)
        parts += [*map(inspect.getsource, functions), repr(sorted(variables.items())), compiler]
    if recipe.recipe_files:
        for file in sorted((HERE / recipe.recipe_files).rglob("*")):
            if file.is_file():
                parts += [str(file.relative_to(HERE)), file.read_text()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def require_commands(recipe):
    missing = [command for command in recipe.needs if not shutil.which(command)]
    if missing:
        packages = " ".join(DEBIAN_OF[command] for command in missing)
        raise PeersError(f"{recipe.name} needs {', '.join(missing)}: apt-get install {packages}")


def check_fingerprint(recipe):
    """What the library was checked with, and what else the manifest says of it from the recipe."""
    parts = [probe.SOURCE.read_text(), inspect.getsource(probe), recipe.license, json.dumps(recipe.setting)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_library(recipe, steps, source, place):
    """Builds a crate's library into the peer's folder and returns its path."""
    work = place / "work"
    work.mkdir()
    library = place / f"lib{recipe.name}.so"
    shutil.copyfile(recipe.build(steps, source, work), library)
    shutil.rmtree(work)
    return library


def build_peer(recipe, folder, known, anew):
    """Returns the Peer and whether it had to be made. `known` is what the manifest says of it, or None."""
    place = folder / recipe.name
    stamp = place / "stamp"
    if recipe.crate:
        require_commands(recipe)
        crates = locked_crates()
        crate_version, checksum = crates[recipe.crate]
        source = fetch_sources(folder) / f"{recipe.crate}-{crate_version}"
        origin, version = describe_origin(recipe, crates), recipe.version(source)
        made_of = fingerprint(recipe, f"{origin} {checksum}")
    else:
        version, library = describe_package(recipe)
        origin = describe_origin(recipe, {})
        made_of = fingerprint(recipe, f"{origin} {version} {digest_of(library)}")
    keys = [made_of, check_fingerprint(recipe)]
    there = known is not None and known.library.exists() and digest_of(known.library) == known.sha256 and not anew
    stamped = stamp.read_text().split() if there and stamp.exists() else [None, None]
    if stamped == keys:
        return known, False

    if stamped[0] != made_of:
        shutil.rmtree(place, ignore_errors=True)
    steps = Steps(recipe.name, place / "build.log")
    if recipe.crate:
        library = known.library if stamped[0] == made_of else make_library(recipe, steps, source, place)
    serves = probe.check_library(steps, probe.compile_probe(steps, place), library, recipe.setting)
    stamp.write_text(" ".join(keys))
    return Peer(recipe.name, library, version, origin, digest_of(library), recipe.license, recipe.setting, serves), True


@contextlib.contextmanager
def locked(folder):
    """One build at a time in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_peers(recipes, anew, tell):
    """Builds what of the recipes is not built, one after the other, and tells of each. Returns the errors.

    `tell(recipe, peer, made, error)` gets the peer and whether it was made now, or the error.
    A peer that fails is left out of the manifest; the others are built all the same.
    """
    folder = paths.peers_folder()
    if re.search(r"[\s:]", str(folder)):
        raise PeersError(f"{folder}: LD_PRELOAD cannot name a path with a space or a colon; set HAKMEM_PEERS_DIR")
    errors = []
    with locked(folder):
        known = read_manifest_or_none(folder, anew)
        peers = {name: peer for name, peer in known.items() if name in RECIPES}
        for recipe in recipes:
            try:
                peer, made = build_peer(recipe, folder, peers.get(recipe.name), anew)
            except PeersError as error:
                peers.pop(recipe.name, None)
                errors.append(error)
                tell(recipe, None, False, error)
            else:
                peers[recipe.name] = peer
                tell(recipe, peer, made, None)
            write_manifest({name: peers[name] for name in RECIPES if name in peers}, folder)
    return errors


def read_manifest_or_none(folder, anew):
    """The manifest; with `anew` a damaged one counts as none."""
    try:
        return read_manifest(folder)
    except PeersError:
        if not anew:
            raise
        return {}
