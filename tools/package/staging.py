"""Trees of files as they will be on a user's system, for packagers to pack."""

import gzip
import os
from pathlib import Path

from plan import Plan


def install(source: Path | str, file: Path, executable: bool = False) -> None:
    """Puts a file or a text into a staged tree. Compresses manual pages and changelogs, as packagers require."""
    file.parent.mkdir(parents=True, exist_ok=True)
    data = source.encode() if isinstance(source, str) else source.read_bytes()
    if file.suffix == ".gz":
        data = gzip.compress(data, 9, mtime=0)
    file.write_bytes(data)
    file.chmod(0o755 if executable else 0o644)


def link(file: Path, target: str) -> None:
    """Puts a symbolic link into a staged tree."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.symlink_to(target)


def set_times(plan: Plan, folder: Path) -> None:
    """Gives every file the plan's time and folders their mode."""
    for file in [folder, *folder.rglob("*")]:
        if file.is_dir() and not file.is_symlink():
            file.chmod(0o755)
        os.utime(file, (plan.epoch, plan.epoch), follow_symlinks=False)
