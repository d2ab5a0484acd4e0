"""Protects the recipes for Conan, vcpkg, Meson and Bazel: a project takes HAKMEM by each."""

import json
import os
import shutil
from pathlib import Path

import pytest

import blackbox
from conftest import ROOT, VERSION, call

HERE = Path(__file__).resolve().parent
IS_MALLOC, IS_BESIDE = f"hakmem {VERSION} is malloc\n", f"hakmem {VERSION}\n"


def test_conan(sources, tools, tmp_path):
    env = {"CONAN_HOME": str(tmp_path / "home"), "CONAN_LOG_LEVEL": "status", **blackbox.compile_cache(tmp_path)}
    conan = tools / "conan"
    call(conan, "profile", "detect", **env)
    recipe = sources / "packaging/conan"
    call(conan, "create", recipe, "-o", "hakmem/*:override=True", timeout=300, **env)
    # The other packages have other files of the same build.
    listed = json.loads(call(conan, "list", f"hakmem/{VERSION}:*", "--format=json", **env))
    (revision,) = listed["Local Cache"][f"hakmem/{VERSION}"]["revisions"].values()
    (package,) = revision["packages"]
    folder = Path(call(conan, "cache", "path", f"hakmem/{VERSION}:{package}", **env).strip())
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} >= {
        "lib/libhakmem-override.a", "include/hakmem/hakmem.h", "include/hakmem/allocator.hpp", "licenses/LICENSE"}
    for option in ("shared=True", "override=False"):
        said = call(conan, "graph", "info", recipe, "-o", f"&:{option}", "--format=json", **env)
        (node,) = [node for node in json.loads(said)["graph"]["nodes"].values() if node["name"] == "hakmem"]
        assert node["version"] == VERSION and node["license"] == "MIT" and not node["invalid_build"]


# https://learn.microsoft.com/vcpkg/reference/vcpkg-json: fields that a port's manifest may have.
VCPKG_FIELDS = {"name", "version", "version-string", "port-version", "description", "homepage", "license", "supports",
                "dependencies", "features", "default-features", "maintainers", "documentation", "summary"}
VCPKG_DEPENDENCY = {"name", "host", "default-features", "features", "platform", "version>="}


def test_vcpkg_port(tmp_path):
    port = ROOT / "packaging/vcpkg/ports/hakmem"
    manifest = json.loads((port / "vcpkg.json").read_text())
    assert set(manifest) <= VCPKG_FIELDS and {"name", "version-string"} <= set(manifest)
    assert manifest["name"] == port.name and manifest["supports"] == "linux"
    assert all(set(wanted) <= VCPKG_DEPENDENCY and wanted["host"] for wanted in manifest["dependencies"])
    call("cmake", f"-DWORK={tmp_path}", f"-DBUILD={os.environ['HAKMEM_BUILD_DIR']}", f"-DPORT_FOLDER={port}",
         "-P", HERE / "vcpkg/port.cmake")
    usage = (port / "usage").read_text()
    for library in ("hakmem", "static", "override"):
        assert f"hakmem::{library}" in usage


@pytest.fixture
def project(tmp_path):
    def make(name):
        folder = tmp_path / name
        shutil.copytree(HERE / name, folder)
        shutil.copy(HERE / "program.c", folder)
        return folder
    return make


def test_meson_subproject(project, sources):
    folder = project("meson")
    (folder / "subprojects").mkdir()
    (folder / "subprojects/hakmem").symlink_to(sources)
    cache = blackbox.compile_cache(folder.parents[1])
    # Optimisation takes most of the compiler's time, and the programs only say whose malloc they have. But without any,
    # the optimiser of the whole program would drop nothing.
    call("meson", "setup", "build", "--fatal-meson-warnings", "-Db_lto=true", cwd=folder, CFLAGS="-O1", **cache)
    assert f'"version": "{VERSION}"' in call("meson", "introspect", "--projectinfo", "build", cwd=folder)
    call("ninja", "-C", "build", "-j2", cwd=folder, **cache)
    assert call(folder / "build/with_override") == IS_MALLOC
    assert call(folder / "build/with_static") == IS_BESIDE


def test_bazel(project, sources, tmp_path):
    """Debian's Bazel 4 builds by BUILD.bazel. It has no modules, so nothing here reads MODULE.bazel."""
    folder = project("bazel")
    checkout = tmp_path / "checkout"
    shutil.copytree(sources, checkout)
    (checkout / "WORKSPACE").touch()
    workspace = f'local_repository(name = "hakmem", path = "{checkout}")\n'
    for language in ("cc", "java"):
        rules = folder / f"rules_{language}"
        (rules / language).mkdir(parents=True)
        (rules / "WORKSPACE").touch()
        (rules / language / "BUILD").touch()
        shutil.move(folder / f"rules_{language}.bzl", rules / language / "defs.bzl")
        workspace += f'local_repository(name = "rules_{language}", path = "rules_{language}")\n'
    (folder / "WORKSPACE").write_text(workspace)
    bazel = ["bazel", "--batch", f"--output_user_root={tmp_path}/output"]
    call(*bazel, "build", "--jobs=2", "--spawn_strategy=standalone", "//:program", cwd=folder, timeout=300)
    assert call(folder / "bazel-bin/program") == IS_MALLOC
    # Bazel makes its results read-only, including folders.
    call("chmod", "-R", "u+w", tmp_path / "output")
