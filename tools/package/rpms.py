"""Packs staged trees as .rpm, with rpmbuild and the recipes in packaging/rpm."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from plan import Plan
from staging import install, set_times

if TYPE_CHECKING:
    from system import Module

SETTINGS = {
    # These keep the machine and the time of the build out of the packages.
    "_buildhost": "localhost",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "source_date_epoch_from_changelog": "0",
    # CentOS 7's rpm reads this format. One thread, because xz's output depends on their number.
    "_binary_payload": "w6.xzdio",
    "_build_name_fmt": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
}


def write(plan: Plan, folder: Path, architecture: str, needed: list[Module], recommended: list[Module]) -> None:
    """Writes the three packages, from the trees libhakmem0, libhakmem-dev and hakmem in FOLDER."""

    def field(modules: list[Module]) -> str:
        return ", ".join(f"python3dist({module.pypi}) >= {module.oldest}" for module in modules)

    for package in "libhakmem0", "hakmem":
        install(plan.root / "LICENSE", folder / package / "usr/share/licenses" / package / "LICENSE")
    set_times(plan, folder)
    work = folder.parent / f"rpmbuild-{architecture}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    settings = SETTINGS | {"_topdir": str(work), "_dbpath": str(work / "database"), "stage": str(folder),
                           "hakmem_version": plan.version, "hakmem_requires": f"python3 >= 3.9, {field(needed)}"}
    if recommended:
        settings["hakmem_recommends"] = field(recommended)
    words = [word for name, value in settings.items() for word in ("--define", f"{name} {value}")]
    plan.run("rpmbuild", "-bb", "--quiet", "--target", f"{architecture}-linux", *words,
             plan.root / "packaging/rpm/hakmem.spec")
    for file in sorted((work / "RPMS").rglob("*.rpm")):
        shutil.move(file, plan.dist / file.name)
