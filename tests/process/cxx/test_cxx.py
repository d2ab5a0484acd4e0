"""Protects the C++ headers, with both compilers, each standard and both libraries, and docs/cxx.md's examples."""

import re
import signal
from pathlib import Path

import pytest

import blackbox
from messages import SIZE, aborted

HERE = Path(__file__).resolve().parent
PAGE = blackbox.REPOSITORY / "docs/cxx.md"
# Any warning about the headers is an error. -O0 takes half the time.
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
STRICT = ["-Wpedantic", "-Wshadow", "-O0", "-g0"]


@pytest.fixture(scope="module")
def static_library():
    return blackbox.LIBRARY_FOLDER / "libhakmem.a"


@pytest.fixture(scope="module")
def build(tmp_path_factory, static_library):
    """build(source, *flags, compiler=) links to the static library, beside the system's malloc. ccache has objects that
    were compiled before."""
    folder = tmp_path_factory.mktemp("cxx")
    built = {}

    def run(compiler, *words):
        command = [compiler, "-std=c++17", *WARNINGS, *STRICT, "-DHAK_STATIC", f"-I{blackbox.INCLUDE_FOLDER}", *words]
        blackbox.call(*command, **blackbox.compile_cache(blackbox.REPOSITORY))

    def make(source, *flags, compiler="g++"):
        key = (source, flags, compiler)
        if key not in built:
            output = folder / f"program{len(built)}"
            run(compiler, *flags, "-c", HERE / source, "-o", f"{output}.o")
            run(compiler, *flags, f"{output}.o", static_library, "-pthread", "-o", output)
            built[key] = output
        return built[key]

    return make


def good(result, output):
    assert (result.status, result.stdout, result.stderr) == (0, output, ""), result.report()


# Checked sizes show that each container passes its block's own size. In C++23 libc++'s containers request whole blocks,
# and clang 14 knows it by its older name.
@pytest.mark.parametrize("compiler, standard, flags", [
    ("g++", "c++17", []),
    ("g++", "c++23", ["-DHAK_CHECK_SIZES=1"]),
    ("clang++", "c++20", []),
    ("clang++", "c++2b", ["-DHAK_CHECK_SIZES=1", "-stdlib=libc++"]),
], ids=str)
def test_header(build, compiler, standard, flags):
    libcxx = "-stdlib=libc++" in flags
    for source, output in (("allocator.cpp", "allocate_at_least by the library\ndone\n" if libcxx else "done\n"),
                           ("memory_resource.cpp", "done\nlate\n")):
        good(blackbox.run([build(source, f"-std={standard}", *flags, compiler=compiler)]), output)


HEAPS = ["heap_allocator", "aligned_heap_allocator", "heap_resource", "borrowed_heap_resource"]
PROCESS = ["allocator", "aligned_allocator", "process_resource"]


def test_wrong_size(build):
    for case in (*HEAPS, *PROCESS):
        checked = blackbox.run([build("wrong_size.cpp", "-DHAK_CHECK_SIZES=1"), case])
        said = aborted(checked)
        assert said.function.endswith("_sized") and said.kind == SIZE, checked.report()
        unchecked = blackbox.run([build("wrong_size.cpp"), case])
        if case in HEAPS:
            assert unchecked.status == -signal.SIGABRT and unchecked.stderr.count("\n") == 1, unchecked.report()
        else:
            good(unchecked, "not seen\n")


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_without_exceptions_and_rtti(build, compiler):
    program = build("bare.cpp", "-fno-exceptions", "-fno-rtti", compiler=compiler)
    good(blackbox.run([program]), "done\n")
    out_of_memory = blackbox.run([program, "more"])
    assert (out_of_memory.status, out_of_memory.stdout) == (-signal.SIGABRT, ""), out_of_memory.report()


def test_older_standard_is_refused(tmp_path):
    source = tmp_path / "old.cpp"
    source.write_text("#include <hakmem/allocator.hpp>\nint main() {}\n")
    with pytest.raises(AssertionError, match="#error"):
        blackbox.compile_program(source, tmp_path / "old", "-std=c++14")


def test_resources_of_two_objects(library, static_library, tmp_path):
    """Equal on one copy of HAKMEM, and unequal where each object has its own copy."""
    shared = [library, f"-Wl,-rpath,{library.parent}"]
    own = ["-DHAK_STATIC", static_library, "-Wl,--exclude-libs,ALL"]
    for name, libraries, output in (("shared", shared, "equal\n"), ("own", own, "not equal\n")):
        hidden = ["-fvisibility=hidden", "-fvisibility-inlines-hidden"]
        plugin = tmp_path / f"libplugin-{name}.so"
        blackbox.compile_program(HERE / "plugin.cpp", plugin, *hidden, *libraries, shared=True)
        host = blackbox.compile_program(
            HERE / "host.cpp", tmp_path / name, *hidden, plugin, f"-Wl,-rpath,{tmp_path}", *libraries
        )
        good(blackbox.run([host]), output)


EXAMPLES = re.findall(r"^```cpp\n(.*?)^```\n\n^```text\n(.*?)^```\n", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_every_example_has_its_output():
    assert len(EXAMPLES) == PAGE.read_text().count("```cpp") > 0


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(library, tmp_path, number):
    """Each example of the page prints the output below it."""
    program, output = EXAMPLES[number]
    source = tmp_path / "example.cpp"
    source.write_text(program)
    built = blackbox.compile_program(source, tmp_path / "example", *STRICT, library, f"-Wl,-rpath,{library.parent}")
    good(blackbox.run([built]), output)
