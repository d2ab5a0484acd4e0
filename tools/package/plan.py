"""What every maker of an artifact gets: where the sources are, where results go, the version and the time."""

import dataclasses
import functools
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any


class Failed(Exception):
    """An artifact could not be made. The text is for the user."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The folders, the version and the time of a run of ./hakmem package."""

    root: Path  # the checkout
    work: Path  # what makers leave for each other and for the next run: build/package
    dist: Path  # what users get
    cached: bool = False  # compile through ccache: for tests, which make the same again and again

    @functools.cached_property
    def version(self) -> str:
        """HAKMEM's version, from the public header, its only home."""
        header = (self.root / "include/hakmem/hakmem.h").read_text()
        found: list[str] = re.findall(r'HAK_VERSION_STRING "([0-9.]+)"', header)
        return found[0]

    @functools.cached_property
    def epoch(self) -> int:
        """The time of all artifacts, in seconds since 1970. It is the last commit's, so that two builds of one
        commit give the same bytes. SOURCE_DATE_EPOCH overrides it. Sources without git get 1980, the earliest time
        that a zip archive can hold."""
        told = os.environ.get("SOURCE_DATE_EPOCH", "")
        if told.isdigit():
            return int(told)
        done = subprocess.run(
            ["git", "-c", f"safe.directory={self.root}", "-C", self.root, "log", "-1", "--format=%ct"],
            capture_output=True, text=True, check=False)
        return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else 315532800

    def environment(self) -> dict[str, str]:
        """Returns the environment for programs that makers run. Nothing in it depends on the machine or the time."""
        return os.environ | {"SOURCE_DATE_EPOCH": str(self.epoch), "LC_ALL": "C.UTF-8", "TZ": "UTC"} | self.cache()

    def cache(self) -> dict[str, str]:
        """Returns the variables for ccache. An object contains names that -ffile-prefix-map made, and ccache does not
        look at that option. So only builds with the same folders share objects. Without the preprocessor, an object
        that is not there takes no longer than without ccache."""
        if not self.cached:
            return {}
        folders = hashlib.sha256(f"{self.root}\0{self.work}".encode()).hexdigest()
        return {"CCACHE_NAMESPACE": f"hakmem-package-{folders}", "CCACHE_DEPEND": "1", "CCACHE_BASEDIR": ""}

    def compiler_settings(self) -> dict[str, str]:
        """Returns CMake's settings that make a build go through ccache, if it shall."""
        return {"CMAKE_C_COMPILER_LAUNCHER": "ccache"} if self.cached and shutil.which("ccache") else {}

    def run(self, *words: object, **options: Any) -> str:
        """Runs a program and returns its standard output. Shows what it printed only if it fails."""
        texts = [str(word) for word in words]
        try:
            done = subprocess.run(texts, env=options.pop("env", self.environment()), capture_output=True, text=True,
                                  check=False, umask=0o022, **options)
        except FileNotFoundError:
            raise Failed(f"{texts[0]} is not installed") from None
        if done.returncode != 0:
            raise Failed(f"failed ({done.returncode}): {' '.join(texts)}\n{done.stdout}{done.stderr}")
        return str(done.stdout)
