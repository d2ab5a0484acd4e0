"""The other allocators: `hakmem peers build` builds them, and everything that measures them loads them here."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from hakmem import paths

FORMAT = "hakmem-peers 1"


class PeersError(click.ClickException):
    """Why a peer is not available, in words for the user."""


@dataclass(frozen=True)
class Peer:
    """An allocator as a library to preload.

    setting: environment variables that its authors ask for. serves: the functions that the check found in it."""

    name: str
    library: Path
    version: str
    source: str
    sha256: str
    license: str
    setting: dict[str, str] = field(default_factory=dict)
    serves: tuple[str, ...] = ()


def digest_of(path: str | Path) -> str:
    """Returns the SHA-256 of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def manifest_path(folder: Path | None = None) -> Path:
    """Returns the path of the manifest."""
    return Path(folder or paths.peers_folder()) / "peers.json"


def read_manifest(folder: Path | None = None) -> dict[str, Peer]:
    """Returns {name: Peer} as last written, even if libraries have changed since; {} if nothing was built."""
    path = manifest_path(folder)
    if not path.exists():
        return {}
    try:
        manifest = json.loads(path.read_text())
        if manifest["format"] != FORMAT:
            raise PeersError(f"{path} is of the format {manifest['format']!r}, not {FORMAT!r}; "
                             "run ./hakmem peers build --anew")
        return {name: Peer(name=name, **{**entry, "library": Path(entry["library"]), "serves": tuple(entry["serves"])})
                for name, entry in manifest["peers"].items()}
    except (ValueError, KeyError, TypeError) as error:
        raise PeersError(f"{path} is damaged ({error}); run ./hakmem peers build --anew") from error


def write_manifest(peers: dict[str, Peer], folder: Path | None = None) -> None:
    """Replaces the manifest in one step: a reader finds either the old one or the new one."""
    path = manifest_path(folder)
    entries: dict[str, dict[str, object]] = {}
    for name, peer in peers.items():
        entries[name] = {**asdict(peer), "library": str(peer.library)}
        del entries[name]["name"]
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({"format": FORMAT, "peers": entries}, indent=1) + "\n")
    draft.replace(path)


def load_peers(folder: Path | None = None) -> dict[str, Peer]:
    """Returns {name: Peer} of the built peers; raises PeersError if a library differs from the one that was checked."""
    peers = read_manifest(folder)
    for peer in peers.values():
        if not peer.library.exists():
            raise PeersError(f"{peer.name}: {peer.library} is not there; run ./hakmem peers build {peer.name}")
        if digest_of(peer.library) != peer.sha256:
            raise PeersError(f"{peer.name}: {peer.library} has changed since it was checked; "
                             f"run ./hakmem peers build {peer.name}")
    return peers
