"""Protects bench/programs/: built on demand, the same checksum on any allocator, and messages about missing tools."""

import os
import re
from pathlib import Path

import blackbox
import machine
import pytest

from hakmem.bench import programs

pytestmark = machine.needs("program:cargo")

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release"))
# Small runs: the amount of work, then LIVE, RECORDS or WORKERS, then SEED.
SMALL = {"bench_rust_json": (6, 60, 7), "bench_cxx_containers": (400, 60, 7), "bench_cxx_service": (3000, 3, 7)}
AMOUNT = {"bench_cxx_service": "REQUESTS"}
NAMES = list(SMALL)


@pytest.fixture(scope="session")
def built():
    """Name -> path. Kept in the build folder, because cargo is slow."""
    files = BUILD / "compiled-programs"
    made = (programs.rust_json(files), programs.cxx_containers(files), programs.cxx_service(files))
    return {path.name: path for path in made}


def checksum(result):
    assert result.status == 0, result.report()
    form = r"(?:documents|requests)=[1-9]\d*( words=[1-9]\d*)? checksum=([0-9a-f]{16})\n"
    return re.fullmatch(form, result.stdout)[2]


@pytest.mark.parametrize("name", NAMES)
def test_same_checksum_on_any_allocator(built, name):
    result = blackbox.run_both([built[name], *SMALL[name]])
    *arguments, seed = SMALL[name]
    assert checksum(result) != checksum(blackbox.run([built[name], *arguments, seed + 1]))


@pytest.mark.parametrize("name", NAMES)
def test_the_expected_checksum_is_compared(built, name):
    right = checksum(blackbox.run([built[name], *SMALL[name]]))
    wrong = "0" * 16
    assert blackbox.run([built[name], *SMALL[name], right]).status == 0
    result = blackbox.run([built[name], *SMALL[name], wrong])
    assert result.status == 1
    assert name in result.stderr and right in result.stderr and wrong in result.stderr, result.report()


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_allocator_ends_badly(built, compiled, name):
    wrong = compiled(blackbox.REPOSITORY / "tests/tools/bench/overlapping_malloc.c", "-pthread", shared=True)
    right = checksum(blackbox.run([built[name], *SMALL[name]]))
    assert blackbox.run([built[name], *SMALL[name], right], preload=wrong).status != 0


@pytest.mark.parametrize("name", NAMES)
def test_arguments(built, name):
    told = blackbox.run([built[name], "--help"])
    assert told.status == 0
    amount = AMOUNT.get(name, "DOCUMENTS")
    for word in (amount, "SEED", "CHECKSUM"):
        assert word in told.stdout
    for arguments, named in ((["x"], amount), (["1", "1", "-1"], "SEED"), (["1"] * 5, "usage")):
        refused = blackbox.run([built[name], *arguments])
        assert refused.status == 2, refused.report()
        assert named in refused.stderr and name in refused.stderr


def test_nothing_is_built_twice(built, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in built.values()}
    asked = []
    really_run = programs.run
    monkeypatch.setattr(programs, "run", lambda command, what: asked.append(command) or really_run(command, what))
    for path in built.values():
        if "rust" in path.name:
            assert programs.build_rust_json(path.parent) == path
        else:
            assert programs.build_cxx(path.parent, path.name.removeprefix("bench_")) == path
    assert [command[1:] for command in asked] == [["--version"]] * len(built)
    assert before == {path: path.stat().st_mtime_ns for path in built.values()}


def test_changed_sources_are_built_again(tmp_path):
    program = tmp_path / "folder/program"
    built = []

    def build(text):
        built.append(text)
        program.write_text(text)

    for stamp in ("one", "one", "two"):
        programs.build_once(program, stamp, lambda text=stamp: build(text))
    assert built == ["one", "two"]

    def broken():
        raise programs.ProgramError("broken")

    with pytest.raises(programs.ProgramError):
        programs.build_once(program, "three", broken)
    programs.build_once(program, "two", lambda: build("two again"))
    assert built[-1] == "two again", "what a failed build left is not taken for the program"


@pytest.mark.parametrize("make, tool", [(programs.rust_json, "cargo"), (programs.cxx_service, "g++")])
def test_a_missing_compiler_is_named(tmp_path, monkeypatch, make, tool):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(programs.ProgramError, match=re.escape(tool)):
        make(tmp_path / "out")


def test_a_failed_build_says_why(tmp_path, monkeypatch):
    (tmp_path / "broken.cpp").write_text("int main() { return nothing; }\n")
    monkeypatch.setattr(programs, "SOURCES", tmp_path)
    with pytest.raises(programs.ProgramError, match="(?s)bench_broken.*nothing"):
        programs.build_cxx(tmp_path / "out", "broken")
