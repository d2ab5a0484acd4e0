"""Protects programs in Rust, Go with cgo and JavaScript: the output is the same on either allocator."""

import os
import shutil
from pathlib import Path

import blackbox

HERE = Path(__file__).resolve().parent


def tool(name, *elsewhere):
    """The path of a language's tool: on PATH, or where its installer puts it."""
    for candidate in (shutil.which(name), *elsewhere):
        if candidate and Path(candidate).exists():
            return str(candidate)
    raise AssertionError(f"{name} is not installed")


def test_rust(tmp_path):
    shutil.copytree(HERE / "rust", tmp_path / "work")
    cargo = tool("cargo", Path.home() / ".cargo/bin/cargo")
    path = os.pathsep.join([str(Path(cargo).parent), os.environ["PATH"]])
    built = blackbox.run(
        [cargo, "build", "--release", "--offline", "--quiet"], cwd=tmp_path / "work", env={"PATH": path}, timeout=120
    )
    assert built.status == 0, built.report()
    blackbox.run_both([tmp_path / "work/target/release/work"])


def test_go_with_cgo(tmp_path):
    shutil.copytree(HERE / "gocgo", tmp_path / "work")
    go = tool("go", "/usr/local/go/bin/go")
    env = {"CGO_ENABLED": "1", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    built = blackbox.run([go, "build", "-o", tmp_path / "program", "."], cwd=tmp_path / "work", env=env, timeout=240)
    assert built.status == 0, built.report()
    blackbox.run_both([tmp_path / "program"], timeout=90)


def test_node():
    blackbox.run_both(["node", HERE / "work.js"], timeout=90)
