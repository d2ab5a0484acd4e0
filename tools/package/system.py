"""libhakmem0, libhakmem-dev, hakmem and hakmem-serve (.deb only), for the system's package manager: .deb and .rpm,
x86-64 and aarch64.

Both formats hold the same files, staged here from the results of the kinds "libraries" and "wheels". The folder of
libraries and some of the documentation differ. The recipes are in packaging/deb and packaging/rpm, other installed
files in packaging/system."""

import dataclasses
import os
import re
import shutil
import sys
import time
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

import debs
import libraries_tree
import rpms
from plan import Failed, Plan
from staging import install, link

# {PyPI package that the command imports: the Debian package}. None: Debian 12 has none, and the command says what is
# missing.
MODULES = {
    "aiohttp": "python3-aiohttp",
    "altair": None,
    "click": "python3-click",
    "jinja2": "python3-jinja2",
    "numpy": "python3-numpy",
    "prometheus-client": "python3-prometheus-client",
    "protobuf": "python3-protobuf",
    "pyelftools": "python3-pyelftools",
    "rich": "python3-rich",
    "scipy": "python3-scipy",
    "textual": "python3-textual",
    "vl-convert-python": None,
}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A processor, in the words of each packager."""

    triplet: str  # of the libraries' folder in Debian, and of binutils' names
    deb: str
    rpm: str


@dataclasses.dataclass(frozen=True)
class Module:
    """A Python package that the command needs."""

    pypi: str
    debian: str
    oldest: str  # version


ARCHITECTURES = (
    Architecture("x86_64-linux-gnu", "amd64", "x86_64"),
    Architecture("aarch64-linux-gnu", "arm64", "aarch64"),
)


# ---- Texts that are made ----

def options_as_list(text: str) -> str:
    """Returns docs/options.md as a section of a manual page. Each row of its tables becomes an entry of a list."""
    lines = []
    for line in text.splitlines()[1:]:
        if not line.startswith("|"):
            # The page's first sentence is about the file itself, and links lead nowhere from a manual page.
            if not line.startswith("Made by "):
                lines.append(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line))
        elif line.startswith("| `HAKMEM_"):
            name, *settings, what = [cell.strip() for cell in line.strip("| ").split(" | ", 3)]
            values = " Values: {1}. Default: {0}.".format(*settings) if settings else ""
            lines += ["", name, "", f":   {what}.{values}", ""]
    return "\n".join(lines)


def manual_of_options(plan: Plan) -> Path:
    """Makes hakmem.7 from packaging/system/hakmem.7.md and docs/options.md."""
    source = plan.work / "system/hakmem.7.md"
    text = (plan.root / "packaging/system/hakmem.7.md").read_text()
    text = text.replace("@options@", options_as_list((plan.root / "docs/options.md").read_text()))
    title = {"title": "HAKMEM", "section": "7", "date": day(plan), "source": f"hakmem {plan.version}",
             "volume": "Memory allocators"}
    source.write_text("".join(f"{key}: {value}\n" for key, value in title.items()) + "\n" + text)
    page = source.with_suffix("")
    plan.run("lowdown", "-s", "-Tman", "--out-no-smarty", "-o", page, source)
    return page


def manuals_of_commands(plan: Plan) -> list[Path]:
    """Makes the manual pages of the commands."""
    folder = plan.work / "system/man1"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    plan.run(sys.executable, "-B", plan.root / "tools/package/man_pages.py", folder, plan.version, day(plan))
    return sorted(folder.glob("*.1"))


def day(plan: Plan) -> str:
    """Returns the plan's time as a date."""
    return time.strftime("%Y-%m-%d", time.gmtime(plan.epoch))


def requirements(plan: Plan) -> tuple[list[Module], list[Module]]:
    """Returns the modules that the command needs, and those of the extras, which only some subcommands need."""
    project = tomllib.loads((plan.root / "python/pyproject.toml").read_text())["project"]
    needed = modules(project["dependencies"])
    extras = modules(sum(project.get("optional-dependencies", {}).values(), []))
    return needed, [module for module in extras if module.pypi not in {one.pypi for one in needed}]


def modules(lines: list[str]) -> list[Module]:
    """Returns the Modules of requirement lines; raises Failed if a package or its oldest version is unknown."""
    found = {}
    for requirement in map(Requirement, lines):
        name = requirement.name.lower()
        if name == "hakmem":
            continue
        if name not in MODULES:
            raise Failed(f"python/pyproject.toml names {name}; say in MODULES of tools/package/system.py which package "
                         "that is")
        oldest = [bound.version for bound in requirement.specifier if bound.operator == ">="]
        debian = MODULES[name]
        if debian and len(oldest) == 1:
            found[name] = Module(name, debian, oldest[0])
        elif debian:
            raise Failed(f"python/pyproject.toml does not name the oldest {name}")
    return [found[name] for name in sorted(found)]


