"""What a run was made on and with: the machine, the commit and the libraries."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hakmem import paths


def find_in(path: str | Path, pattern: str) -> str | None:
    """Returns what the pattern's first group matches in a file; None if the file or the line is missing."""
    try:
        match = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return match[1].strip() if match else None


def describe_machine() -> dict[str, Any]:
    """Describes the machine by what stays the same, because a run is resumed only on the same machine."""
    return {
        "cpu": find_in("/proc/cpuinfo", r"^model name\s*: (.*)$") or platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": find_in("/proc/meminfo", r"^MemTotal:\s*(.*)$"),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "huge_pages": find_in("/sys/kernel/mm/transparent_hugepage/enabled", r"(.*)"),
    }


def memory_available_mib() -> int | None:
    """Returns the available memory; None if the kernel does not tell."""
    kib = find_in("/proc/meminfo", r"^MemAvailable:\s*(\d+) kB$")
    return int(kib) // 1024 if kib else None


def describe_commit() -> str | None:
    """Returns the checkout's commit, with -dirty appended if files differ from it; None outside a checkout."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True,
                              cwd=paths.CHECKOUT)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def digest(files: Iterable[str | Path]) -> str:
    """Returns the SHA-256 of the files' contents, joined."""
    sha = hashlib.sha256()
    for file in files:
        sha.update(Path(file).read_bytes())
    return sha.hexdigest()


def libc_file() -> str | None:
    """Returns the C library that this process has loaded. Every dynamically linked program loads the same."""
    return find_in("/proc/self/maps", r"(/\S*/libc\.so\.6|/\S*/libc-[\d.]+\.so)$")
