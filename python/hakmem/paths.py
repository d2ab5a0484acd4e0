"""Finds the tools' files: the build, the peers, the results."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent.parent


# The command as a user types it: messages name it so.
COMMAND = "./hakmem" if (CHECKOUT / "CMakeLists.txt").is_file() else "hakmem"
# The library and the programs that a wheel contains. A checkout has none.
BUNDLED = PACKAGE / "lib/libhakmem.so"
BUNDLED_PROGRAMS = PACKAGE / "bin"


def build_folder() -> Path:
    """Returns the build whose library and programs are used: HAKMEM_BUILD_DIR, or the checkout's release build."""
    return Path(os.environ.get("HAKMEM_BUILD_DIR") or CHECKOUT / "build/release").resolve()


def is_bundled() -> bool:
    """Returns whether the wheel's files are used. HAKMEM_BUILD_DIR overrides them."""
    return BUNDLED.exists() and not os.environ.get("HAKMEM_BUILD_DIR")


def hakmem_library() -> Path:
    """Returns the library: that of HAKMEM_BUILD_DIR, else the wheel's, else the checkout's."""
    return BUNDLED if is_bundled() else build_folder() / "lib/libhakmem.so"


def program(name: str) -> Path:
    """Returns a program of the build or the wheel: a driver, the launcher, the replayer."""
    return (BUNDLED_PROGRAMS if is_bundled() else build_folder() / "bin") / name


def starter() -> Path:
    """Returns the program that runs others on HAKMEM. A build that HAKMEM_BUILD_DIR names may lack it: then the one of
    the wheel, or of the checkout, uses that build's library."""
    name = "hakmem-run"
    own = BUNDLED_PROGRAMS if BUNDLED.exists() else CHECKOUT / "build/release/bin"
    return found if (found := program(name)).is_file() else own / name


def recorder_library() -> Path:
    """Returns the library of `hakmem trace record`, found as the programs are."""
    return (BUNDLED.parent if is_bundled() else build_folder() / "lib") / "libhakmem-trace.so"


def absent(file: Path | str) -> str:
    """Returns a message about a missing file of a build."""
    return f"{file} is not there; {how_to_build()}"


def how_to_build() -> str:
    """Returns how a user gets a file of a build."""
    if is_bundled():
        return "this installation lacks it: install it again, or ./hakmem build in a checkout builds it"
    return "./hakmem build builds it"


def peers_folder() -> Path:
    """Returns where `hakmem peers` puts the other allocators: HAKMEM_PEERS_DIR, or the checkout's build/peers."""
    return Path(os.environ.get("HAKMEM_PEERS_DIR") or CHECKOUT / "build/peers").resolve()


def results_folder() -> Path:
    """Returns the checkout's folder of results."""
    return CHECKOUT / "bench/results"
