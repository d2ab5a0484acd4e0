"""Protects the one-file source of `hakmem amalgamate`: reproducible, free of warnings, and equal to the libraries."""

import json
import re
import signal
import sys
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
sys.path[:0] = [str(blackbox.REPOSITORY / "tools"), str(TESTS / "cost/golden")]

import amalgamate  # noqa: E402
import check  # noqa: E402
import fast_path  # noqa: E402
from subject import Subject  # noqa: E402

COMMAND = blackbox.REPOSITORY / "hakmem"
VERSION = amalgamate.version_of(blackbox.REPOSITORY)
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
COMPILERS = ["gcc", "clang"]
KINDS = {"names": [], "override": ["-DHAKMEM_OVERRIDE=1"]}
ARCHIVES = {"names": "libhakmem.a", "override": "libhakmem-override.a"}


def call(*argv, cwd=None, **variables):
    result = blackbox.run(argv, cwd=cwd, env=variables, timeout=120)
    assert result.status == 0 and result.stderr == "", f"{argv}\n{result.report()}"
    return result.stdout


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The folder in which the command put the one-file source."""
    folder = tmp_path_factory.mktemp("onefile") / "made anew"
    result = blackbox.run([COMMAND, "amalgamate", folder], cwd="/")
    assert result.status == 0 and f"made {folder}/hakmem.c" in result.stderr, result.report()
    return folder


def compile_source(folder, output, compiler, *flags):
    """Compiles hakmem.c. Names without a folder let ccache answer in the next run, whose folder has another name."""
    call(compiler, *flags, "-c", "hakmem.c", "-o", output, cwd=folder, **blackbox.compile_cache(folder))
    return folder / output


@pytest.fixture(scope="session")
def compiled_object(folder):
    """compiled_object(compiler, kind): hakmem.c as an object, compiled once."""
    built = {}

    def build(compiler, kind):
        if (compiler, kind) not in built:
            built[compiler, kind] = compile_source(folder, f"{compiler}-{kind}.o", compiler, "-std=c17", "-O2", "-fPIC",
                                                   *STRICT, *KINDS[kind])
        return built[compiler, kind]

    return build


@pytest.fixture(params=[(compiler, kind) for compiler in COMPILERS for kind in KINDS], ids="-".join)
def build(request, compiled_object):
    """(compiler, kind, object)"""
    return *request.param, compiled_object(*request.param)


def link(build, folder, source, *flags):
    compiler, kind, source_object = build
    program = folder / f"{source.stem}-{compiler}-{kind}"
    call(compiler, "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{folder}", source, source_object, "-o",
         program, *flags)
    return program


# ---- The text ----


def test_made_twice_it_is_the_same(folder, tmp_path):
    call(sys.executable, "-c", f"import amalgamate, pathlib; amalgamate.write(pathlib.Path({str(tmp_path)!r}))",
         PYTHONPATH=str(blackbox.REPOSITORY / "tools"), PYTHONHASHSEED="7", PYTHONDONTWRITEBYTECODE="1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hakmem.c", "hakmem.h"]
    for name in ("hakmem.c", "hakmem.h"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("name", ["hakmem.c", "hakmem.h"])
def test_head_tells_version_and_licence(folder, name):
    text = (folder / name).read_text()
    head = re.sub(r"^ \* ?", "", text[:text.index("*/")], flags=re.M)
    assert f"HAKMEM {VERSION}" in head
    assert (blackbox.REPOSITORY / "LICENSE").read_text().strip() in head
    assert str(blackbox.REPOSITORY) not in text


def test_every_source_is_in_it_or_left_out_by_name(folder):
    text = (folder / "hakmem.c").read_text()
    parts = re.findall(r"^ \* (\w+/\w+\.c)$", text, re.M)
    sources = {
        str(path.relative_to(blackbox.REPOSITORY / "src")) for path in (blackbox.REPOSITORY / "src").rglob("*.c")
    }
    assert len(parts) == len(
        set(parts)) and set(parts) == {name for name in sources if not amalgamate.is_left_out(name)}


def tree(root, **files):
    for name, text in files.items():
        path = root / "src" / "base" / f"{name}.c"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root, [f"base/{name}.c" for name in files]


@pytest.mark.parametrize("declaration", [
    "static int shared;", "static _Atomic int\n    shared;", "static int first, shared = 3;",
    "static int shared[3][4];",
    "static struct {\n    int inside;\n} shared;", "static _Alignas(8) char shared[8] __attribute__((aligned(8)));",
    "static void (*shared)(int);", "static _Thread_local struct row *shared = make(1, 2);",
])
def test_objects_that_c_would_merge_are_refused(tmp_path, declaration):
    root, names = tree(tmp_path, one=declaration + "\n", two="static int shared;\n")
    with pytest.raises(amalgamate.AmalgamationError, match="base/one.c and base/two.c each have a static shared"):
        amalgamate.check_objects(root, names)


def test_objects_inside_functions_and_of_one_file_are_not(tmp_path):
    root, names = tree(tmp_path, one="static int shared;\n",
                       two="static int f(int shared)\n{\n    static int inside;\n    return inside + shared;\n}\n"
                           "static int g(void)\n{\n    static int shared;\n    return shared;\n}\n/* static int "
                           "shared; */\n")
    amalgamate.check_objects(root, names)


def test_a_macro_that_another_file_uses_is_refused(tmp_path):
    root, names = tree(tmp_path, one="#define MOST 3\n#define ENDED 4\n#undef ENDED\n", two="enum { ENDED, MOST };\n")
    with pytest.raises(amalgamate.AmalgamationError,
                       match="^base/one.c defines the macro MOST, a name that base/two.c uses$"):
        amalgamate.check_macros(root, names)


# ---- The objects ----


def symbols(path):
    """{name: visibility} of the symbols that an object or archive exports."""
    rows = [line.split() for line in call("readelf", "-sW", path).splitlines()]
    return {row[7]: row[5] for row in rows
            if len(row) == 8 and row[4] in ("GLOBAL", "WEAK") and row[6] not in ("UND", "Ndx")}


def test_names_are_those_of_the_archive(build):
    _, kind, path = build
    found = symbols(path)
    archive = symbols(blackbox.LIBRARY_FOLDER / ARCHIVES[kind])
    assert ({name for name, visibility in found.items() if visibility == "DEFAULT"}
            == {name for name, visibility in archive.items() if visibility == "DEFAULT"})
    # The name that the linker merges with the base of the program's own probes (src/os/outside.c).
    assert all(name.startswith("hak_") for name, visibility in found.items()
               if visibility != "DEFAULT" and name != "_.stapsdt.base")


def test_it_has_the_probes(build):
    told = call("readelf", "-n", build[2])
    assert re.findall(r"Provider: (\w+)\s+Name: (\w+)", told) == [("otel_memory", "alloc"), ("otel_memory", "free")]


def test_the_compiler_invents_no_call_of_malloc(build):
    """The libraries have -fno-builtin-malloc for it: the object refers to these functions only in its tables."""
    _, kind, path = build
    relocations = call("objdump", "-drw", "--no-show-raw-insn", path)
    assert re.search(r"R_\S+\s+(memset|pthread_create)\b", relocations)
    assert not re.search(r"R_\S+\s+(malloc|calloc|realloc|free)\b", relocations)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flags", [["-DHAKMEM_BUILD_DEBUG=1"], ["-DHAKMEM_BUILD_CYCLES=1", "-DHAKMEM_OVERRIDE=1"],
                                   ["-std=gnu11", "-D_GNU_SOURCE"]], ids="".join)
def test_other_builds_have_no_warning(folder, compiler, flags):
    call(compiler, "-fsyntax-only", *STRICT, *flags, folder / "hakmem.c")


def test_threads(build, folder):
    compiler, kind, _ = build
    program = link(build, folder, HERE / "threads.c", *(["-DOVERRIDE"] if kind == "override" else []))
    assert call(program) == f"{VERSION}\n"
    result = blackbox.run([program, "malloc"])
    if kind == "override":
        assert (result.status, result.stdout) == (0, f"{VERSION}\n"), result.report()
    else:
        assert result.status == -signal.SIGABRT and "not allocated by HAKMEM" in result.stderr, result.report()


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flags", [[], ["-static"]], ids="".join)
def test_exceptions_pass_through_operator_new(compiled_object, compiler, flags, tmp_path):
    program = blackbox.compile_program(TESTS / "process/life" / "new_handler.cpp", tmp_path / "program",
                                       compiled_object(compiler, "override"), *flags)
    assert call(program) == "done\n"


def sites(profile):
    """The names of the functions that called for the profile's blocks."""
    shown = json.loads(call(sys.executable, "-m", "hakmem", "heap", profile, "--json"))
    return [site["name"] for site in shown["sites"] if site["flat"]["inuse_space"] > 0]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_heap_profile_has_the_programs_stacks_only(compiled_object, folder, compiler, tmp_path):
    program = link((compiler, "override", compiled_object(compiler, "override")), folder, HERE / "keeps.c")
    call(program, tmp_path / "heap.pb.gz", HAKMEM_HEAP_PROFILE=str(tmp_path / "exit.pb.gz"))
    assert sites(tmp_path / "heap.pb.gz") == ["only_site"]


