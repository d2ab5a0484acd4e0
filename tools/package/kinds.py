"""Every kind of artifact: its name on the command line, its maker, and the kinds whose results the maker needs."""

import dataclasses
from collections.abc import Callable

import container
import crates
import go
import libraries
import onefile
import sbom
import system
import wheels
import zig
from plan import Plan


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of artifact."""

    name: str
    make: Callable[[Plan], None]
    what: str
    needs: tuple[str, ...] = ()


# In the order in which they are made: a kind comes after those it needs.
KINDS = (
    Kind("onefile", onefile.make, "the one-file source, hakmem.c and hakmem.h"),
    Kind("libraries", libraries.make, "the libraries, for glibc 2.17 and newer and for musl, on x86-64 and aarch64"),
    Kind("crates", crates.make, "the Rust crates", needs=("onefile",)),
    Kind("go", go.make, "the Go module", needs=("onefile",)),
    Kind("zig", zig.make, "the Zig package", needs=("onefile",)),
    Kind("wheels", wheels.make, "Python wheels of the tools with the library, for each of its targets", ("libraries",)),
    Kind("system", system.make, "libhakmem0, libhakmem-dev and hakmem as .deb and .rpm", ("libraries", "wheels")),
    Kind("container", container.make, "a container image of the libraries alone", ("libraries",)),
    # After all others, whose files it lists.
    Kind("sbom", sbom.make, "the bill of materials: what is in the artifacts, under which license"),
)


def with_needs(names: list[str]) -> list[Kind]:
    """Returns the kinds of those names and all kinds they need, in the order of KINDS."""
    wanted = set(names)
    for kind in reversed(KINDS):
        if kind.name in wanted:
            wanted.update(kind.needs)
    return [kind for kind in KINDS if kind.name in wanted]
