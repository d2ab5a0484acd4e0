"""Protects generated files: the classes match pprof's description, and the page's libraries match npm's."""

import hashlib
import importlib.resources
import re
import subprocess
from pathlib import Path

import blackbox

from hakmem.heap import graph, profile_pb2

PYTHON = blackbox.REPOSITORY / "python"


def test_the_classes_are_those_of_the_description(tmp_path):
    """Debian 12's protoc makes classes for every protobuf from 3.20 on. A newer protoc's need a newer protobuf."""
    subprocess.run(["protoc", f"--proto_path={PYTHON}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}",
                    "hakmem/heap/profile.proto"], check=True)
    for suffix in (".py", ".pyi"):  # the classes, and their types for mypy
        made = (tmp_path / "hakmem/heap/profile_pb2").with_suffix(suffix).read_text()
        assert Path(profile_pb2.__file__).with_suffix(suffix).read_text() == made


def test_numbers_are_pprofs():
    """A few numbers. If one changed, other programs could not read our files."""
    numbers = {name: {field.name: field.number for field in message.fields}
               for name, message in profile_pb2.DESCRIPTOR.message_types_by_name.items()}
    assert numbers["Profile"]["string_table"] == 6 and numbers["Profile"]["default_sample_type"] == 14
    assert numbers["Location"] == {"id": 1, "mapping_id": 2, "address": 3, "line": 4, "is_folded": 5}
    assert numbers["Sample"] == {"location_id": 1, "value": 2, "label": 3}


def test_vendored_files_are_those_that_are_named():
    folder = graph.FOLDER / "vendor"
    named = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", (folder / "README.md").read_text(), re.MULTILINE))
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in named} == named
    assert {f"vendor/{name}" for name in named} == set(graph.LIBRARIES)
    assert {path.name for path in folder.glob("LICENSE.*")} == {"LICENSE.d3", "LICENSE.d3-flame-graph"}
    assert importlib.resources.files("hakmem.heap").joinpath("page/heap.html").is_file()
