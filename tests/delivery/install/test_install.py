"""Protects `cmake --install`: a program finds the installed files by CMake or by pkg-config."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import blackbox

CONSUMER = Path(__file__).resolve().parent / "consumer"
VERSION = subprocess.run([blackbox.REPOSITORY / "hakmem", "--version"], capture_output=True,
                         text=True).stdout.split()[1]


@pytest.fixture(scope="module")
def cmake_programs(installed_tree, tmp_path_factory):
    build = tmp_path_factory.mktemp("consumer")
    blackbox.call("cmake", "-S", CONSUMER, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed_tree}")
    blackbox.call("cmake", "--build", build)
    return build


@pytest.fixture(scope="module")
def library_folder(installed_tree):
    (package,) = installed_tree.glob("lib/**/hakmem.pc")
    return package.parent.parent


def pkg_config_program(package, library_folder, output, *compile_it):
    flags = blackbox.call("pkg-config", "--cflags", "--libs", package,
                          PKG_CONFIG_PATH=str(library_folder / "pkgconfig")).split()
    blackbox.call(*compile_it, "-o", output, *flags)
    return output


def check_program(program, *, malloc_is_hakmems, library_folder=None):
    variables = {"LD_LIBRARY_PATH": str(library_folder)} if library_folder else {}
    assert blackbox.call(program, **variables) == f"{VERSION}\n"
    result = blackbox.run([str(program), "malloc"], env=variables)
    if malloc_is_hakmems:
        assert (result.status, result.stdout) == (0, f"{VERSION}\n"), result.report()
    else:
        assert result.status == -signal.SIGABRT and "not allocated by HAKMEM" in result.stderr, result.report()


@pytest.mark.parametrize("library, malloc_is_hakmems", [("hakmem", True), ("static", False), ("override", True),
                                                        ("secure", True), ("secure_static", True)])
def test_cmake_package(cmake_programs, library, malloc_is_hakmems):
    check_program(cmake_programs / f"with_{library}", malloc_is_hakmems=malloc_is_hakmems)
    assert blackbox.call(cmake_programs / f"cxx_with_{library}") == f"{VERSION}\n"


FETCH = """include(FetchContent)
FetchContent_Declare(hakmem GIT_REPOSITORY "file://{}" GIT_TAG main)
FetchContent_MakeAvailable(hakmem)"""


def repository(folder):
    """A git repository of the checkout's present files."""
    for name in ("CMakeLists.txt", "cmake", "include", "src", "tools"):
        source = blackbox.REPOSITORY / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    git = ["git", "-C", folder, "-c", "user.name=test", "-c", "user.email=test@example.com"]
    blackbox.call("git", "init", "-q", "-b", "main", folder)
    blackbox.call(*git, "add", ".")
    blackbox.call(*git, "commit", "-q", "-m", "all")
    return folder


def test_fetch_content(tmp_path):
    """FetchContent uses add_subdirectory."""
    (tmp_path / "repository").mkdir()
    listing = (CONSUMER / "CMakeLists.txt").read_text()
    package = "find_package(hakmem CONFIG REQUIRED)"
    assert package in listing
    listing = listing.replace(package, FETCH.format(repository(tmp_path / "repository")))
    (tmp_path / "CMakeLists.txt").write_text(listing)
    for source in ("consumer.c", "consumer.cpp"):
        shutil.copy(CONSUMER / source, tmp_path)
    blackbox.call("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja")
    cache = (tmp_path / "build/CMakeCache.txt").read_text()
    assert "CMAKE_BUILD_TYPE:STRING=\n" in cache, "the project chooses for itself"
    assert "HAKMEM_TESTS:BOOL=OFF" in cache and "HAKMEM_TOOLS:BOOL=OFF" in cache
    blackbox.call("cmake", "--build", tmp_path / "build", "--parallel", "2")
    check_program(tmp_path / "build" / "with_hakmem", malloc_is_hakmems=True)
    check_program(tmp_path / "build" / "with_static", malloc_is_hakmems=False)
    check_program(tmp_path / "build" / "with_override", malloc_is_hakmems=True)
    assert blackbox.call(tmp_path / "build" / "cxx_with_hakmem") == f"{VERSION}\n"


