"""Protects tools/check_architecture.py: on a small tree it finds each kind of violation, and none in a good tree."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"
sys.path.insert(0, str(TOOLS))

import check_architecture  # noqa: E402

GOOD_TREE = {
    "include/hakmem/hakmem.h": "void *hak_malloc(unsigned long size);\n",
    "src/base/base.h": "#define BASE_WORD 8\nunsigned base_bits(unsigned long word);\n",
    "src/base/base.c": '#include "base/base.h"\nunsigned base_bits(unsigned long word)\n{\n    return word & 1;\n}\n',
    "src/pool/slab.h": '#include "base/base.h"\nstruct slab {\n    int used;\n};\nint slab_refill(struct slab '
                       '*slab);\n',
    "src/pool/slab.c": (
        '#include "pool/slab.h"\n#include "observe/counters.h"\n'
        "static const int slab_sizes[] = {1, 2};\n"
        "int slab_refill(struct slab *slab)\n{\n    counters_add(1);\n"
        "    return slab->used + slab_sizes[0] + (int)base_bits(1);\n}\n"
    ),
    "src/observe/counters.h": "#include <stddef.h>\nvoid counters_add(int n);\n",
    "src/observe/counters.c": '#include "observe/counters.h"\nvoid counters_add(int n)\n{\n    (void)n;\n}\n',
    "src/api/hak.c": (
        '#include "hakmem/hakmem.h"\n#include "pool/slab.h"\n'
        "void *hak_malloc(unsigned long size)\n{\n    struct slab slab = {(int)size};\n"
        "    slab_refill(&slab);\n    return 0;\n}\n"
    ),
    "src/README.md": "`pool/slab.c:slab_refill`, `src/pool/slab.h:slab`, `base/base.h:BASE_WORD`\n",
    "python/hakmem/clean.py": "import os\n",
    "python/hakmem/heap/file.py": (
        "from typing import TYPE_CHECKING\nfrom hakmem.clean import clean\nfrom hakmem.heap import names\n"
        "if TYPE_CHECKING:\n    from hakmem.top.words import Text\n"
    ),
    "python/hakmem/heap/names.py": "",
    "python/hakmem/top/words.py": "from hakmem.heap.file import read\n",
    "python/hakmem/top/command.py": "from hakmem.serve.command import serve\nfrom hakmem.top.words import spark\n",
    "python/hakmem/serve/command.py": "",
    "README.md": "# Start\n\nSee [the source](src/README.md) and [start](#start).\n",
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
    """Objects where CMake would put them, and the commands that made them."""
    build = root / "build" / "release"
    commands = []
    for source in sorted((root / "src").rglob("*.c")):
        path = build / "CMakeFiles" / "core.dir" / "src" / (str(source.relative_to(root / "src")) + ".o")
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["gcc", "-O2", f"-I{root}/src", f"-I{root}/include", "-w", "-o", str(path), "-c", str(source)]
        subprocess.run(command, check=True)
        commands.append({"directory": str(build), "file": str(source), "command": shlex.join(command)})
    (build / "compile_commands.json").write_text(json.dumps(commands))
    return build


def violations(root, build=None):
    return [str(violation) for violation in check_architecture.check_all(root, build)]


def the_violation(root, build=None):
    found = violations(root, build)
    assert len(found) == 1, found
    return found[0]


def test_a_good_tree_has_none(tree):
    assert violations(tree, compile_tree(tree)) == []


def test_upward_include(tree):
    write(tree, "src/base/base.h", '#include "pool/slab.h"\n')
    write(tree, "src/README.md", "")
    assert the_violation(tree) == 'src/base/base.h:1: includes "pool/slab.h" of a higher layer'


def test_include_that_is_no_path_from_src(tree):
    write(tree, "src/pool/span.c", '#include "slab.h"\n')
    assert the_violation(tree) == 'src/pool/span.c:1: includes "slab.h", which is no path from src/'
    write(tree, "src/pool/span.c", '#include "pool/../base/base.h"\n')
    assert "no path from src/" in the_violation(tree)


def test_public_header_from_below(tree):
    write(tree, "src/pool/span.c", "#include <hakmem/hakmem.h>\n")
    assert "src/pool/span.c:1: includes the public hakmem/hakmem.h" in the_violation(tree)


def test_leaf_that_is_none(tree):
    write(tree, "src/observe/counters.h", '#include "pool/slab.h"\n')
    assert "higher layer" in the_violation(tree)


def test_only_the_counters_are_a_leaf(tree):
    write(tree, "src/observe/usage.h", "")
    write(tree, "src/pool/span.c", '#include "observe/usage.h"\n')
    assert "higher layer" in the_violation(tree)


@pytest.mark.parametrize("user, used", [("clean", "heap.file"), ("heap.file", "top.words"), ("top.words", "serve.page"),
                                        ("heap.names", "heap.command")])
@pytest.mark.parametrize("form", ["from hakmem.{0} import name", "def late():\n    import hakmem.{0}"])
def test_python_imports_upward(tree, user, used, form):
    """A lower layer, a package beside, and a command: at the start of a module and in a function."""
    write(tree, f"python/hakmem/{used.replace('.', '/')}.py", "")
    path = f"python/hakmem/{user.replace('.', '/')}.py"
    write(tree, path, f"{form.format(used)}\n")
    assert the_violation(tree) == f"{path}:{1 + form.count(chr(10))}: imports {used}, which is no lower layer"


def test_python_module_of_no_layer(tree):
    write(tree, "python/hakmem/util.py", "")
    assert the_violation(tree) == "python/hakmem/util.py: is in no layer of tools/python_layers.py"


def test_unknown_layer(tree):
    write(tree, "src/util/util.c", "")
    assert the_violation(tree).startswith("src/util/util.c: is in no known layer")


def test_upward_call_names_symbol_and_both_files(tree):
    write(
        tree,
        "src/base/base.c",
        "int slab_refill(void *slab);\nunsigned base_bits(unsigned long word)\n{\n    return slab_refill(&word);\n}\n",
    )
    found = the_violation(tree, compile_tree(tree))
    assert found == "src/base/base.c: uses slab_refill of src/pool/slab.c, a higher layer"


def test_two_functions_of_one_name(tree):
    text = "static int twice(int n)\n{\n    return n + n;\n}\nint %s(int n)\n{\n    return twice(n);\n}\n"
    write(tree, "src/base/base.c", GOOD_TREE["src/base/base.c"] + text % "base_twice")
    write(tree, "src/je/je.c", text % "je_twice")
    found = violations(tree, compile_tree(tree))
    assert not [each for each in found if "one-file" in each]
    write(tree, "src/pool/span.c", text % "span_twice")
    found = violations(tree, compile_tree(tree))
    assert "src/base/base.c: twice is a function of src/pool/span.c, too; the one-file source has room for one" in found


def test_upward_use_of_an_object(tree):
    write(tree, "src/api/hak.c", "int hak_state = 1;\n")
    write(tree, "src/pool/span.c", "extern int hak_state;\nint span_use(void)\n{\n    return hak_state;\n}\n")
    assert "src/pool/span.c: uses hak_state of src/api/hak.c" in the_violation(tree, compile_tree(tree))


def test_source_without_object(tree):
    build = compile_tree(tree)
    write(tree, "src/pool/span.c", "int span;\n")
    assert the_violation(tree, build).startswith("src/pool/span.c: has no object")


CIRCLE = {
    "src/pool/heap.c": "int registry_take(void);\nint heap_take(void)\n{\n    return registry_take();\n}\n",
    "src/pool/registry.c": "int remote_drain(void);\nint registry_take(void)\n{\n    return remote_drain();\n}\n",
    "src/pool/remote.c": "int heap_take(void);\nint remote_drain(void)\n{\n    return heap_take();\n}\n",
}


def test_files_of_a_folder_in_a_circle(tree):
    for name, text in CIRCLE.items():
        write(tree, name, text)
    assert the_violation(tree, compile_tree(tree)) == (
        "src/pool: files in a circle: heap.c uses registry.c (registry_take); registry.c uses remote.c (remote_drain); "
        "remote.c uses heap.c (heap_take)"
    )
    write(tree, "src/pool/remote.c", "int remote_drain(void)\n{\n    return 0;\n}\n")
    assert violations(tree, compile_tree(tree)) == []


def test_an_object_closes_a_circle_too(tree):
    write(tree, "src/pool/a.c", "int a_count;\nint b_count(void);\nint a_sum(void)\n{\n    return b_count();\n}\n")
    write(tree, "src/pool/b.c", "extern int a_count;\nint b_count(void)\n{\n    return a_count;\n}\n")
    found = the_violation(tree, compile_tree(tree))
    assert found == "src/pool: files in a circle: a.c uses b.c (b_count); b.c uses a.c (a_count)"


def test_two_circles_of_one_folder_are_two_violations(tree):
    for one, other in (("a", "b"), ("x", "y")):
        write(tree, f"src/os/{one}.c", f"int {other}_f(void);\nint {one}_f(void)\n{{\n    return {other}_f();\n}}\n")
        write(tree, f"src/os/{other}.c", f"int {one}_f(void);\nint {other}_f(void)\n{{\n    return {one}_f();\n}}\n")
    assert violations(tree, compile_tree(tree)) == [
        "src/os: files in a circle: a.c uses b.c (b_f); b.c uses a.c (a_f)",
        "src/os: files in a circle: x.c uses y.c (y_f); y.c uses x.c (x_f)",
    ]


# ---- The call graph ----

HOPS = """Prose.

