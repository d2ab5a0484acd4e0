"""Protects `hakmem package` and its packages of sources: reproducible, with checksums and the one-file source.

tests/delivery/rust and tests/delivery/embed build programs with the packages for Rust, Go and Zig."""

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import blackbox

ROOT = Path(__file__).resolve().parents[3]
VERSION = subprocess.run([ROOT / "hakmem", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
NAMES = {f"hakmem-onefile-{VERSION}.tar.gz", f"hakmem-{VERSION}.crate", f"hakmem-sys-{VERSION}.crate",
         f"hakmem-go-{VERSION}.tar.gz", f"hakmem-zig-{VERSION}.tar.gz"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two folders from two runs."""
    folders = []
    for _ in range(2):
        folder = tmp_path_factory.mktemp("dist")
        work = tmp_path_factory.mktemp("work")
        done = subprocess.run([
            sys.executable, ROOT / "tools/package", "--work", work, "--only", "crates", "--only", "go", "--only", "zig",
            folder
        ], capture_output=True, text=True, check=False, timeout=blackbox.HANG)
        assert done.returncode == 0, done.stderr
        folders.append(folder)
    return folders


@pytest.fixture(scope="module")
def source():
    sys.path.insert(0, str(ROOT / "tools"))
    import amalgamate

    return amalgamate.make_source(ROOT)


def members(file):
    with tarfile.open(file) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def test_two_runs_make_the_same_bytes(runs):
    one, two = runs
    assert NAMES <= {path.name for path in one.iterdir()}
    contents = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (one, two)]
    assert contents[0] == contents[1]


def test_the_sums_are_those_of_the_files(runs):
    done = subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=runs[0], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0 and done.stdout.count(": OK") == len(NAMES), done.stdout + done.stderr


def test_an_unknown_kind_is_refused():
    done = subprocess.run([sys.executable, ROOT / "tools/package", "--only", "floppy"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2 and "floppy" in done.stderr


def test_crates(runs, source):
    sys_crate = members(runs[0] / f"hakmem-sys-{VERSION}.crate")
    prefix = f"hakmem-sys-{VERSION}/"
    assert sys_crate[prefix + "vendor/hakmem.c"].decode() == source
    assert {prefix + name for name in ("Cargo.toml", "build.rs", "src/lib.rs", "LICENSE")} <= set(sys_crate)
    # cargo's data about a repository depend on the machine, not on the commit.
    assert not any("vcs_info" in name for name in sys_crate)
    manifest = members(runs[0] / f"hakmem-{VERSION}.crate")[f"hakmem-{VERSION}/Cargo.toml"].decode()
    assert f'version = "={VERSION}"' in manifest and "path = \"../" not in manifest


def test_go_module(runs, source):
    proxy = members(runs[0] / f"hakmem-go-{VERSION}.tar.gz")
    served = f"hakmem-go-{VERSION}/hakmem.internal/hakmem/@v/"
    assert set(proxy) == {served + name for name in ("list", f"v{VERSION}.info", f"v{VERSION}.mod", f"v{VERSION}.zip")}
    assert json.loads(proxy[f"{served}v{VERSION}.info"])["Version"] == f"v{VERSION}"
    with zipfile.ZipFile(io.BytesIO(proxy[f"{served}v{VERSION}.zip"])) as packed:
        prefix = f"hakmem.internal/hakmem@v{VERSION}/"
        assert {name.removeprefix(prefix) for name in packed.namelist()} == {
            "LICENSE", "README.md", "go.mod", "hakmem.c", "hakmem.go", "hakmem.h", "hakmem_test.go"}
        assert packed.read(prefix + "hakmem.c").decode() == source


def test_zig_package(runs, source):
    packed = members(runs[0] / f"hakmem-zig-{VERSION}.tar.gz")
    prefix = f"hakmem-zig-{VERSION}/"
    assert packed[prefix + "vendor/hakmem.c"].decode() == source
    assert f'.version = "{VERSION}"' in packed[prefix + "build.zig.zon"].decode()
