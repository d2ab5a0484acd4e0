"""Names the systems on which a wheel runs, and adds the library to a wheel that is made in a checkout."""

import os
import platform
import re
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CHECKOUT = Path(__file__).resolve().parent.parent
STATIC = {"hakmem/bin/bench_measure"}


def built_files():
    """Returns {name in the package: file of the build}. The cycle profile's library is of another build."""
    chosen = os.environ.get("HAKMEM_BUILD_DIR")
    build = Path(chosen) if chosen else CHECKOUT / "build/release"
    library = build / "lib/libhakmem.so"
    if not library.is_file():
        raise FileNotFoundError(f"{library} is not there: build it with ./hakmem build, or make the wheel with "
                                f"./hakmem wheel")
    found = {"hakmem/lib/libhakmem.so": library}
    more = {f"hakmem/bin/{name}": build / "bin" / name for name in ("bench_measure", "hakmem-run")}
    if not chosen:
        more["hakmem/lib/cycles/libhakmem.so"] = CHECKOUT / "build/cycles/lib/libhakmem.so"
    return found | {name: file for name, file in more.items() if file.is_file()}


def glibc_tag(files):
    """Returns manylinux_2_N for the first glibc, at least 2.17, with every symbol version that the files need."""
    minors = [int(minor) for file in files for minor in re.findall(rb"GLIBC_2\.(\d+)", file.read_bytes())]
    return f"py3-none-manylinux_2_{max([17, *minors])}_{platform.machine()}"


class LibraryHook(BuildHookInterface):
    """Adds the library to a wheel. An editable installation, in a checkout, uses the library built there."""

    PLUGIN_NAME = "custom"

    def initialize(self, version, build_data):
        """Fills in the wheel's files and tag."""
        if version == "editable":
            return
        build_data["pure_python"] = False
        # ./hakmem package lays the files out itself, for a system that need not be this one.
        build_data["tag"] = os.environ.get("HAKMEM_WHEEL_TAG")
        if not build_data["tag"]:
            files = built_files()
            build_data["force_include"].update({str(file.resolve()): name for name, file in files.items()})
            build_data["tag"] = glibc_tag(file for name, file in files.items() if name not in STATIC)
