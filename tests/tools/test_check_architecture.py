"""tools/check_architecture.py finds each kind of violation on a small tree, and none where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

import check_architecture  # noqa: E402

GOOD_TREE = {
    "include/hakmem/hakmem.h": "void *hak_malloc(unsigned long size);\n",
    "src/base/base.h": "#define BASE_WORD 8\nunsigned base_bits(unsigned long word);\n",
    "src/base/base.c": '#include "base/base.h"\nunsigned base_bits(unsigned long word)\n{\n    return word & 1;\n}\n',
    "src/pool/slab.h": '#include "base/base.h"\nstruct slab {\n    int used;\n};\nint slab_refill(struct slab *slab);\n',
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
    """Objects where CMake would put them."""
    build = root / "build" / "release"
    for source in sorted((root / "src").rglob("*.c")):
        path = build / "CMakeFiles" / "core.dir" / "src" / (str(source.relative_to(root / "src")) + ".o")
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-c", "-w", f"-I{root}/src", f"-I{root}/include", str(source), "-o", str(path)], check=True)
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


def test_upward_use_of_an_object(tree):
    write(tree, "src/api/hak.c", "int hak_state = 1;\n")
    write(tree, "src/pool/span.c", "extern int hak_state;\nint span_use(void)\n{\n    return hak_state;\n}\n")
    assert "src/pool/span.c: uses hak_state of src/api/hak.c" in the_violation(tree, compile_tree(tree))


def test_source_without_object(tree):
    build = compile_tree(tree)
    write(tree, "src/pool/span.c", "int span;\n")
    assert the_violation(tree, build).startswith("src/pool/span.c: has no object")


def test_the_fake_system_needs_no_object(tree):
    build = compile_tree(tree)
    write(tree, "src/os/fake.c", "int fake;\n")
    assert violations(tree, build) == []


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
    write(tree, "docs/a.md", "# Title of A\n\n[good](../README.md#start) [own](#title-of-a) [web](https://a.example/b)\n")
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
