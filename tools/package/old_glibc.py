"""Makes files to link to instead of the machine's glibc, with the symbols and versions of glibc 2.17.

A library linked to a glibc asks for the newest version of each symbol in it. The stand-in for libc.so.6 contains code
that does nothing, with the machine's symbols as far as they are old enough: each in its newest version up to 2.17.
Later symbols are missing. A strong reference to such a symbol fails to link. A weak one asks for no version, so it is
found on a system that has the symbol and is NULL elsewhere.
"""

import re
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from plan import Failed, Plan
from targets import Target

NEWEST = (2, 17)
# In these versions symbols moved into libc.so.6 from libpthread.so.0 or libdl.so.2. It has them in both versions.
MOVED = range(32, 36)
# The bit of a symbol's version that marks it as for old programs only.
HIDDEN = 0x8000
# The C library's start file calls it in either version. Programs in tests are linked to it.
START = "__libc_start_main"


def version_of(text: str) -> tuple[int, ...] | None:
    """Returns the version in a name such as GLIBC_2.17; None for other names."""
    found = re.fullmatch(r"GLIBC_([0-9.]+)", text)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def defined_symbols(library: Path) -> dict[str, dict[tuple[int, ...], tuple[str, int]]]:
    """Returns {name: {version: (kind of symbol, size)}} for a shared library's glibc versions. Leaves out names to
    which new programs cannot be linked."""
    symbols: dict[str, dict[tuple[int, ...], tuple[str, int]]] = {}
    linkable: set[str] = set()
    with open(library, "rb") as file:
        elf = ELFFile(file)
        names = {}
        definitions, indices = elf.get_section_by_name(".gnu.version_d"), elf.get_section_by_name(".gnu.version")
        table = elf.get_section_by_name(".dynsym")
        assert isinstance(definitions, GNUVerDefSection) and isinstance(indices, GNUVerSymSection)
        assert isinstance(table, SymbolTableSection)
        for definition, auxiliaries in definitions.iter_versions():
            names[definition["vd_ndx"]] = next(auxiliaries).name
        for place, symbol in enumerate(table.iter_symbols()):
            index = indices.get_symbol(place)["ndx"]
            # The names of the versions themselves are absolute symbols.
            if symbol["st_shndx"] in ("SHN_UNDEF", "SHN_ABS") or not isinstance(index, int):
                continue
            version = version_of(names.get(index & ~HIDDEN, ""))
            if version is None:
                continue
            symbols.setdefault(symbol.name, {})[version] = symbol["st_info"]["type"], symbol["st_size"]
            if not index & HIDDEN:
                linkable.add(symbol.name)
    return {name: versions for name, versions in symbols.items() if name in linkable}


def old_symbols(library: Path) -> dict[tuple[int, ...], dict[str, tuple[str, int]]]:
    """Returns {version: {name: (kind, size)}} of what glibc 2.17 had in that file."""
    found: dict[tuple[int, ...], dict[str, tuple[str, int]]] = {}
    for name, versions in defined_symbols(library).items():
        old = [version for version in versions if version <= NEWEST]
        moved = any(version[0] == 2 and version[1] in MOVED for version in versions)
        if old and (not moved or name == START):
            newest = max(old)
            found.setdefault(newest, {})[name] = versions[newest]
    return found


def write_stand_in(folder: Path, symbols: dict[tuple[int, ...], dict[str, tuple[str, int]]]) -> tuple[Path, Path]:
    """Writes assembly that defines the symbols, and the linker script that gives them their versions."""
    code = [".text"]
    script = []
    before = ""
    for version, names in sorted(symbols.items()):
        for name, (kind, size) in sorted(names.items()):
            data = kind in ("STT_OBJECT", "STT_TLS")
            section = {"STT_OBJECT": ".bss", "STT_TLS": '.section .tbss,"awT",%nobits'}.get(kind, ".text")
            code += [section, f".globl {name}", f".type {name}, %{'object' if data else 'function'}",
                     f"{name}: .skip {max(size, 1) if data else 4}", f".size {name}, {size if data else 4}"]
        label = "GLIBC_" + ".".join(map(str, version))
        script.append(f"{label} {{ global: {' '.join(f'{name};' for name in sorted(names))} }}{before};\n")
        before = f" {label}"
    code.append('.section .note.GNU-stack,"",%progbits')
    assembly, versions = folder / "libc.s", folder / "libc.map"
    assembly.write_text("\n".join(code) + "\n")
    versions.write_text("".join(script))
    return assembly, versions


def make(plan: Plan, target: Target, folder: Path) -> None:
    """Makes libc.so in the folder, for -L. Everything else that the linker needs is the machine's."""
    folder.mkdir(parents=True, exist_ok=True)
    compiler = f"{target.tools}gcc"
    real, rest = (Path(plan.run(compiler, f"-print-file-name={name}").strip())
                  for name in ("libc.so.6", "libc_nonshared.a"))
    if not real.is_absolute() or not rest.is_absolute():
        raise Failed(f"{compiler} finds no glibc to link to")
    assembly, versions = write_stand_in(folder, old_symbols(real))
    plan.run(compiler, "-shared", "-nostdlib", "-Wl,-soname,libc.so.6", f"-Wl,--version-script={versions}", assembly,
             "-o", folder / "libc.so.6")
    (folder / "libc.so").write_text(f'GROUP ( "{folder / "libc.so.6"}" "{rest.resolve()}" )\n')
