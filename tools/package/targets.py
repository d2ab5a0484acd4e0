"""The systems for which the libraries are built, and the tools that build them."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Target:
    """A system. libc: glibc or musl. `name` is the triplet of Debian and the compilers."""

    processor: str
    libc: str

    @property
    def name(self) -> str:
        """The triplet."""
        return f"{self.processor}-linux-{'gnu' if self.libc == 'glibc' else 'musl'}"

    @property
    def told(self) -> str:
        """The target in words."""
        libc = "glibc 2.17 and newer" if self.libc == "glibc" else "musl"
        return f"Linux on {self.processor.replace('_', '-')} with {libc}"

    @property
    def tools(self) -> str:
        """The prefix of the compiler's and binutils' names: Debian's, for glibc on this processor."""
        return f"{self.processor}-linux-gnu-"

    @property
    def machine(self) -> str:
        """The name in pyelftools and in ELF headers."""
        return {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}[self.processor]


TARGETS = tuple(Target(processor, libc) for libc in ("glibc", "musl") for processor in ("x86_64", "aarch64"))
