"""Protects the bill of materials: valid, complete for bundled files, and reproducible."""

import fnmatch
import hashlib
import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

import sbom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from plan import Failed, Plan

ROOT = Path(__file__).resolve().parents[3]
# Third-party scripts in the pages that the tools make.
VENDORED = [path for path in sorted((ROOT / "python/hakmem").rglob("vendor/*"))
            if path.name != "README.md" and not path.name.startswith("LICENSE.")]


def make(dist: Path, root: Path = ROOT) -> str:
    plan = Plan(root, dist / "work", dist)
    sbom.make(plan)
    return (dist / f"hakmem-{plan.version}.cdx.json").read_text()


@pytest.fixture
def dist(tmp_path):
    (tmp_path / "libhakmem.tar.gz").write_bytes(b"an artifact")
    (tmp_path / "SHA256SUMS").write_text("")
    return tmp_path


@pytest.fixture
def components(dist):
    return {component["name"]: component for component in json.loads(make(dist))["components"]}


def properties(component: dict) -> dict[str, str]:
    return {each["name"]: each["value"] for each in component.get("properties", [])}


def test_it_is_valid_and_the_same_twice(dist):
    text = make(dist)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert make(dist) == text


def test_artifacts_have_their_checksums(components):
    files = {name: component for name, component in components.items() if component["type"] == "file"}
    assert list(files) == ["libhakmem.tar.gz"]
    assert files["libhakmem.tar.gz"]["hashes"] == [{
        "alg": "SHA-256", "content": hashlib.sha256(b"an artifact").hexdigest()
    }]


def test_every_script_of_others_is_there_with_its_license(components):
    bundled = [component for component in components.values() if "hakmem:bundled-in" in properties(component)]
    assert all(component["licenses"] for component in bundled)
    told = {each["content"] for component in bundled for each in component.get("hashes", [])}
    assert len(VENDORED) >= 4
    assert {hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDORED} == told
    assert components["d3-flame-graph"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert "GCC-exception" in json.dumps(components["libgcc"]["licenses"])


def test_debians_copyright_file_names_every_script_of_others():
    text = (ROOT / "packaging/deb/hakmem.copyright").read_text()
    patterns = re.findall(r"^Files: (\S+)$", text, re.MULTILINE)
    for path in VENDORED:
        inside = path.relative_to(ROOT / "python").as_posix()
        assert any(fnmatch.fnmatch(inside, pattern.partition("/python/")[2]) for pattern in patterns), inside


def test_what_package_managers_are_asked_for_is_there(components):
    project = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
    for line in project["dependencies"]:
        component = components[re.match(r"[A-Za-z0-9-]+", line)[0]]
        assert component["scope"] == "required" and properties(component)["hakmem:needed-by"] == "the tools"
    assert components["allocator-api2"]["purl"].startswith("pkg:cargo/allocator-api2@")
    assert components["cc"]["scope"] == "excluded"


def test_a_script_that_was_altered_is_refused(dist, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(ROOT / "python/hakmem/page", root / "python/hakmem/page")
    for path in "include/hakmem/hakmem.h", "python/pyproject.toml", "rust/Cargo.lock":
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, root / path)
    make(dist, root)
    script = root / "python/hakmem/page/vendor/uPlot.iife.min.js"
    script.write_text(script.read_text() + ";")
    with pytest.raises(Failed, match="uPlot.iife.min.js is not the file"):
        make(dist, root)
