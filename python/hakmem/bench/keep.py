"""Where a run on a user's program keeps its state, so that a stopped run can be resumed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

JOURNAL = "journal.jsonl"


@dataclass(frozen=True)
class Keeping:
    """folder: holds the copies of libraries and the journal. why: why the run cannot be resumed, or "" if it can."""

    folder: Path
    why: str = ""

    @property
    def journal(self) -> Path:
        """The path of the journal."""
        return self.folder / JOURNAL


def state_folder() -> Path:
    """Returns the folder of state that outlives a run, as XDG defines it."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "hakmem"


def folder_of(kind: str, command: Iterable[str]) -> Path:
    """Returns the folder for this command in this working directory."""
    key = hashlib.sha256(json.dumps([list(command), os.getcwd()]).encode()).hexdigest()[:16]
    return state_folder() / kind / key


@contextmanager
def keep(kind: str, command: Iterable[str]) -> Iterator[Keeping]:
    """Yields the Keeping of a run. When the run ends, only the journal of an unfinished run stays in the folder."""
    try:
        folder = folder_of(kind, command)
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".lock", "a", encoding="utf-8")
    except (OSError, RuntimeError) as error:  # no home, or none that may be written to
        with temporary(kind, f"{getattr(error, 'filename', None) or 'the home folder'} cannot be written to") as kept:
            yield kept
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with temporary(kind, "another run of the same command is going on; the two disturb each other") as kept:
                yield kept
            return
        if any(character.isspace() or character == ":" for character in str(folder)):
            with temporary(kind, f"LD_PRELOAD cannot name what is in {folder}") as kept:
                yield kept
            return
        try:
            yield Keeping(folder)
        finally:
            if (folder / JOURNAL).exists():
                for child in folder.iterdir():
                    if child.is_dir():
                        shutil.rmtree(child, ignore_errors=True)
            else:
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):  # they hold the state of other runs
                    folder.parent.rmdir()
                    folder.parent.parent.rmdir()


@contextmanager
def temporary(kind: str, why: str) -> Iterator[Keeping]:
    """Yields a Keeping that lasts only for this run."""
    with tempfile.TemporaryDirectory(prefix=f"hakmem-{kind}-") as folder:
        yield Keeping(Path(folder), why)