| function | what it adds |
|---|---|
| `api/hak.c:hak_free` | the name |
| `api/fast.h:free_or` | the fast path |

| function | what it adds |
|---|---|
| `api/hak.c:hak_free` | the name |
| `api/hak.c:free_slow` | what the fast path is handed |
| `api/hak.c:free_locked` | a static function |
| `pool/slab.c:slab_refill` | another file's |
| `base/base.c:base_bits` | a lower layer's |
"""


@pytest.fixture
def hops(tree):
    write(
        tree,
        "src/api/fast.h",
        "#define INLINE static inline __attribute__((always_inline))\n"
        "INLINE void free_or(int n, void (*slow)(int))\n{\n    if (n)\n        slow(n);\n}\n",
    )
    write(
        tree,
        "src/api/hak.c",
        '#include "api/fast.h"\n#include "pool/slab.h"\n'
        "static void free_locked(int n)\n{\n    struct slab slab = {n};\n    slab_refill(&slab);\n}\n"
        "static void free_slow(int n)\n{\n    free_locked(n);\n}\n"
        "void hak_free(int n)\n{\n    free_or(n, free_slow);\n}\n",
    )
    write(tree, "src/README.md", HOPS)
    return tree


def test_hops_that_are_calls(hops):
    assert violations(hops, compile_tree(hops)) == []


def test_hop_over_a_function(hops):
    write(hops, "src/README.md", HOPS.replace("| `api/hak.c:free_locked` | a static function |\n", ""))
    found = the_violation(hops, compile_tree(hops))
    assert found == "src/README.md:12: api/hak.c:free_slow does not call pool/slab.c:slab_refill"


def test_hop_back(hops):
    write(hops, "src/README.md", HOPS + "| `pool/slab.c:slab_refill` | from below |\n")
    assert "base/base.c:base_bits does not call pool/slab.c:slab_refill" in the_violation(hops, compile_tree(hops))


def test_an_address_that_is_kept_is_no_hop(hops):
    write(hops, "src/api/fast.h", "static inline void free_or(int n, void (*slow)(int))\n{\n    (void)(slow + n);\n}\n")
    found = the_violation(hops, compile_tree(hops))
    assert found == "src/README.md:11: api/hak.c:hak_free does not call api/hak.c:free_slow"


def test_hop_that_is_no_function(hops):
    write(hops, "src/README.md", "| `pool/slab.h:slab` | a type |\n")
    assert the_violation(hops, compile_tree(hops)) == "src/README.md:1: pool/slab.h has no function slab"


HIDDEN = '__attribute__((visibility("hidden")))'


@pytest.mark.parametrize(
    "text, problem",
    [
        (f"{HIDDEN} int span(void)\n{{\n    return 1;\n}}\n", "src/pool/span.c: nothing in src/ uses span"),
        (f"{HIDDEN} int span = 1;\n", "src/pool/span.c: nothing in src/ uses span"),
        ('#include "pool/span.h"\n', "src/pool/span.h: nothing in src/ uses span_inline"),
        (
            f"{HIDDEN} int span_b(void);\n{HIDDEN} int span_a(void)\n{{\n    return span_b();\n}}\n"
            "int span_b(void)\n{\n    return span_a();\n}\n",
            "src/pool/span.c: nothing in src/ uses span_a",
        ),
    ],
)
def test_dead_code(tree, text, problem):
    write(tree, "src/pool/span.h", "static inline int span_inline(void)\n{\n    return 1;\n}\n")
    write(tree, "src/pool/span.c", text)
    assert violations(tree, compile_tree(tree))[0] == problem


@pytest.mark.parametrize(
    "text",
    [
        f"{HIDDEN} int used(void)\n{{\n    return 1;\n}}\nint hak_span(void)\n{{\n    return used();\n}}\n",
        f"{HIDDEN} int used(void)\n{{\n    return 1;\n}}\nint (*const hak_table[])(void) = {{ used }};\n",
        f"__attribute__((constructor)) {HIDDEN} void used(void)\n{{\n}}\n",
        # Only debug builds call it.
        f"{HIDDEN} int used(void)\n{{\n    return 1;\n}}\n"
        "#if HAKMEM_BUILD_DEBUG\nint hak_span(void)\n{\n    return used();\n}\n#endif\n",
    ],
)
def test_code_that_is_used(tree, text):
    write(tree, "src/pool/span.c", text)
    assert violations(tree, compile_tree(tree)) == []


# ---- Labels ----


def test_labels_stated_once_and_cited(tree):
    write(tree, "src/pool/slab.h",
          "/*\n * H1: used counts blocks.\n * H2 (order): a bit is set.\n */\n/* H3: the last. */\n")
    write(tree, "src/pool/slab.c", '/* H1 */\n/* H2: by the owner, under W-O2. C17 and -O1 and "V8" cite nothing. */\n')
    write(tree, "tests/unit/test_slab.c", '/* H1 to H3 */\nconst char *said = "H3: slab";\n')
    write(tree, "docs/design.md",
          "| names | about | stated in |\n|---|---|---|\n| H1-H3 | slabs | `pool/slab.h` |\n\nH2.\n")
    write(tree, "src/README.md", "")
    assert violations(tree) == []


def test_label_stated_twice(tree):
    write(tree, "src/pool/slab.h", "/* H1: used counts blocks. */\n")
    write(tree, "tests/unit/heaps.h", "/*\n * H1: another.\n */\n")
    write(tree, "src/README.md", "")
    assert the_violation(tree) == "tests/unit/heaps.h:2: states H1, as src/pool/slab.h:1 does"


@pytest.mark.parametrize(
    "file, text, label",
    [
        ("src/pool/slab.c", "/* H1 */\n", "H1"),
        ("src/pool/slab.c", "/* H1: a source states nothing. */\n", "H1"),
        ("src/pool/slab.h", "/* Beside H1: nothing. */\n", "H1"),
        ("tests/unit/test_slab.c", 'fail("H1: %u");\n', "H1"),
        ("tests/process/life/test_life.py", "x = 1  # (H1)\n", "H1"),
        ("docs/design.md", "The order (H1) holds.\n", "H1"),
        ("README.md", "H2-H3\n", "H3"),
    ],
)
def test_label_that_nothing_states(tree, file, text, label):
    write(tree, "src/pool/span.h", "/* H2: stated. */\n")
    write(tree, file, text)
    write(tree, "src/README.md", "")
    assert the_violation(tree) == f"{file}:1: cites {label}, which no header states"


def test_label_that_the_table_has_not(tree):
    write(tree, "src/pool/slab.h", "/*\n * H1: one.\n * H2: two.\n */\n")
    write(tree, "docs/design.md", "| H1 | slabs | `pool/slab.h` |\n")
    write(tree, "src/README.md", "")
    assert the_violation(tree) == "src/pool/slab.h:3: states H2, which docs/design.md does not say in its table"
    write(tree, "docs/design.md", "| H1-H2 | slabs | `pool/heap.h` |\n")
    assert [found.split(":")[2] for found in violations(tree)] == [
        " states H1, which docs/design.md does not say in its table",
        " states H2, which docs/design.md does not say in its table",
    ]


# ---- Names in documents ----


@pytest.mark.parametrize(
    "reference, problem",
    [
        ("pool/gone.c:slab_refill", "pool/gone.c does not exist"),
        ("pool/slab.c:slab_gone", "pool/slab.c does not define slab_gone"),
        ("pool/slab.h:slab_refill", "pool/slab.h does not define slab_refill"),
        ("pool/slab.c:base_bits", "pool/slab.c does not define base_bits"),
        ("pool/slab.c:used", "pool/slab.c does not define used"),
        ("src/pool/slab.c:counters_add()", "src/pool/slab.c does not define counters_add"),
    ],
)
@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "src/README.md", "docs/deep/design.md"])
def test_name_that_is_not_there(tree, document, reference, problem):
    write(tree, document, f"First line.\n\nSee `{reference}`.\n")
    assert the_violation(tree) == f"{document}:3: {problem}"


@pytest.mark.parametrize(
    "text, name",
    [
        ("static inline int\nf(int a,\n  int b)\n{\n}\n", "f"),
        ("void f(void) __attribute__((cold)) {}\n", "f"),
        ('extern "C" {\nvoid f(void)\n{\n}\n}\n', "f"),
        ("#define M(x) \\\n    (x)\n", "M"),
        ("enum tier { TIER_HOT, TIER_DRAINING = 2 };\n", "TIER_DRAINING"),
        ("enum tier { TIER_HOT };\n", "tier"),
        ("typedef void (*handler)(int);\n", "handler"),
        ("static struct pool the_pool;\n", "the_pool"),
        ("_Atomic unsigned table[2][3] = {{0}};\n", "table"),
        ("struct alone {\n    int a;\n};\n", "alone"),
    ],
)
def test_what_counts_as_a_definition(text, name):
    assert check_architecture.c_defines(text, name)


@pytest.mark.parametrize(
    "text, name",
    [
        ("int f(int a);\n", "f"),
        ("int g(void)\n{\n    return f(1);\n}\n", "f"),
        ("int g(void)\n{\n    int f = 1;\n    return f;\n}\n", "f"),
        ("/* void f(void) {} */\n", "f"),
        ('const char *s = "void f(void) {}";\n', "f"),
        ("extern int f;\n", "f"),
        ("#if f\n#endif\n", "f"),
    ],
)
def test_what_does_not(text, name):
    assert not check_architecture.c_defines(text, name)


def test_names_of_python_files(tree):
    write(tree, "tools/run.py", "def start():\n    pass\n")
    write(tree, "README.md", "`tools/run.py:start`\n")
    assert violations(tree) == []
    write(tree, "README.md", "`tools/run.py:stop`\n")
    assert "does not define stop" in the_violation(tree)


def test_long_file(tree):
    write(tree, "src/pool/long.c", "int a;\n" * 700)
    assert violations(tree) == []
    write(tree, "src/pool/long.c", "int a;\n" * 701)
    assert the_violation(tree) == "src/pool/long.c: has 701 lines, more than 700"


def test_broken_links(tree):
    write(tree, "docs/a.md", "# Title of A\n\n[gone](gone.md)\n")
    assert the_violation(tree) == "docs/a.md:3: links to gone.md, which does not exist"
    write(tree, "docs/a.md",
          "# Title of A\n\n[good](../README.md#start) [own](#title-of-a) [web](https://a.example/b)\n")
    assert violations(tree) == []
    write(tree, "docs/a.md", "[bad](../README.md#end)\n")
    assert "no such heading" in the_violation(tree)


def test_links_in_code_are_no_links(tree):
    write(tree, "docs/a.md", "`[a](b)`\n\n```\n[a](b)\n```\n")
    assert violations(tree) == []


def test_the_command_exits_with_1(tree):
    command = [sys.executable, str(TOOLS / "check_architecture.py"), "--root", str(tree)]
    assert subprocess.run(command, capture_output=True).returncode == 0
    write(tree, "README.md", "[gone](gone.md)\n")
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout == "README.md:1: links to gone.md, which does not exist\n1 violations\n"