def test_all_code_is_in_hakmems_section(build):
    """By the section the profile tells HAKMEM's code from the program's: the optimiser of a program mixes others."""
    rows = re.findall(r"^\s+\d+ (\S+)\s+(\w+) .*\n\s+(.*)$", call("objdump", "-h", build[2]), re.M)
    assert [name for name, size, flags in rows if "CODE" in flags.split(", ") and int(size, 16)] == ["hakmem_text"]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_plugin_stays_in_memory(compiled_object, folder, compiler, tmp_path):
    """A thread that used it ends after dlclose."""
    install = TESTS / "delivery/install"
    host = blackbox.compile_program(install / "plugin_host.c", tmp_path / "host")
    plugin = blackbox.compile_program(install / "consumer/plugin.c", tmp_path / "plugin.so",
                                      compiled_object(compiler, "names"), compiler=compiler, shared=True)
    assert call(host, plugin) == "done\n"


@pytest.mark.parametrize("compilers, option", [(("gcc", "g++"), "-flto=auto"), (("clang", "clang++"), "-flto=thin")])
def test_one_optimiser_for_the_whole_program(folder, tmp_path, compilers, option):
    """The optimiser drops what no code seems to use, and puts HAKMEM's functions beside the program's."""
    flags = ["-O1", "-g", "-w", "-pthread", option]
    whole = compile_source(folder, f"{compilers[0]}-whole.o", compilers[0], *flags, *KINDS["override"])
    call(compilers[1], *flags, f"-I{folder}", HERE / "whole.cpp", whole, "-o", tmp_path / "program")
    assert call(tmp_path / "program", tmp_path / "heap.pb.gz",
                HAKMEM_HEAP_PROFILE=str(tmp_path / "exit.pb.gz")) == "done\n"
    assert sites(tmp_path / "heap.pb.gz") == ["only_site"]


