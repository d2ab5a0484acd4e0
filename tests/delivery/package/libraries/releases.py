#!/usr/bin/env python3
"""Runs programs on the glibc of Debian releases with the released libraries, and prints a table. By hand: it downloads.

    releases.py WORK [SUITE...]     WORK/lib/TARGET are the libraries: build/package after ./hakmem package

The programs are linked to bullseye's glibc, 2.31, which has libpthread.so.0 and libdl.so.2 apart from libc.so.6. Later
releases run such programs. Each release's dynamic linker runs them, with only its own libraries; aarch64 under qemu.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LIBRARIES = {"single": (), "late": ("libdl.so.2",), "use": ("libpthread.so.0", "libdl.so.2")}
OLDEST = "bullseye"


def fetch(suite: str, architecture: str, packages: list[str], folder: Path) -> Path:
    """The packages' files, by apt with its own state."""
    state, root = folder / "state", folder / "root"
    for name in "lists/partial", "cache/archives/partial", "parts", "packages":
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    signed = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
    (state / "sources.list").write_text(f"deb [{signed}] http://deb.debian.org/debian {suite} main\n")
    settings = {
        "APT::Architecture": architecture, "APT::Architectures::": architecture, "Dir::State": state,
        "Dir::State::lists": state / "lists", "Dir::Cache": state / "cache", "Dir::State::status": state / "status",
        "Dir::Etc::sourcelist": state / "sources.list", "Dir::Etc::sourceparts": state / "parts",
        "APT::Sandbox::User": "root", "Acquire::Retries": 3
    }
    apt = ["apt-get", "-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True, capture_output=True)
    subprocess.run([*apt, "download", *packages], cwd=state / "packages", check=True, capture_output=True)
    for package in (state / "packages").iterdir():
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    return root


def find(root: Path, name: str) -> Path:
    """A library of a release. Its /lib may be a link to /usr/lib."""
    return next(path for path in sorted(root.glob(f"**/{name}")) if "gconv" not in str(path))


def build(processor: str, root: Path, folder: Path) -> dict[str, Path]:
    programs = {}
    for name, libraries in LIBRARIES.items():
        programs[name] = folder / name
        files = [find(root, library) for library in (*libraries, "libc.so.6", "ld-linux-*.so.*")]
        subprocess.run([f"{processor}-linux-gnu-gcc", "-O1", "-fno-builtin", HERE / f"{name}.c", "-o", programs[name],
                        "-nodefaultlibs", *files, "-lgcc"], check=True)
    return programs


def main() -> None:
    work, suites = Path(sys.argv[1]).resolve(), sys.argv[2:] or [OLDEST, "bookworm", "trixie", "sid"]
    failed = False
    for processor, architecture in ARCHITECTURES.items():
        library = (work / f"lib/{processor}-linux-gnu/lib/libhakmem.so").resolve()
        with tempfile.TemporaryDirectory(prefix="hakmem-releases-") as text:
            folder = Path(text)
            roots = {suite: fetch(suite, architecture, ["libc6"], folder / suite) for suite in {OLDEST, *suites}}
            programs = build(processor, roots[OLDEST], folder)
            for suite in suites:
                loader = find(roots[suite], "ld-linux-*.so.*").resolve()
                libraries = find(roots[suite], "libc.so.6").parent
                emulator = ["qemu-aarch64-static"] if processor == "aarch64" else []
                version = re.search(rb"stable release version ([0-9.]+[0-9])",
                                    find(roots[suite], "libc.so.6").read_bytes())
                for name, program in programs.items():
                    done = subprocess.run(
                        [*emulator, loader, "--library-path", libraries, "--preload", library, program],
                        env={"HAKMEM_SHOW_STATS": "1"}, capture_output=True, text=True, check=False)
                    heaps = re.search(r"(\d+) heaps in use", done.stderr)
                    good = done.returncode == 0 and done.stdout.endswith("ok\n") and heaps
                    failed |= not good
                    print(f"{processor:8} {suite:9} glibc {version[1].decode():5} {name:7}",
                          f"ok, {heaps[1]} heaps" if good else f"FAILED ({done.returncode}) {done.stderr[-300:]}",
                          flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
