"""Protects what `hakmem package` makes for Go and Zig: a program of each uses it."""

import os
import re
import shutil
from pathlib import Path

import pytest

import blackbox
from conftest import ROOT, VERSION, call

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def proxy(dist, tmp_path_factory):
    """The unpacked archive is a module proxy."""
    folder = tmp_path_factory.mktemp("proxy")
    call("tar", "-xzf", dist / f"hakmem-go-{VERSION}.tar.gz", "-C", folder)
    return folder / f"hakmem-go-{VERSION}"


@pytest.fixture(scope="module")
def go(proxy, tmp_path_factory):
    """Runs go with modules from that proxy only."""
    modules = tmp_path_factory.mktemp("modules")

    def run(*words, cwd):
        return call("go", *words, cwd=cwd, timeout=300, GOPROXY=f"file://{proxy}", GONOSUMDB="hakmem.internal",
                    GOMODCACHE=str(modules), GOFLAGS="-modcacherw -mod=mod", GOTOOLCHAIN="local",
                    **blackbox.compile_cache(modules.parent))
    return run


def test_go_get(go, tmp_path):
    shutil.copy(HERE / "go/main.go", tmp_path)
    go("mod", "init", "example.com/program", cwd=tmp_path)
    go("get", "hakmem.internal/hakmem@latest", cwd=tmp_path)
    assert f"hakmem.internal/hakmem v{VERSION}" in (tmp_path / "go.mod").read_text()
    for tags, says in ((["-tags", "hakmem_override"], " is malloc\n"), ([], "\n")):
        go("build", *tags, "-o", "program", cwd=tmp_path)
        assert call(tmp_path / "program") == f"hakmem {VERSION}{says}"
    said = go("test", "-v", "hakmem.internal/hakmem", cwd=tmp_path)
    assert said.count("--- PASS: Test") == 4, said


def test_zig_package(dist, tools, tmp_path):
    """zig runs the module's own tests. Its reader of build.zig takes minutes to compile, so that file is only
    checked."""
    call("tar", "-xzf", dist / f"hakmem-zig-{VERSION}.tar.gz", "-C", tmp_path)
    package = tmp_path / f"hakmem-zig-{VERSION}"
    zig = next(tools.parent.glob("lib/python3*/site-packages/ziglang/zig"))
    # Zig's cache outlives the test, so its own libraries are compiled once.
    env = {"ZIG_GLOBAL_CACHE_DIR": str(ROOT / "build/zig-cache"), "ZIG_LOCAL_CACHE_DIR": str(tmp_path / "cache")}
    call(zig, "test", "-lc", "src/hakmem.zig", "-cflags", "-O2", "-fno-sanitize=all", "--", "vendor/hakmem.c",
         cwd=package, timeout=300, **env)
    call(zig, "fmt", "--check", "build.zig", "build.zig.zon", "src", cwd=package, **env)
    call(zig, "ast-check", "build.zig", cwd=package, **env)
    call(zig, "ast-check", "--zon", "build.zig.zon", cwd=package, **env)
    manifest = (package / "build.zig.zon").read_text()
    assert re.search(r'\.version = "([^"]+)"', manifest)[1] == VERSION
    listed = set(re.findall(r'"([^"]+)"', re.search(r"\.paths = \.\{(.*?)\}", manifest, re.S)[1]))
    assert listed == set(os.listdir(package))
