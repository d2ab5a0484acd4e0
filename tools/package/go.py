"""hakmem-go-VERSION.tar.gz: the Go module, laid out as a module proxy serves it. The unpacked folder works as one:
GOPROXY=file:///FOLDER."""

import datetime
import json
import re
import shutil
import zipfile
from pathlib import Path

import archive
from plan import Plan

SOURCES = ("go.mod", "hakmem.go", "hakmem_test.go", "README.md")


def write_zip(file: Path, folder: Path, prefix: str) -> None:
    """Packs every file of the folder, sorted by name, with the earliest time that a zip archive can hold."""
    with zipfile.ZipFile(file, "w") as packed:
        for path in sorted(folder.iterdir()):
            entry = zipfile.ZipInfo(f"{prefix}/{path.name}")
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, path.read_bytes(), compresslevel=9)


def make(plan: Plan) -> None:
    """Makes the archive."""
    module: str = re.findall(r"^module (\S+)", (plan.root / "go/go.mod").read_text(), re.M)[0]
    version = f"v{plan.version}"
    contents, proxy = plan.work / "go/module", plan.work / "go/proxy"
    shutil.rmtree(plan.work / "go", ignore_errors=True)
    served = proxy / module / "@v"
    contents.mkdir(parents=True)
    served.mkdir(parents=True)
    for name in SOURCES:
        shutil.copy(plan.root / "go" / name, contents)
    for name in ("hakmem.c", "hakmem.h", "LICENSE"):
        shutil.copy(plan.work / "onefile" / name, contents)

    made = datetime.datetime.fromtimestamp(plan.epoch, datetime.timezone.utc)
    (served / "list").write_text(f"{version}\n")
    info = {"Version": version, "Time": made.strftime("%Y-%m-%dT%H:%M:%SZ")}
    (served / f"{version}.info").write_text(json.dumps(info))
    shutil.copy(contents / "go.mod", served / f"{version}.mod")
    write_zip(served / f"{version}.zip", contents, f"{module}@{version}")
    archive.write_tar_gz(plan.dist / f"hakmem-go-{plan.version}.tar.gz", proxy, f"hakmem-go-{plan.version}", plan.epoch)
