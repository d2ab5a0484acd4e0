"""Puts the built library into the wheel, and names the systems that it runs on."""

import os
import platform
import re
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CHECKOUT = Path(__file__).resolve().parent.parent


def built_libraries():
    """{name in the package: file}: the library, and the one with the cycle profile if it is built."""
    chosen = os.environ.get("HAKMEM_BUILD_DIR")
    build = Path(chosen) if chosen else CHECKOUT / "build/release"
    library = build / "lib/libhakmem.so"
    if not library.is_file():
        raise FileNotFoundError(f"{library} is not there: build it with ./hakmem build, or make the wheel with "
                                f"./hakmem wheel")
    found = {"hakmem/lib/libhakmem.so": library}
    cycles = CHECKOUT / "build/cycles/lib/libhakmem.so"
    if cycles.is_file() and not chosen:
        found["hakmem/lib/cycles/libhakmem.so"] = cycles
    return found


def glibc_tag(libraries):
    """manylinux_2_N: the first glibc that has every symbol version that the libraries ask for, and 2.17 at least."""
    minors = [int(minor) for file in libraries for minor in re.findall(rb"GLIBC_2\.(\d+)", file.read_bytes())]
    return f"py3-none-manylinux_2_{max([17, *minors])}_{platform.machine()}"


class LibraryHook(BuildHookInterface):
    """A wheel carries the library; an editable installation, in a checkout, finds the one that was built there."""

    PLUGIN_NAME = "custom"

    def initialize(self, version, build_data):
        if version == "editable":
            return
        libraries = built_libraries()
        build_data["force_include"].update({str(file.resolve()): name for name, file in libraries.items()})
        build_data["pure_python"] = False
        build_data["tag"] = glibc_tag(libraries.values())
