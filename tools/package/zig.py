"""hakmem-zig-VERSION.tar.gz: the Zig package, for `zig fetch --save`."""

import re
import shutil

import archive
from plan import Plan


def make(plan: Plan) -> None:
    """Makes the archive."""
    folder = plan.work / "zig"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "vendor").mkdir(parents=True)
    for name in ("build.zig", "README.md"):
        shutil.copy(plan.root / "zig" / name, folder)
    # The checkout's manifest says 0.0.0, because the public header is the version's only home.
    manifest = (plan.root / "zig/build.zig.zon").read_text()
    (folder / "build.zig.zon").write_text(re.sub(r'\.version = "[^"]*"', f'.version = "{plan.version}"', manifest))
    shutil.copytree(plan.root / "zig/src", folder / "src")
    for name in ("hakmem.c", "hakmem.h"):
        shutil.copy(plan.work / "onefile" / name, folder / "vendor")
    shutil.copy(plan.work / "onefile/LICENSE", folder)
    name = f"hakmem-zig-{plan.version}"
    archive.write_tar_gz(plan.dist / f"{name}.tar.gz", folder, name, plan.epoch)
