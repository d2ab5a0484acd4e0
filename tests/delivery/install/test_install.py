"""Protects `cmake --install`: a program finds the installed files by CMake or by pkg-config."""

import re
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


def objects(build, target):
    """HAKMEM's sources that a build of the target compiles, one row for each object."""
    return re.findall(r" -c \S+/hakmem-src/src/(\S+)$", blackbox.call("ninja", "-C", build, "-t", "commands", target),
                      re.M)


def test_fetch_content(tmp_path):
    """FetchContent uses add_subdirectory. The project optimises its programs as a whole, which HAKMEM's objects do not
    allow (cmake/HakmemLibraries.cmake)."""
    (tmp_path / "repository").mkdir()
    listing = (CONSUMER / "CMakeLists.txt").read_text()
    package, libraries = "find_package(hakmem CONFIG REQUIRED)", "hakmem static override secure secure_static"
    assert package in listing and libraries in listing
    listing = listing.replace(package, FETCH.format(repository(tmp_path / "repository")))
    (tmp_path / "CMakeLists.txt").write_text(listing.replace(libraries, "hakmem static override") + """
add_executable(with_secure EXCLUDE_FROM_ALL consumer.c)
target_link_libraries(with_secure PRIVATE hakmem::secure)
""")
    for source in ("consumer.c", "consumer.cpp", "plugin.c"):
        shutil.copy(CONSUMER / source, tmp_path)
    build, cache = tmp_path / "build", blackbox.compile_cache(tmp_path)
    blackbox.call("cmake", "-S", tmp_path, "-B", build, "-G", "Ninja", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON",
                  "-DHAKMEM_EXTRA_CFLAGS=-O1 -flto", **cache)
    cached = (build / "CMakeCache.txt").read_text()
    assert "CMAKE_BUILD_TYPE:STRING=\n" in cached, "the project chooses for itself"
    assert "HAKMEM_TESTS:BOOL=OFF" in cached and "HAKMEM_TOOLS:BOOL=OFF" in cached
    built = objects(build, "all")
    assert built and len(built) == len(set(built)), "each source is compiled once: for the three libraries"
    assert not [source for source in built if source.startswith(("je/", "tc/"))]
    assert len(objects(build, "with_secure")) > 100, "the hardened library, only for a target that links it"
    blackbox.call("cmake", "--build", build, "--parallel", "2", **cache)
    check_program(build / "with_hakmem", malloc_is_hakmems=True)
    check_program(build / "with_static", malloc_is_hakmems=False)
    check_program(build / "with_override", malloc_is_hakmems=True)
    assert blackbox.call(build / "cxx_with_hakmem") == f"{VERSION}\n"
    blackbox.call("cmake", "--install", build, "--prefix", tmp_path / "installed")
    assert list(tmp_path.glob("installed/lib/**/libhakmem-override.a"))


# ---- Plugins ----


@pytest.fixture(scope="module")
def plugin_host(tmp_path_factory):
    return blackbox.compile_program(CONSUMER.parent / "plugin_host.c", tmp_path_factory.mktemp("host") / "host")


@pytest.mark.parametrize("env", [{}, {"HAKMEM_PURGE_THREAD": "always", "HAKMEM_PURGE_DELAY": "10"}], ids=str)
def test_a_thread_outlives_a_plugin(plugin_host, library_folder, tmp_path, env):
    """A thread that used the plugin ends after dlclose, and so does the purge thread. No option of the linker keeps
    this plugin in memory."""
    plugin = blackbox.compile_program(CONSUMER / "plugin.c", tmp_path / "plugin.so", "-DHAK_STATIC",
                                      library_folder / "libhakmem.a", shared=True)
    assert "NODELETE" not in blackbox.call("readelf", "-d", plugin)
    result = blackbox.run([plugin_host, plugin], env=env)
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


def test_the_linker_keeps_a_plugin(cmake_programs, library_folder, tmp_path):
    plugin = pkg_config_program("hakmem-static", library_folder, tmp_path / "plugin.so", "gcc", "-shared", "-fPIC",
                                CONSUMER / "plugin.c")
    for built in (cmake_programs / "libplugin.so", plugin):
        assert "NODELETE" in blackbox.call("readelf", "-d", built)
    assert "NODELETE" not in blackbox.call("readelf", "-d", cmake_programs / "with_static")


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
