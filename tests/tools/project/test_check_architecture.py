"""Protects tools/check_architecture.py: it finds a planted fault of each kind, and none in a good tree."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"
sys.path.insert(0, str(TOOLS))

import check_architecture  # noqa: E402

HIDDEN = '__attribute__((visibility("hidden")))'
GOOD_TREE = {
    "include/hakmem/hakmem.h": "void *hak_malloc(unsigned long size);\n",
    "src/base/base.h": "#define BASE_WORD 8\nunsigned base_bits(unsigned long word);\n",
    "src/base/base.c": '#include "base/base.h"\nunsigned base_bits(unsigned long word)\n{\n    return word & 1;\n}\n',
    "src/pool/slab.h": '/*\n * H1: used counts blocks.\n */\n#include "base/base.h"\nstruct slab {\n    int used;\n};\n'
                       "int slab_refill(struct slab *slab);\n",
    "src/pool/slab.c": (
        '#include "pool/slab.h"\n#include "observe/counters.h"\n'
        "static const int slab_sizes[] = {1, 2};\n"
        "int slab_refill(struct slab *slab)\n{\n    counters_add(1); /* H1 */\n"
        "    return slab->used + slab_sizes[0] + (int)base_bits(1);\n}\n"
    ),
    "src/observe/counters.h": "#include <stddef.h>\nvoid counters_add(int n);\n",
    "src/observe/counters.c": '#include "observe/counters.h"\nvoid counters_add(int n)\n{\n    (void)n;\n}\n',
    "src/api/fast.h": (
        "static inline __attribute__((always_inline)) void free_or(int n, void (*slow)(int))\n"
        "{\n    if (n)\n        slow(n);\n}\n"
    ),
    "src/api/hak.c": (
        '#include "hakmem/hakmem.h"\n#include "api/fast.h"\n#include "pool/slab.h"\n'
        "static void free_slow(int n)\n{\n    struct slab slab = {n};\n    slab_refill(&slab);\n}\n"
        "void hak_free(int n)\n{\n    free_or(n, free_slow);\n}\n"
        f"{HIDDEN} int used(void)\n{{\n    return 1;\n}}\nint (*const hak_table[])(void) = {{ used }};\n"
    ),
    "src/README.md": "`src/pool/slab.h:slab`, `base/base.h:BASE_WORD`\n\n| `api/hak.c:hak_free` | the name |\n"
                     "| `api/fast.h:free_or` | the fast path |\n\n| `api/hak.c:hak_free` | the name |\n"
                     "| `api/hak.c:free_slow` | handed on |\n| `pool/slab.c:slab_refill` | another file's |\n",
    "docs/dev/design.md": "| H1 | slabs | `pool/slab.h` |\n\nH1 holds. `[no](link)`\n",
    "python/hakmem/clean.py": "import os\n",
    "python/hakmem/heap/file.py": (
        "from typing import TYPE_CHECKING\nfrom hakmem.clean import clean\nfrom hakmem.heap import names\n"
        "if TYPE_CHECKING:\n    from hakmem.top.words import Text\n"
    ),
    "python/hakmem/heap/names.py": "",
    "python/hakmem/top/words.py": "from hakmem.heap.file import read\n",
    "README.md": "# Start\n\nSee [the source](src/README.md), [start](#start) and `tools/run.py:start`.\n",
    "tools/run.py": "def start():\n    pass\n",
}
# {file: (its text, what the violation names)}. The text is added to a file that is there.
FAULTS_OF_TEXT = {
    "src/base/up.h": ('#include "pool/slab.h"\n', "pool/slab.h"),
    "src/pool/beside.c": ('#include "slab.h"\n', "slab.h"),
    "src/pool/public.c": ("#include <hakmem/hakmem.h>\n", "hakmem/hakmem.h"),
    "src/pool/usage.c": ('#include "observe/usage.h"\n', "observe/usage.h"),
    "src/util/util.c": ("", "layer"),
    "src/pool/stated_again.h": ("/*\n * H1: another.\n */\n", "H1"),
    "src/pool/cites.c": ("/* H2 */\n", "H2"),
    "src/pool/untold.h": ("/*\n * H3: not in the table.\n */\n", "H3"),
    "src/pool/long.c": ("int a;\n" * 701, "701"),
    "python/hakmem/units.py": ("from hakmem.top import words\n", "top.words"),
    "python/hakmem/nowhere.py": ("", "python_layers.py"),
    "docs/gone.md": ("`pool/gone.c:slab_refill`\n", "pool/gone.c"),
    "docs/undefined.md": ("`pool/slab.c:base_bits`\n", "base_bits"),
    "docs/link.md": ("[gone](nothing.md)\n", "nothing.md"),
    "docs/heading.md": ("[bad](../README.md#end)\n", "end"),
}
TWICE = "static int twice(int n)\n{\n    return n + n;\n}\nint %s(int n)\n{\n    return twice(n);\n}\n"
FAULTS_OF_CODE = {
    "src/base/calls.c": ("int slab_refill(void *);\nint base_calls(void)\n{\n    return slab_refill(0);\n}\n",
                         "slab_refill"),
    "src/pool/uses.c": ("extern int (*const hak_table[])(void);\n"
                        "int pool_uses(void)\n{\n    return hak_table[0]();\n}\n", "hak_table"),
    "src/base/twice.c": (TWICE % "base_t", "twice"),
    "src/front/twice.c": (TWICE % "front_t", ""),
    "src/os/one.c": ("int other(void);\nint one(void)\n{\n    return other();\n}\n", ""),
    "src/os/other.c": ("int one(void);\nint other(void)\n{\n    return one();\n}\n", ""),
    "src/pool/dead.c": (f"{HIDDEN} int dead(void)\n{{\n    return 1;\n}}\n", "dead"),
}


@pytest.fixture
def tree(tmp_path):
    for name, text in GOOD_TREE.items():
        write(tmp_path, name, text)
    return tmp_path


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def compile_tree(root):
    """Objects where CMake would put them, and the commands that made them, of two libraries."""
    build = root / "build" / "release"
    commands = []
    for target, words in (("hakmem_core", []), ("hakmem_secure_core", ["-DSECURE"])):
        for source in sorted((root / "src").rglob("*.c")):
            path = build / "CMakeFiles" / f"{target}.dir" / "src" / (str(source.relative_to(root / "src")) + ".o")
            path.parent.mkdir(parents=True, exist_ok=True)
            command = ["gcc", "-O2", *words, f"-I{root}/src", f"-I{root}/include", "-w", "-o", str(path), "-c",
                       str(source)]
            subprocess.run(command, check=True)
            commands.append({"directory": str(build), "file": str(source), "command": shlex.join(command)})
    (build / "compile_commands.json").write_text(json.dumps(commands))
    return build


def violations(root, build=None):
    """{file: what is wrong in it}."""
    found = {}
    for violation in map(str, check_architecture.check_all(root, build)):
        name, _, what = violation.partition(":")
        found.setdefault(name, []).append(what)
    return found


def assert_found(found, faults):
    for name, (_, word) in faults.items():
        assert not word or any(word in what for what in found.get(name, ())), (name, word, found)
    others = {name: what for name, what in found.items() if name not in faults and Path(name).suffix}
    assert others == {}


def test_a_good_tree_has_none(tree):
    assert violations(tree, compile_tree(tree)) == {}


def test_faults_that_a_text_shows(tree):
    """Includes and imports upward, labels, names and links in documents, and a file that is too long."""
    for name, (text, _) in FAULTS_OF_TEXT.items():
        write(tree, name, text)
    assert_found(violations(tree), FAULTS_OF_TEXT)


def test_faults_that_objects_show(tree):
    """Calls and uses upward, two functions of a name, files in a circle, code that nothing uses."""
    for name, (text, _) in FAULTS_OF_CODE.items():
        write(tree, name, text)
    found = violations(tree, compile_tree(tree))
    assert_found(found, FAULTS_OF_CODE)
    assert any("one.c" in what and "other.c" in what for what in found["src/os"]), found


def test_faults_of_one_library_alone(tree):
    """A circle that only the secure one has. A function that only the secure one uses is no dead code."""
    write(tree, "src/os/one.c", "#ifdef SECURE\nint other(void);\nint one(void)\n{\n    return other();\n}\n#endif\n")
    write(tree, "src/os/other.c", "int one(void);\nint other(void)\n{\n"
                                  "#ifdef SECURE\n    return one();\n#endif\n    return 0;\n}\n")
    write(tree, "src/base/used.c", f"{HIDDEN} int base_used(void)\n{{\n    return 1;\n}}\n")
    write(tree, "src/base/user.c", "int base_used(void);\nint user(void)\n{\n"
                                   "#ifdef SECURE\n    return base_used();\n#endif\n    return 0;\n}\n")
    (fault,) = violations(tree, compile_tree(tree)).items()
    assert fault[0] == "src/os" and "one.c" in fault[1][0] and "other.c" in fault[1][0], fault


def test_hops_that_are_no_calls(tree):
    """One row is left out, one goes back, and an address that is kept is no call."""
    text = GOOD_TREE["src/README.md"]
    build = compile_tree(tree)
    for wrong, word in ((text.replace("| `api/hak.c:free_slow` | handed on |\n", ""), "pool/slab.c:slab_refill"),
                        (f"{text}| `api/hak.c:hak_free` | from below |\n", "api/hak.c:hak_free"),
                        ("| `pool/slab.h:slab` | a type |\n", "slab")):
        write(tree, "src/README.md", wrong)
        (what,) = violations(tree, build)["src/README.md"]
        assert word in what
    write(tree, "src/README.md", text)
    write(tree, "src/api/fast.h", "static inline void free_or(int n, void (*slow)(int))\n{\n    (void)(slow + n);\n}\n")
    (what,) = violations(tree, compile_tree(tree))["src/README.md"]
    assert "api/hak.c:free_slow" in what


def test_a_source_without_an_object(tree):
    build = compile_tree(tree)
    write(tree, "src/pool/span.c", "int span;\n")
    assert list(violations(tree, build)) == ["src/pool/span.c"]


@pytest.mark.parametrize("text, name, defines", [
    ("static inline int\nf(int a,\n  int b)\n{\n}\n", "f", True),
    ("#define M(x) \\\n    (x)\n", "M", True),
    ("enum tier { TIER_HOT, TIER_DRAINING = 2 };\n", "TIER_DRAINING", True),
    ("typedef void (*handler)(int);\n", "handler", True),
    ("_Atomic unsigned table[2][3] = {{0}};\n", "table", True),
    ("int f(int a);\n", "f", False),
    ("int g(void)\n{\n    return f(1);\n}\n", "f", False),
    ("/* void f(void) {} */\n", "f", False),
    ("extern int f;\n", "f", False),
])
def test_what_counts_as_a_definition(text, name, defines):
    assert check_architecture.c_defines(text, name) == defines


def test_the_command_exits_with_1(tree):
    command = [sys.executable, str(TOOLS / "check_architecture.py"), "--root", str(tree)]
    assert subprocess.run(command, capture_output=True).returncode == 0
    write(tree, "README.md", "[gone](gone.md)\n")
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1 and result.stdout.startswith("README.md:1:")
