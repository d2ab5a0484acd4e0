"""Writes archives whose bytes depend only on names, modes and contents."""

import gzip
import tarfile
from pathlib import Path
from typing import IO


def write_tar_gz(file: Path, folder: Path, name: str, epoch: int) -> None:
    """Packs FOLDER into FILE, as the folder NAME: sorted by name, owned by root, all with the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # The gzip header has no name, and the same time.
    with open(file, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, epoch) as packed:
        write_members(packed, {name: folder}, epoch)


def write_tar(file: Path, folder: Path, epoch: int) -> None:
    """Packs the contents of FOLDER the same way, without compression and without a folder around them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "wb") as raw:
        write_members(raw, {path.name: path for path in sorted(folder.iterdir())}, epoch)


def write_members(raw: IO[bytes] | gzip.GzipFile, members: dict[str, Path], epoch: int) -> None:
    """Writes the members of an archive."""
    def entry(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = epoch
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    # tarfile walks folders in the order of names.
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in members.items():
            tar.add(path, name, filter=entry)
