"""The install trees from which packages are made, and adapting them to another folder of libraries."""

import re
from pathlib import Path

from plan import Failed, Plan
from staging import install


def tree(plan: Plan, target: str) -> Path:
    """Returns a folder with include/ and lib/, as cmake --install leaves them. The kind "libraries" makes it."""
    folder = plan.work / "lib" / target
    if not folder.is_dir():
        raise Failed(f"{folder} is not there: the kind 'libraries' makes it")
    return folder


def strip(plan: Plan, target: str, file: Path) -> None:
    """Removes the names of internal functions, a quarter of the file, which the tools and gdb do not need."""
    plan.run(f"{target.partition('-')[0]}-linux-gnu-strip", "--strip-unneeded", "--remove-section=.comment", file)


def shared(plan: Plan, target: str) -> dict[str, Path]:
    """Returns {name without a version: file} of the target's shared libraries: libhakmem.so, and those that stand in
    for other allocators."""
    found = {file.name: file.resolve() for file in sorted((tree(plan, target) / "lib").glob("libhakmem*.so"))}
    if "libhakmem.so" not in found:
        raise Failed(f"{tree(plan, target) / 'lib'} has no libhakmem.so")
    return found


def install_shared(plan: Plan, target: str, source: Path, file: Path) -> None:
    """Installs a shared library, stripped."""
    install(source, file)
    strip(plan, target, file)


def install_static(plan: Plan, target: str, folder: Path) -> None:
    """Installs the archives, and the override as one object."""
    processor = target.partition("-")[0]
    for source in sorted((tree(plan, target) / "lib").glob("*hakmem*.[ao]")):
        install(source, folder / source.name)
        plan.run(f"{processor}-linux-gnu-strip", "--strip-debug", "--remove-section=.comment",
                 "--enable-deterministic-archives", folder / source.name)


def substitute(file: Path, pattern: str, replacement: str, text: str) -> str:
    """Replaces a pattern in the text of a file; raises Failed if it is missing."""
    text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
    if count == 0:
        raise Failed(f"{file} has no {pattern}")
    return text


def install_recipes(source: Path, root: Path, libdir: str) -> None:
    """Installs the files for pkg-config and CMake with LIBDIR, such as usr/lib64, in place of lib/."""
    for file in sorted((source / "lib/pkgconfig").glob("*.pc")):
        text = file.read_text()
        for name, value in (("prefix", "/usr"), ("libdir", f"/{libdir}"), ("includedir", "/usr/include")):
            text = substitute(file, rf"^{name}=.*$", f"{name}={value}", text)
        write(root / libdir / "pkgconfig" / file.name, text)
    below = libdir.removeprefix("usr/")
    deeper = below.count("/")
    for file in sorted((source / "lib/cmake/hakmem").glob("*.cmake")):
        text = file.read_text()
        if file.name == "hakmem-config.cmake":
            text = substitute(file, r"/\.\./\.\./\.\./", "/../../../" + "../" * deeper, text)
        elif file.name == "hakmem-targets.cmake":
            up = 'get_filename_component(_IMPORT_PREFIX "${_IMPORT_PREFIX}" PATH)\n'
            text = substitute(file, f"(?:{re.escape(up)})+", r"\g<0>" + up * deeper, text)
        elif file.name.startswith("hakmem-targets-"):
            text = substitute(file, r"\$\{_IMPORT_PREFIX\}/lib/", "${_IMPORT_PREFIX}/" + below + "/", text)
        write(root / libdir / "cmake/hakmem" / file.name, text)


def write(file: Path, text: str) -> None:
    """Writes a text as a file of a package."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o644)
