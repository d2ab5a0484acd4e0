"""hakmem-onefile-VERSION.tar.gz: hakmem.c and hakmem.h."""

import shutil
import sys

import archive
from plan import Plan


def make(plan: Plan) -> None:
    """Makes the archive."""
    folder = plan.work / "onefile"
    shutil.rmtree(folder, ignore_errors=True)
    plan.run(sys.executable, plan.root / "tools/amalgamate.py", folder)
    shutil.copy(plan.root / "LICENSE", folder)
    name = f"hakmem-onefile-{plan.version}"
    archive.write_tar_gz(plan.dist / f"{name}.tar.gz", folder, name, plan.epoch)
