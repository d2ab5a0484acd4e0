"""What `cmake --install` puts into a prefix serves a program that finds it by CMake or by pkg-config."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import blackbox

CONSUMER = Path(__file__).resolve().parent / "consumer"
VERSION = subprocess.run([blackbox.REPOSITORY / "hakmem", "--version"], capture_output=True, text=True).stdout.split()[1]


def call(*argv, **variables):
    result = subprocess.run(
        [str(word) for word in argv], env=blackbox.environment(variables), capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, f"{argv}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installed tree that was moved after the installation."""
    folder = tmp_path_factory.mktemp("install")
    call("cmake", "--install", os.environ["HAKMEM_BUILD_DIR"], "--prefix", folder / "first")
    return shutil.move(folder / "first", folder / "moved")


@pytest.fixture(scope="module")
def cmake_programs(prefix, tmp_path_factory):
    build = tmp_path_factory.mktemp("consumer")
    call("cmake", "-S", CONSUMER, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    call("cmake", "--build", build)
    return build


@pytest.fixture(scope="module")
def library_folder(prefix):
    (package,) = prefix.glob("lib/**/hakmem.pc")
    return package.parent.parent


def pkg_config_program(package, library_folder, output, *compile_it):
    flags = call("pkg-config", "--cflags", "--libs", package, PKG_CONFIG_PATH=str(library_folder / "pkgconfig")).split()
    call(*compile_it, "-o", output, *flags)
    return output


def check_program(program, *, malloc_is_hakmems, library_folder=None):
    variables = {"LD_LIBRARY_PATH": str(library_folder)} if library_folder else {}
    assert call(program, **variables) == f"{VERSION}\n"
    result = blackbox.run([str(program), "malloc"], env=variables)
    if malloc_is_hakmems:
        assert (result.status, result.stdout) == (0, f"{VERSION}\n"), result.report()
    else:
        assert result.status == -signal.SIGABRT and "not allocated by HAKMEM" in result.stderr, result.report()


@pytest.mark.parametrize("library, malloc_is_hakmems", [("hakmem", True), ("static", False), ("override", True)])
def test_cmake_package(cmake_programs, library, malloc_is_hakmems):
    check_program(cmake_programs / f"with_{library}", malloc_is_hakmems=malloc_is_hakmems)
    assert call(cmake_programs / f"cxx_with_{library}") == f"{VERSION}\n"


def test_as_a_subdirectory(tmp_path):
    listing = (CONSUMER / "CMakeLists.txt").read_text()
    package = "find_package(hakmem CONFIG REQUIRED)"
    assert package in listing
    listing = listing.replace(package, f"add_subdirectory({blackbox.REPOSITORY} hakmem)")
    (tmp_path / "CMakeLists.txt").write_text(listing)
    for source in ("consumer.c", "consumer.cpp"):
        shutil.copy(CONSUMER / source, tmp_path)
    call("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja")
    call("cmake", "--build", tmp_path / "build", "--parallel", "2")
    check_program(tmp_path / "build" / "with_hakmem", malloc_is_hakmems=True)
    check_program(tmp_path / "build" / "with_static", malloc_is_hakmems=False)
    check_program(tmp_path / "build" / "with_override", malloc_is_hakmems=True)
    assert call(tmp_path / "build" / "cxx_with_hakmem") == f"{VERSION}\n"


@pytest.mark.parametrize(
    "package, malloc_is_hakmems", [("hakmem", True), ("hakmem-static", False), ("hakmem-override", True)]
)
def test_pkg_config(library_folder, tmp_path, package, malloc_is_hakmems):
    program = pkg_config_program(package, library_folder, tmp_path / "program", "gcc", CONSUMER / "consumer.c")
    needs = library_folder if package == "hakmem" else None
    check_program(program, malloc_is_hakmems=malloc_is_hakmems, library_folder=needs)
    compile_it = ["g++", "-std=c++17", CONSUMER / "consumer.cpp"]
    program = pkg_config_program(package, library_folder, tmp_path / "cxx_program", *compile_it)
    assert call(program, **({"LD_LIBRARY_PATH": str(needs)} if needs else {})) == f"{VERSION}\n"


def test_pkg_config_version(library_folder):
    assert call("pkg-config", "--modversion", "hakmem", PKG_CONFIG_PATH=str(library_folder / "pkgconfig")).strip() == VERSION


def test_fully_static_program(library_folder, tmp_path):
    program = tmp_path / "program"
    call(
        "gcc", "-static", CONSUMER / "consumer.c", "-o", program, f"-I{library_folder}/../include",
        "-DHAK_STATIC", library_folder / "libhakmem-override.a", "-pthread",
    )
    check_program(program, malloc_is_hakmems=True)


def test_single_object(library_folder, prefix, tmp_path):
    program = tmp_path / "program"
    call("gcc", CONSUMER / "consumer.c", library_folder / "hakmem.o", "-o", program, f"-I{prefix}/include", "-pthread")
    check_program(program, malloc_is_hakmems=True)


def global_names(nm_output):
    return {line.split()[-1] for line in nm_output.splitlines() if len(line.split()) >= 3}


def test_shared_library_exports_public_names_only(library_folder):
    names = global_names(call("nm", "-D", "--defined-only", library_folder / "libhakmem.so"))
    headers = "".join(path.read_text() for path in (blackbox.INCLUDE_FOLDER / "hakmem").glob("*.h"))
    # hak_descriptor is for those who read the process from outside (src/observe/descriptor.h).
    assert {name for name in names if name.startswith("hak_") and name not in headers} == {"hak_descriptor"}
    internal = ("os_", "base_", "options_", "superslab_", "slab_", "span_", "huge_", "front_", "observe_", "pool_", "lock_")
    assert {name for name in names if name.startswith(internal)} == set()
    assert {"malloc", "free", "hak_malloc", "_Znwm"} <= names


def test_static_library_has_hak_names_only(library_folder):
    names = global_names(call("nm", "-g", "--defined-only", library_folder / "libhakmem.a"))
    assert {name for name in names if not name.startswith("hak_")} == set()
    assert "hak_malloc" in names


def test_static_libraries_keep_internal_names_to_themselves(library_folder):
    shared = global_names(call("nm", "-D", "--defined-only", library_folder / "libhakmem.so"))
    override = global_names(call("nm", "-g", "--defined-only", library_folder / "libhakmem-override.a"))
    assert override == shared - {"dlopen", "dlmopen", "pthread_create", "thrd_create", "__register_atfork", "prctl"}, "a static program has one of each"
