"""Protects the examples of "Your first change" in CONTRIBUTING.md: they apply, compile, and have an effect."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

import blackbox

ROOT = blackbox.REPOSITORY
DIFFS = sorted((ROOT / "docs/dev/first-change").glob("*.diff"))
NAMES = ["benchmark", "counter", "option", "size-class"]
# What the targets below are built from, and what the changes touch besides.
NEEDED = ("CMakeLists.txt", "cmake", "include", "src", "tools", "bench/*.*", "bench/drivers", "docs/*.md",
          "python/hakmem/bench", "tests/process/drivers")
TARGETS = ("hakmem", "gen_docs", "bench_staircase")


def copy_tree(folder):
    """Copies the files that git knows, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z", *NEEDED], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def apply(folder, diff, *options):
    """Applies a diff as a reader does. Git would leave out files of another repository around the folder."""
    return subprocess.run(["git", "apply", *options, diff], cwd=folder, capture_output=True, text=True, check=False,
                          env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)})


def call(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first-change") / "tree"
    copy_tree(folder)
    return folder


@pytest.fixture(scope="module")
def changed(tree):
    """The tree with all the changes, and build/ with the targets. Unoptimised: that takes a third of the time."""
    folder = tree.with_name("changed")
    shutil.copytree(tree, folder)
    for diff in DIFFS:
        done = apply(folder, diff)
        assert done.returncode == 0, done.stderr
    env = {**os.environ, **blackbox.compile_cache(folder)}
    call("cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Release",
         "-DCMAKE_C_FLAGS_RELEASE=-O0 -DNDEBUG", "-DHAKMEM_WERROR=ON", "-DHAKMEM_TESTS=OFF", env=env)
    call("cmake", "--build", folder / "build", "--parallel", str(os.cpu_count()), "--target", *TARGETS, env=env)
    return folder


def library(changed):
    return changed / "build/lib/libhakmem.so"


def run_on(changed, program, **settings):
    """Runs a Python program on the changed library, with Python's blocks from malloc."""
    done = blackbox.run([sys.executable, "-c", program], preload=library(changed),
                        env={"PYTHONMALLOC": "malloc", **settings})
    assert done.status == 0, done.report()
    return done


@pytest.mark.parametrize("name", NAMES)
def test_each_applies_to_this_tree(tree, name):
    diff = ROOT / f"docs/dev/first-change/{name}.diff"
    done = apply(tree, diff, "--check")
    assert done.returncode == 0, f"bring {diff.relative_to(ROOT)} up to date with the tree:\n{done.stderr}"


def test_the_page_has_each():
    assert [diff.stem for diff in DIFFS] == NAMES
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"(docs/dev/first-change/{name}.diff)" in page for name in NAMES)


# ---- The option ----

FAILS = "try:\n    bytearray(1 << 60)\nexcept MemoryError:\n    print('refused')"


def test_the_option_is_in_the_documents_and_among_the_settings(changed):
    generator, page = changed / "build/bin/gen_docs", changed / "docs/options.md"
    stale = blackbox.run([generator, "options", "--check", page])
    assert stale.status == 1, stale.report()
    page.write_text(call(generator, "options"))
    assert "\n| `HAKMEM_REPORT_FAILURES` | 0 | 0 or 1 |" in page.read_text()
    assert blackbox.run([generator, "options", "--check", page]).status == 0
    assert re.search(r"HAKMEM_REPORT_FAILURES\W+1\b", run_on(changed, "", HAKMEM_VERBOSE="1",
                                                              HAKMEM_REPORT_FAILURES="on").stderr)


def test_the_option_has_an_effect(changed):
    silent, said = run_on(changed, FAILS), run_on(changed, FAILS, HAKMEM_REPORT_FAILURES="1")
    assert silent.stdout == said.stdout == "refused\n"
    assert silent.stderr == "" and said.stderr.startswith("hakmem: ")


def test_hakmem_run_takes_the_option(changed):
    words = ["run", "--set", "report_failures=1", "--", sys.executable, "-c", FAILS]
    done = blackbox.run([sys.executable, "-m", "hakmem", *words],
                        env={"HAKMEM_BUILD_DIR": str(changed / "build"), "PYTHONMALLOC": "malloc"})
    assert done.status == 0 and "hakmem: " in done.stderr, done.report()


# ---- The counter ----

# 3,072 is a size class of 21 blocks a slab; a bytearray of 3,000 is a block of it.
BLOCKS, IN_A_SLAB = 10_000, 21
HOLDS = f"kept = [bytearray(3000) for _ in range({BLOCKS})]\nprint('ready', flush=True)\ninput()"


def test_the_counter_is_in_hakmem_stats(changed):
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=blackbox.environment({"PYTHONMALLOC": "malloc"}, preload=library(changed))) as process:
        assert process.stdout.readline() == "ready\n"
        stats = [sys.executable, "-m", "hakmem", "stats", str(process.pid)]
        counters = json.loads(call(*stats, "--json"))["counters"]
        shown = call(*stats)
        process.communicate("\n")
    assert BLOCKS // IN_A_SLAB <= counters["slabs_filled"] <= counters["slabs_carved"]
    assert re.search(rf"\bslabs filled\W+{counters['slabs_filled']:,}\b", shown), shown


# ---- The size class ----

SIZES = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc_usable_size.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
print(*(libc.malloc_usable_size(libc.malloc(size)) for size in (512, 513, 576, 577, 8193, 9216, 10240, 16384, 16385)))
"""


def test_the_size_class_serves_its_sizes(changed):
    assert run_on(changed, SIZES).stdout == "512 576 576 640 10240 10240 10240 16384 20480\n"
    page = call(changed / "build/bin/gen_docs", "classes")
    assert "\n| 576 | 513 to 576 |" in page and "\n| 640 | 577 to 640 |" in page and "| 9216 |" not in page


# ---- The benchmark ----


def test_the_benchmark_runs_and_is_a_row(changed):
    line = call(changed / "build/bin/bench_staircase", "50", "100").splitlines()[-1]
    assert line.startswith("RESULT name=staircase ") and f" ops={2 * 50 * 100} " in line
    for name in ("rows.toml", "deterministic.toml"):
        rows = tomllib.loads((changed / "python/hakmem/bench" / name).read_text())["row"]
        assert [row["command"][0] for row in rows if row["name"] == "staircase"] == ["bench_staircase"]
    assert 'Driver("bench_staircase"' in (changed / "tests/process/drivers/test_drivers.py").read_text()