@pytest.mark.parametrize(
    "package, malloc_is_hakmems", [("hakmem", True), ("hakmem-static", False), ("hakmem-override", True),
                                   ("hakmem-secure", True), ("hakmem-secure-static", True)]
)
def test_pkg_config(library_folder, tmp_path, package, malloc_is_hakmems):
    program = pkg_config_program(package, library_folder, tmp_path / "program", "gcc", CONSUMER / "consumer.c")
    needs = library_folder if package in ("hakmem", "hakmem-secure") else None
    check_program(program, malloc_is_hakmems=malloc_is_hakmems, library_folder=needs)
    compile_it = ["g++", "-std=c++17", CONSUMER / "consumer.cpp"]
    program = pkg_config_program(package, library_folder, tmp_path / "cxx_program", *compile_it)
    assert blackbox.call(program, **({"LD_LIBRARY_PATH": str(needs)} if needs else {})) == f"{VERSION}\n"


@pytest.mark.parametrize("package", ["hakmem", "hakmem-static", "hakmem-override"])
def test_options_that_are_compiled_in(library_folder, tmp_path, package):
    settings = tmp_path / "settings.c"
    settings.write_text('#include <hakmem/hakmem.h>\nconst char hakmem_options[] = "VERBOSE=1;PURGE_DELAY=77";\n')
    program = tmp_path / "program"
    pkg_config_program(package, library_folder, program, "gcc", CONSUMER / "consumer.c", settings)
    for delay in (77, 55):
        env = {"LD_LIBRARY_PATH": str(library_folder)} | ({"HAKMEM_PURGE_DELAY": str(delay)} if delay != 77 else {})
        result = blackbox.run([str(program)], env=env)
        assert result.status == 0 and f"* HAKMEM_PURGE_DELAY={delay} " in result.stderr, result.report()


def test_pkg_config_version(library_folder):
    assert blackbox.call("pkg-config", "--modversion", "hakmem",
                         PKG_CONFIG_PATH=str(library_folder / "pkgconfig")).strip() == VERSION


def test_fully_static_program(library_folder, tmp_path):
    program = tmp_path / "program"
    blackbox.call(
        "gcc", "-static", CONSUMER / "consumer.c", "-o", program, f"-I{library_folder}/../include",
        "-DHAK_STATIC", library_folder / "libhakmem-override.a", "-pthread",
    )
    check_program(program, malloc_is_hakmems=True)


def test_single_object(library_folder, installed_tree, tmp_path):
    program = tmp_path / "program"
    blackbox.call("gcc", CONSUMER / "consumer.c", library_folder / "hakmem.o", "-o", program,
                  f"-I{installed_tree}/include", "-pthread")
    check_program(program, malloc_is_hakmems=True)


def global_names(nm_output):
    return {line.split()[-1] for line in nm_output.splitlines() if len(line.split()) >= 3}


def test_shared_library_exports_public_names_only(library_folder):
    names = global_names(blackbox.call("nm", "-D", "--defined-only", library_folder / "libhakmem.so"))
    headers = "".join(path.read_text() for path in (blackbox.INCLUDE_FOLDER / "hakmem").glob("*.h"))
    # hak_descriptor is for tools that read the process from outside (src/observe/descriptor.h).
    assert {name for name in names if name.startswith("hak_") and name not in headers} == {"hak_descriptor"}
    internal = ("os_", "base_", "options_", "superslab_", "slab_", "span_", "huge_", "front_", "observe_",
                "pool_", "lock_")
    assert {name for name in names if name.startswith(internal)} == set()
    assert {"malloc", "free", "hak_malloc", "_Znwm"} <= names


def test_static_library_has_hak_names_only(library_folder):
    names = global_names(blackbox.call("nm", "-g", "--defined-only", library_folder / "libhakmem.a"))
    # The linker merges the probes' base with the program's own (src/os/outside.c).
    assert {name for name in names if not name.startswith("hak_")} == {"_.stapsdt.base"}
    assert "hak_malloc" in names


def test_static_libraries_keep_internal_names_to_themselves(library_folder):
    shared = global_names(blackbox.call("nm", "-D", "--defined-only", library_folder / "libhakmem.so"))
    override = global_names(blackbox.call("nm", "-g", "--defined-only", library_folder / "libhakmem-override.a"))
    assert override - {"_.stapsdt.base"} == shared - {
        "dlopen", "dlmopen", "pthread_create", "thrd_create", "__register_atfork", "prctl"
    }, "a static program has one of each"
