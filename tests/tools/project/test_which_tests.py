"""Protects tools/which_tests.py: a change gets the tests that concern it, and the targets that these need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import blackbox

ROOT = blackbox.REPOSITORY
SCRIPT = ROOT / "tools/which_tests.py"
BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", ROOT / "build/release")).resolve()
sys.path.insert(0, str(SCRIPT.parent))

import which_tests  # noqa: E402
from which_tests import Graph, Listed  # noqa: E402

TREE = {
    "src/pool/slab.h": "int slab_carve(int n);\n",
    "src/pool/slab.c": '#include "pool/slab.h"\nint slab_carve(int n)\n{\n    return n;\n}\n',
    "tests/unit/test_slab.c": "",
    "tests/unit/test_purge.c": '#include "pool/slab.h"\nint main(void) { return slab_carve(1); }\n',
    "tests/unit/test_far.c": "int main(void) { return 0; }\n",
    "tests/blackbox.py": "",
    "tests/terminal.py": "",
    "tests/process/misuse/test_misuse.py": "import blackbox\n",
    "tests/tools/heap/test_heap.py": 'tool("heap", file)\nFile("saved.c"), "lib{name}.so"\n',
    "tests/tools/heap/test_heap_page.py": "import terminal\n",
    "tests/tools/heap/saved.c": "",
    "tests/tools/top/test_top.py": 'run("bench_ring")\nfrom hakmem.top.words import spark\n',
    "tests/tools/docs/test_docs.py": "",
    "tests/delivery/zig/test_zig.py": 'sources("docs/heap.md")\n',
}
MODULES = {"cli": set(), "units": set(), "heap.command": {"heap.file"}, "heap.file": {"units"}, "top.words": {"units"}}


def pytest_of(folder, name, *more, labels=("tools",)):
    return Listed(f"pytest.{name}", ["python", "-m", "pytest", folder, *more], list(labels))


@pytest.fixture
def chosen(tmp_path):
    """chosen(PATH...) is ({test: reasons}, targets) for a tree with one library and a few tests."""
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    core, objects = "b/core.dir/src/pool/slab.c.o", {}
    for name in ("slab", "purge", "far"):
        objects[f"b/bin/test_{name}"] = [core, f"b/test_{name}.dir/test_{name}.c.o"]
        objects[f"b/test_{name}.dir/test_{name}.c.o"] = [f"tests/unit/test_{name}.c"]
    objects |= {core: ["src/pool/slab.c"], "b/lib/libhakmem.so": [core], "b/lib/libhakmem-secure.so": [core],
                "b/model.dir/slab.c.o": ["src/pool/slab.c"], "b/bin/model": ["b/model.dir/slab.c.o"],
                "b/bin/model_mutant_x": ["b/model.dir/slab.c.o"], "b/bin/bench_ring": ["b/ring.c.o"],
                "b/ring.c.o": ["bench/ring.c"]}
    headers = {core: ["src/pool/slab.h"], "b/test_purge.dir/test_purge.c.o": ["src/pool/slab.h"]}
    tests = [Listed(name, [f"b/bin/{name}"], ["unit"]) for name in ("test_slab", "test_purge", "test_far")]
    tests += [Listed(name, [f"b/bin/{name}", "--weak"], ["stress"]) for name in ("model", "model_mutant_x")]
    page = "tests/tools/heap/test_heap_page.py"
    tests += [pytest_of("tests/process/misuse", "misuse"), pytest_of("tests/tools/heap", "heap", f"--ignore={page}"),
              pytest_of(page, "heap.page"), pytest_of("tests/tools/top", "top"), pytest_of("tests/tools/docs", "docs"),
              pytest_of("tests/delivery/zig", "zig", labels=("tools", "long"))]

    def choose(*changed):
        choice = which_tests.Choice(tmp_path, "b", Graph(objects, headers), tests, MODULES, {"heap": "heap.command"})
        choice.choose(changed)
        return choice.why, choice.targets()

    return choose


@pytest.mark.parametrize("path", ["src/pool/slab.c", "src/pool/slab.h"])
def test_the_library_gets_its_closest_tests(chosen, path):
    why, targets = chosen(path)
    closest = {"test_slab", "test_purge", "pytest.misuse"} | ({"model"} if path.endswith(".c") else set())
    assert set(why) == closest
    assert "slab_carve" in why["test_purge"][0] and "src/pool/slab.h" in why["test_purge"][0]
    assert set(targets) == {"bin/test_slab", "bin/test_purge", "lib/libhakmem.so"} | (
        {"bin/model"} if path.endswith(".c") else set())


@pytest.mark.parametrize("path, tests", [
    ("tests/unit/test_far.c", {"test_far"}),
    ("bench/ring.c", {"pytest.top"}),
    ("python/hakmem/heap/file.py", {"pytest.heap"}),
    ("python/hakmem/units.py", {"pytest.heap", "pytest.top"}),
    ("tests/tools/heap/test_heap.py", {"pytest.heap"}),
    ("tests/tools/heap/test_heap_page.py", {"pytest.heap.page"}),
    ("tests/tools/heap/saved.c", {"pytest.heap"}),
    ("tests/tools/heap/conftest.py", {"pytest.heap", "pytest.heap.page"}),
    ("tests/blackbox.py", {"pytest.misuse"}),
    ("tests/terminal.py", {"pytest.heap.page"}),
    ("docs/heap.md", {"pytest.docs", "pytest.zig"}),
    ("zig/build.zig", {"pytest.zig"}),
    ("src/pool/CMakeLists.txt", {"pytest.misuse"}),
    ("unknown/file", set()),
])
def test_what_concerns_a_file(chosen, path, tests):
    assert set(chosen(path)[0]) == tests


def test_python_tests_need_what_they_name(chosen):
    assert chosen("tests/tools/top/test_top.py")[1] == ["bin/bench_ring", "lib/libhakmem.so"]
    assert chosen("tests/tools/heap/test_heap.py")[1] == ["lib/libhakmem-secure.so", "lib/libhakmem.so"]


def test_a_change_is_what_is_committed_edited_and_new(tmp_path):
    def git(*words):
        identity = ("-c", "user.name=n", "-c", "user.email=e")
        return subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True, text=True)

    git("init", "-q")
    for name in ("kept", "edited", "gone", "committed"):
        (tmp_path / name).write_text("1\n")
    git("add", ".")
    git("commit", "-qm", "base")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    (tmp_path / "committed").write_text("2\n")
    git("commit", "-qam", "more")
    (tmp_path / "edited").write_text("2\n")
    (tmp_path / "gone").unlink()
    (tmp_path / "new").write_text("1\n")
    assert which_tests.changed_files(tmp_path, None) == ["committed", "edited", "gone", "new"]
    assert which_tests.changed_files(tmp_path, "HEAD") == ["edited", "gone", "new"]


def test_a_test_whose_program_is_not_built_has_its_command(tmp_path):
    """ctest leaves such a command out."""
    (tmp_path / "CTestTestfile.cmake").write_text(
        f'add_test([=[one]=] "{tmp_path}/bin/one" "a b")\nset_tests_properties([=[one]=] PROPERTIES LABELS "unit")\n')
    assert which_tests.read_tests(tmp_path, tmp_path) == [Listed("one", ["bin/one", "a b"], ["unit"])]


def test_a_source_that_was_never_compiled_is_searched_for_its_headers(tmp_path):
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tests/unit/over.h").write_text('#include "pool/slab.h"\n')
    (tmp_path / "tests/unit/test_far.c").write_text('#include "over.h"\n#include <stdio.h>\n')
    assert which_tests.all_includes(tmp_path, "tests/unit/test_far.c") == ["tests/unit/over.h", "src/pool/slab.h"]


def test_this_build():
    """A change of one file of the pool is built and tested within a minute: few programs, and no test that is long."""
    choice = which_tests.read_choice(ROOT, BUILD)
    choice.choose(["src/pool/slab.c"])
    assert {"test_slab", "test_api", "test_api_libc", "pytest.misuse", "mf2_drain"} <= set(choice.why)
    assert len([name for name in choice.why if name.startswith("test_")]) <= which_tests.MOST_UNIT + 5
    assert not any("long" in choice.tests[name].labels or "mutant" in name for name in choice.why)
    targets = choice.targets()
    assert {"bin/test_slab", "bin/test_api", "lib/libhakmem.so"} <= set(targets) and len(targets) < 25
    assert set(targets) <= {path.removeprefix(f"{choice.build}/") for path in choice.graph.inputs}


def test_the_command(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, "--build", BUILD, "--base", "HEAD", "--explain"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(("test ", "target ", "list ")) for line in done.stdout.splitlines())
    done = subprocess.run([sys.executable, SCRIPT, "--build", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and str(tmp_path) in done.stderr
