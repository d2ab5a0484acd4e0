"""Protects `cmake --install` for sources written for jemalloc's and gperftools' headers."""


import pytest

import blackbox

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#if defined(FOR_TC)
#include <gperftools/malloc_extension_c.h>
#include <gperftools/tcmalloc.h>
#else
#include <jemalloc/jemalloc.h>
#if JEMALLOC_VERSION_MAJOR != 5 || !defined(JEMALLOC_FRAG_HINT)
#error "Redis looks for these"
#endif
#endif

int main(void)
{
#if defined(FOR_TC)
    size_t live = 0;
    void *block = tc_malloc(100);
    MallocExtension_GetNumericProperty("generic.current_allocated_bytes", &live);
    tc_free(block);
#else
    size_t live = 0, size = sizeof live;
    void *block = je_mallocx(100, MALLOCX_ALIGN(64));
    je_mallctl("stats.allocated", &live, &size, NULL, 0);
    je_dallocx(block, 0);
#endif
    puts(live >= 112 ? "served" : "not served");
    return 0;
}
"""

LIBRARIES = ["hakmem-je", "hakmem-je-static", "hakmem-tc"]


@pytest.fixture(scope="module")
def library_folder(installed_tree):
    (package,) = installed_tree.glob("lib/**/hakmem-je.pc")
    return package.parent.parent


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
@pytest.mark.parametrize("package", LIBRARIES)
def test_pkg_config(library_folder, tmp_path, package, compiler):
    source = tmp_path / ("user.c" if compiler == "gcc" else "user.cpp")
    source.write_text(SOURCE)
    flags = blackbox.call("pkg-config", "--cflags", "--libs", package,
                          PKG_CONFIG_PATH=str(library_folder / "pkgconfig")).split()
    special = ["-DFOR_TC"] if package == "hakmem-tc" else []
    blackbox.call(compiler, "-Wall", "-Wextra", "-Werror", *special, source, "-o", tmp_path / "user", *flags)
    assert blackbox.call(tmp_path / "user", LD_LIBRARY_PATH=str(library_folder)) == "served\n"


def test_cmake_package(installed_tree, tmp_path):
    (tmp_path / "user.c").write_text(SOURCE)
    lines = ["cmake_minimum_required(VERSION 3.21)", "project(user C)", "find_package(hakmem CONFIG REQUIRED)"]
    for name in ("je", "je_static", "tc"):
        lines += [f"add_executable(with_{name} user.c)", f"target_link_libraries(with_{name} PRIVATE hakmem::{name})"]
    lines += ["target_compile_definitions(with_tc PRIVATE FOR_TC)"]
    (tmp_path / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    blackbox.call("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja",
                  f"-DCMAKE_PREFIX_PATH={installed_tree}")
    blackbox.call("cmake", "--build", tmp_path / "build")
    for name in ("je", "je_static", "tc"):
        assert blackbox.call(tmp_path / "build" / f"with_{name}") == "served\n"


def test_static_library_leaves_malloc_alone(library_folder):
    output = blackbox.call("nm", "-g", "--defined-only", library_folder / "libhakmem-je.a")
    names = {line.split()[-1] for line in output.splitlines() if len(line.split()) >= 3}
    assert not names & {"malloc", "free", "calloc", "realloc", "_Znwm", "dlopen"}
    internal = ("os_", "base_", "options_", "superslab_", "slab_", "front_", "observe_", "pool_", "lock_", "control_",
                "figures_", "arenas_")
    assert {name for name in names if name.startswith(internal)} == set()
    assert {"je_malloc", "je_mallctl", "hak_malloc"} <= names
