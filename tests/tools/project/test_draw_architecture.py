"""Protects docs/images/architecture.svg: it shows the tree as it is, to readers who see it and to those who do not."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import blackbox

ROOT = blackbox.REPOSITORY
TOOL = ROOT / "tools/draw_architecture.py"
PICTURE = ROOT / "docs/images/architecture.svg"
SVG = "{http://www.w3.org/2000/svg}"

sys.path.insert(0, str(TOOL.parent))

import draw_architecture  # noqa: E402

README = "| folder | what it is |\n|---|---|\n| `base/` | bits & <sizes>; assertions |\n| `os/` | the system |\n"


@pytest.fixture
def tree(tmp_path):
    """A tree of three folders: os includes base once, front includes os six times, and each the counters."""
    for name, text in {
        "src/README.md": README, "src/base/base.h": "", "src/os/os.h": '#include "base/base.h"\n',
        "src/observe/counters.h": '#include "base/base.h"\n',
        "src/front/front.c": '#include "os/os.h"\n' * 6 + '#include "observe/counters.h"\n#include <stdlib.h>\n',
        "src/front/front.h": '# include <hakmem/hakmem.h>\n/* #include "pool/slab.h" is not at the line\'s start */\n',
        "include/hakmem/hakmem.h": "", "docs/images/architecture.svg": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def run(*words):
    return subprocess.run([sys.executable, TOOL, *words], capture_output=True, text=True, check=False)


def test_the_picture_shows_this_tree():
    done = run("--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_picture_of_another_tree_is_noticed(tree):
    stale = run("--check", "--root", tree)
    assert stale.returncode == 1 and "tools/draw_architecture.py" in stale.stderr
    assert run("--root", tree).returncode == 0 and run("--check", "--root", tree).returncode == 0
    (tree / "src/os/os.c").write_text('#include "config/limits.h"\n')
    assert run("--check", "--root", tree).returncode == 1


def test_the_includes_of_a_tree(tree):
    graph = draw_architecture.read_graph(tree)
    assert graph.files == {"base": 1, "os": 1, "observe/counters": 1, "front": 2, "include/hakmem": 1}
    assert graph.uses == {("os", "base"): 1, ("observe/counters", "base"): 1, ("front", "os"): 6,
                          ("front", "observe/counters"): 1, ("front", "include/hakmem"): 1}


def test_what_is_drawn_of_a_tree(tree):
    root = ElementTree.fromstring(draw_architecture.draw(tree))
    dots = {dot.find(f"{SVG}title").text: dot.get("r") for dot in root.iter(f"{SVG}circle")
            if dot.find(f"{SVG}title") is not None}
    assert dots == {"os includes headers of base": "3", "observe/counters includes headers of base": "3",
                    "front includes headers of os": "5", "front includes headers of observe/counters": "3",
                    "front includes headers of include/hakmem": "3"}


def test_a_reader_who_does_not_see_it_is_told():
    root = ElementTree.parse(PICTURE).getroot()
    assert root.get("role") == "img"
    for layer in draw_architecture.LAYERS:
        assert re.search(rf"\b{layer}\b", root.find(f"{SVG}desc").text)
