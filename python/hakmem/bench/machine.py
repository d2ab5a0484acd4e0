"""What a run was made on, and with: the machine, the commit, the libraries."""

import hashlib
import os
import platform
import re
import subprocess
from pathlib import Path

from hakmem import paths


def find_in(path, pattern):
    """What the pattern's first group matches in a file; None where there is no such file or line."""
    try:
        match = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return match[1].strip() if match else None


def describe_machine():
    """The machine, without what changes from minute to minute; a run is resumed on the same one only."""
    return {
        "cpu": find_in("/proc/cpuinfo", r"^model name\s*: (.*)$") or platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": find_in("/proc/meminfo", r"^MemTotal:\s*(.*)$"),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "huge_pages": find_in("/sys/kernel/mm/transparent_hugepage/enabled", r"(.*)"),
    }


def memory_available_mib():
    kib = find_in("/proc/meminfo", r"^MemAvailable:\s*(\d+) kB$")
    return int(kib) // 1024 if kib else None


def describe_commit():
    """The checkout's commit, with -dirty behind it when files differ from it; None outside a checkout."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True,
                              cwd=paths.CHECKOUT)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def digest(files):
    """The SHA-256 of the files' contents, one behind the other."""
    sha = hashlib.sha256()
    for file in files:
        sha.update(Path(file).read_bytes())
    return sha.hexdigest()


def libc_file():
    """The C library that this process has loaded, as every dynamically linked program will."""
    return find_in("/proc/self/maps", r"(/\S*/libc\.so\.6|/\S*/libc-[\d.]+\.so)$")
