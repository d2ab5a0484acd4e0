"""Packs staged trees as .deb, with dpkg-deb and the control files of packaging/deb."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from plan import Failed, Plan
from staging import install, set_times

if TYPE_CHECKING:
    from system import Module

# Files of packaging/deb that are no control files of a package.
NOT_CONTROL = ("copyright", "lintian-overrides")
# The number of the package among those of one version of the sources.
REVISION = "1"


def version(plan: Plan) -> str:
    """Returns the packages' version."""
    return f"{plan.version}-{REVISION}"


def oldest_glibc(library: Path) -> str:
    """Returns the first glibc that has every symbol version which the library needs."""
    with open(library, "rb") as raw:
        sections = [section for section in ELFFile(raw).iter_sections() if isinstance(section, GNUVerNeedSection)]
        names = [
            auxiliary.name for section in sections for _, needed in section.iter_versions() for auxiliary in needed
        ]
    versions = [tuple(int(part) for part in name.removeprefix("GLIBC_").split(".")) for name in names
                if re.fullmatch(r"GLIBC_[0-9.]+", name)]
    if not versions:
        raise Failed(f"{library} asks for no version of glibc")
    return ".".join(str(part) for part in max(versions))


def as_field(text: str) -> str:
    """Returns a licence's text as a field of a copyright file: indented, with dots for blank lines."""
    return "\n".join(f" {line}" if line.strip() else " ." for line in text.strip().splitlines())


def copyright_file(plan: Plan, package: str) -> str:
    """Returns packaging/deb/copyright, with the package's foreign parts and the texts of the licences."""
    recipes, more = plan.root / "packaging/deb", ""
    if (recipes / f"{package}.copyright").exists():
        isc = (plan.root / "python/hakmem/heap/page/vendor/LICENSE.d3").read_text().partition("\n")[2]
        more = (recipes / f"{package}.copyright").read_text().replace("@isc@", as_field(isc))
    expat = (plan.root / "LICENSE").read_text().split("\n", 4)[4]
    return (recipes / "copyright").read_text().replace("@others@\n", f"{more}\n").replace("@expat@", as_field(expat))


def changelog(plan: Plan, package: str) -> str:
    """Returns Debian's changelog of the package, with one entry for each release in CHANGELOG.md."""
    entries = []
    for number, day in re.findall(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d{2}-\d{2})$",
                                  (plan.root / "CHANGELOG.md").read_text(), re.MULTILINE):
        date = time.strftime("%a, %d %b %Y 00:00:00 +0000", time.strptime(day, "%Y-%m-%d"))
        entries.append(f"hakmem ({number}-{REVISION}) unstable; urgency=medium\n\n"
                       f"  * Release {number}: /usr/share/doc/{package}/changelog.gz says what is in it.\n\n"
                       f" -- HAKMEM developers <developers@hakmem.invalid>  {date}\n")
    return "\n".join(entries)


def installed_size(folder: Path) -> int:
    """Returns the size in KiB by Debian policy 5.6.20: anything that is no regular file counts 1."""
    return sum(1 if file.is_symlink() or file.is_dir() else -(-file.stat().st_size // 1024)
               for file in [folder, *folder.rglob("*")])


def write_package(plan: Plan, root: Path, architecture: str, values: dict[str, str]) -> None:
    """Packs ROOT, named after the package, with all control files that packaging/deb has for it."""
    package, recipes = root.name, plan.root / "packaging/deb"
    documents = root / "usr/share/doc" / package
    install(copyright_file(plan, package), documents / "copyright")
    install(plan.root / "CHANGELOG.md", documents / "changelog.gz")
    install(changelog(plan, package), documents / "changelog.Debian.gz")
    if (recipes / f"{package}.lintian-overrides").exists():
        install(recipes / f"{package}.lintian-overrides", root / "usr/share/lintian/overrides" / package)

    values = values | {"version": version(plan), "architecture": architecture, "size": str(installed_size(root))}
    files = [file for file in sorted(root.rglob("*")) if file.is_file() and not file.is_symlink()]
    sums = "".join(f"{hashlib.md5(file.read_bytes()).hexdigest()}  {file.relative_to(root)}\n" for file in files)
    control = root / "DEBIAN"
    shutil.rmtree(control, ignore_errors=True)
    install(sums, control / "md5sums")
    if package == "libhakmem0":
        # The packages on which a program linked to one of the libraries depends.
        names = sorted(file.name.removesuffix(".so.0") for file in root.glob("usr/lib/*/libhakmem*.so.0"))
        install("".join(f"{name} 0 {package} (>= {plan.version})\n" for name in names), control / "shlibs")
    for recipe in sorted(recipes.glob(f"{package}.*")):
        name = recipe.suffix.removeprefix(".")
        text = recipe.read_text()
        if name == "control":
            text = re.sub(r"@(\w+)@", lambda match: values[match[1]], text)
            # Debian forbids empty fields.
            text = re.sub(r"^\S+: \n", "", text, flags=re.MULTILINE)
        if name not in NOT_CONTROL:
            install(text, control / name, executable=name in ("postinst", "prerm", "postrm"))
    set_times(plan, root)
    file = plan.dist / f"{package}_{version(plan)}_{architecture}.deb"
    # One thread, because xz's output depends on their number.
    plan.run("dpkg-deb", "--root-owner-group", "-Zxz", "--threads-max=1", "--build", root, file)


def write(plan: Plan, folder: Path, architecture: str, needed: list[Module], recommended: list[Module]) -> None:
    """Writes the packages, from the trees in FOLDER that have their names."""

    def field(modules: list[Module]) -> str:
        return ", ".join(f"{module.debian} (>= {module.oldest})" for module in modules)

    (library,) = (folder / "libhakmem0/usr/lib").glob("*/libhakmem.so.0.*")
    (profiled,) = (folder / "hakmem/usr/lib/hakmem/python/hakmem/lib").glob("*/libhakmem.so")
    write_package(plan, folder / "libhakmem0", architecture, {"depends": f"libc6 (>= {oldest_glibc(library)})"})
    write_package(plan, folder / "libhakmem-dev", architecture, {})
    write_package(plan, folder / "hakmem", architecture,
                  {"depends": f"libc6 (>= {oldest_glibc(profiled)}), python3 (>= 3.9), {field(needed)}",
                   "recommends": field(recommended)})
    # The same for all architectures.
    if (folder / "hakmem-serve").is_dir():
        write_package(plan, folder / "hakmem-serve", "all", {
            "depends": field([module for module in recommended if module.pypi == "aiohttp"])})
