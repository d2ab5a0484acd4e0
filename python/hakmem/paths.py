"""Where the tools find what they run: the build, the peers, the results."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent.parent


# The library that a wheel brings; in a checkout there is none.
BUNDLED = PACKAGE / "lib/libhakmem.so"
BUNDLED_CYCLES = PACKAGE / "lib/cycles/libhakmem.so"


def build_folder():
    """The build whose library and programs are used: HAKMEM_BUILD_DIR, or the checkout's release build."""
    return Path(os.environ.get("HAKMEM_BUILD_DIR") or CHECKOUT / "build/release").resolve()


def hakmem_library():
    """The library: of HAKMEM_BUILD_DIR, else the one in the wheel, else the checkout's."""
    if BUNDLED.exists() and not os.environ.get("HAKMEM_BUILD_DIR"):
        return BUNDLED
    return build_folder() / "lib/libhakmem.so"


def cycles_library():
    """The build that carries the cycle profile, found as the library is."""
    if os.environ.get("HAKMEM_BUILD_DIR"):
        return hakmem_library()
    return BUNDLED_CYCLES if BUNDLED.exists() else CHECKOUT / "build/cycles/lib/libhakmem.so"


def program(name):
    """A program of the build: a driver, the launcher, the replayer."""
    return build_folder() / "bin" / name


def peers_folder():
    """Where `hakmem peers` puts the other allocators: HAKMEM_PEERS_DIR, or the checkout's build/peers."""
    return Path(os.environ.get("HAKMEM_PEERS_DIR") or CHECKOUT / "build/peers").resolve()


def results_folder():
    return CHECKOUT / "bench/results"
