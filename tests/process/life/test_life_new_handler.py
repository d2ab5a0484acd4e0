"""Protects C++ new-handlers in every way into a process. Static programs find their run-time without a linker."""

import subprocess
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "new_handler.cpp"


def good(result):
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


def test_preloaded(compiled):
    blackbox.run_done([compiled(PROGRAM)])


@pytest.mark.parametrize("flags", [["-static"], ["-static-pie", "-fPIE"], ["-static-libstdc++", "-static-libgcc"], []])
def test_linked_with_the_override(compiled, override_archive, flags):
    start = subprocess.run([blackbox.COMPILERS[".cpp"], "-print-file-name=rcrt1.o"], capture_output=True, check=True)
    if "-static-pie" in flags and b"/" not in start.stdout:
        pytest.skip("the C library has no rcrt1.o, with which a static program begins that may be moved")
    good(blackbox.run([compiled(PROGRAM, *flags, override_archive)]))


def test_static_runtime_preloaded(compiled, library):
    good(blackbox.run([compiled(PROGRAM, "-static-libstdc++", "-static-libgcc")], preload=library))


def test_runtime_that_is_opened_late(compiled, library, tmp_path):
    """A C program opens a C++ library, so the C++ run-time is missing when HAKMEM binds its names."""
    plugin = blackbox.compile_program(PROGRAM, tmp_path / "plugin.so", "-Dmain=plugin_main", shared=True)
    source = tmp_path / "opens.c"
    source.write_text(
        "#include <dlfcn.h>\n#include <string.h>\n"
        "int main(int argc, char **argv)\n{\n"
        "    void *handle = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL), *found;\n"
        "    int (*function)(void);\n"
        "    if (handle == NULL || (found = dlsym(handle, \"_Z11plugin_mainv\")) == NULL)\n        return 2;\n"
        "    memcpy(&function, &found, sizeof function);\n"
        "    return function();\n}\n"
    )
    program = blackbox.compile_program(source, tmp_path / "opens")
    good(blackbox.run([program, plugin], preload=library))