def test_on_riscv64(folder, tmp_path):
    """Cross-compiled, without libatomic, and run by qemu; also with addresses of 38 bits, most for blocks."""
    compiler, emulator = "riscv64-linux-gnu-gcc", ("qemu-riscv64-static", "-L", "/usr/riscv64-linux-gnu")
    made = compile_source(folder, "riscv64.o", compiler, "-std=c17", "-O2", *STRICT, *KINDS["override"])
    for name in ("threads", "many_addresses"):
        call(compiler, "-O1", "-fno-builtin", f"-I{folder}", "-DOVERRIDE", HERE / f"{name}.c", made, "-o",
             tmp_path / name)
    assert call(*emulator, tmp_path / "threads") == f"{VERSION}\n"
    assert call(*emulator, "-R", 1 << 38, tmp_path / "many_addresses", 90) == "page 4096 huge 90 small 90\n"


def test_fast_path_is_the_librarys(compiled_object, tmp_path):
    """As a shared library, for which the golden file has its figures."""
    library = tmp_path / "libonefile.so"
    call("gcc", "-shared", "-Wl,-Bsymbolic", compiled_object("gcc", "override"), "-o", library, "-pthread")
    golden = check.read_rows(check.CHECKS["fastpath"].path)
    for row, found in fast_path.measure_fastpath(Subject(library, tmp_path)).items():
        assert int(found["instructions"]) <= int(golden[row]["instructions"]), row
        assert found["calls"] == found["pushes"] == "0", row