# ---- The three trees ----

def stage_library(plan: Plan, triplet: str, root: Path, libdir: str) -> None:
    """Stages the package libhakmem0."""
    for name, source in libraries_tree.shared(plan, triplet).items():
        # The file's name ends in the version. Programs ask for NAME.0.
        libraries_tree.install_shared(plan, triplet, source, root / libdir / source.name)
        link(root / libdir / f"{name}.0", source.name)
        link(root / "usr/lib/hakmem" / name, os.path.relpath(f"/{libdir}/{name}.0", "/usr/lib/hakmem"))
    install(manual_of_options(plan), root / "usr/share/man/man7/hakmem.7.gz")
    install(plan.root / "packaging/system/hakmem.conf", root / "usr/share/doc/libhakmem0/examples/systemd/hakmem.conf")


def stage_development(plan: Plan, triplet: str, root: Path, libdir: str) -> None:
    """Stages the package libhakmem-dev."""
    tree = libraries_tree.tree(plan, triplet)
    for header in sorted((tree / "include").rglob("*")):
        if header.is_file():
            install(header, root / "usr" / header.relative_to(tree))
    libraries_tree.install_static(plan, triplet, root / libdir)
    for name in libraries_tree.shared(plan, triplet):
        link(root / libdir / name, f"{name}.0")
    libraries_tree.install_recipes(tree, root, libdir)


# Files of the wheel that the package libhakmem0 provides.
LIBRARY_LINKS = (Path("lib/libhakmem.so"), Path("lib/libhakmem-secure.so"))


def stage_command(plan: Plan, triplet: str, root: Path, zsh_folder: str) -> None:
    """Stages the package hakmem: the wheel's modules and programs without the libraries, which libhakmem0 provides."""
    source, folder = plan.work / "wheel" / triplet / "hakmem", root / "usr/lib/hakmem/python"
    if not source.is_dir():
        raise Failed(f"{source} is not there: the kind 'wheels' makes it")
    for file in sorted(source.rglob("*")):
        inside = file.relative_to(source)
        if file.is_file() and inside not in LIBRARY_LINKS:
            program = inside.parts[0] == "bin"
            install(file, folder / "hakmem" / inside, executable=program or file.suffix == ".sh")
            if program or file.suffix == ".so":
                libraries_tree.strip(plan, triplet, folder / "hakmem" / inside)
    for inside in LIBRARY_LINKS:
        link(folder / "hakmem" / inside, f"../../../{inside.name}")
    install(f"Metadata-Version: 2.1\nName: hakmem\nVersion: {plan.version}\nLicense: MIT\n",
            folder / f"hakmem-{plan.version}.dist-info/METADATA")
    system = plan.root / "packaging/system"
    install(system / "hakmem", root / "usr/bin/hakmem", executable=True)
    install(system / "hakmem.bash", root / "usr/share/bash-completion/completions/hakmem")
    install(system / "_hakmem", root / zsh_folder / "_hakmem")
    install(system / "hakmem.fish", root / "usr/share/fish/vendor_completions.d/hakmem.fish")
    for page in manuals_of_commands(plan):
        install(page, root / f"usr/share/man/man1/{page.name}.gz")


def stage_fleet(plan: Plan, root: Path) -> None:
    """Stages the package hakmem-serve."""
    for file in sorted((plan.root / "packaging/fleet").iterdir()):
        unit = file.suffix == ".service"
        install(file, root / ("usr/lib/systemd/system" if unit else "usr/share/hakmem-serve") / file.name)


def stage(plan: Plan, name: str) -> Path:
    """Returns an empty folder for the trees."""
    folder = plan.work / "system" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def make(plan: Plan) -> None:
    """Makes the packages of every architecture."""
    for architecture in ARCHITECTURES:
        make_for(plan, architecture)


def make_for(plan: Plan, architecture: Architecture) -> None:
    """Makes the packages of one architecture."""
    (plan.work / "system").mkdir(parents=True, exist_ok=True)
    needed, recommended = requirements(plan)
    triplet = architecture.triplet
    for kind, libdir, zsh in (("deb", f"usr/lib/{triplet}", "vendor-completions"), ("rpm", "usr/lib64",
                                                                                    "site-functions")):
        folder = stage(plan, f"{kind}-{architecture.rpm}")
        stage_library(plan, triplet, folder / "libhakmem0", libdir)
        stage_development(plan, triplet, folder / "libhakmem-dev", libdir)
        stage_command(plan, triplet, folder / "hakmem", f"usr/share/zsh/{zsh}")
        if kind == "deb" and architecture == ARCHITECTURES[0]:
            stage_fleet(plan, folder / "hakmem-serve")
        if kind == "deb":
            debs.write(plan, folder, architecture.deb, needed, recommended)
        else:
            rpms.write(plan, folder, architecture.rpm, needed, recommended)
