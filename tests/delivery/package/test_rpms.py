"""Protects the .rpm packages: their contents and requirements, and their use on a machine."""

import re
from pathlib import Path

import pytest

from test_debs import ROOT, VERSION, WHOSE, call


def rpm(dist: Path, package: str, architecture: str) -> Path:
    return dist / f"{package}-{VERSION}-1.{architecture}.rpm"


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_contents(system_dist, architecture):
    library = rpm(system_dist, "libhakmem0", architecture)
    assert {f"/usr/lib64/libhakmem.so.{VERSION}", "/usr/lib64/libhakmem.so.0", "/usr/lib/hakmem/libhakmem.so",
            "/usr/share/man/man7/hakmem.7.gz"} <= set(call("rpm", "-qpl", library).split())
    assert "libhakmem.so.0()(64bit)" in call("rpm", "-qp", "--provides", library).split()
    needs = call("rpm", "-qp", "--requires", library)
    assert "libc.so.6(GLIBC_2.17)(64bit)" in needs.split()
    development = rpm(system_dist, "libhakmem-devel", architecture)
    assert re.search(rf"^libhakmem0\(.*\) = {VERSION}-1$", call("rpm", "-qp", "--requires", development), re.MULTILINE)
    assert {"/usr/lib64/libhakmem.a", "/usr/lib64/libhakmem-override.a", "/usr/lib64/pkgconfig/hakmem.pc",
            "/usr/include/hakmem/hakmem.h"} <= set(call("rpm", "-qpl", development).split())


def test_nothing_tells_where_and_when_it_was_made(system_dist):
    for file in system_dist.glob("*.rpm"):
        assert call("rpm", "-qp", "--qf", "%{BUILDHOST}", file) == "localhost"
        assert str(ROOT).encode() not in file.read_bytes()


@pytest.fixture(scope="module")
def installed(machine):
    # The machine is Debian's: it has what the packages need, but rpm's own database is empty.
    files = [f"/tmp/packages/{rpm(Path(), *one)}" for one in
             (("libhakmem0", "x86_64"), ("libhakmem-devel", "x86_64"), ("hakmem", "x86_64"))]
    machine.run("rpm", "-i", "--nodeps", *files)
    return machine


def test_preloaded(installed):
    assert installed.shell("rpm -Va --nodeps") == ""
    said = installed.run("env", "LD_PRELOAD=/usr/lib/hakmem/libhakmem.so", "python3", "-c", WHOSE)
    assert said.stdout.strip() == f"libhakmem.so.{VERSION}"


def test_the_command(installed):
    assert installed.run("hakmem", "--version").stdout == f"hakmem {VERSION}\n"
    assert installed.run("hakmem", "run", "--", "python3", "-c", WHOSE).stdout.strip() == f"libhakmem.so.{VERSION}"


def test_cmake_and_pkg_config_find_lib64(installed):
    installed.shell("gcc /tmp/checkout/tests/delivery/install/consumer/consumer.c -o /tmp/static "
                    "$(PKG_CONFIG_PATH=/usr/lib64/pkgconfig pkg-config --cflags --libs hakmem-static)")
    assert installed.run("/tmp/static").stdout == f"{VERSION}\n"
    installed.shell(
        "cp -r /tmp/checkout/tests/delivery/install/consumer /tmp/consumer && cd /tmp/consumer && "
        "cmake -B build -G Ninja -Dhakmem_DIR=/usr/lib64/cmake/hakmem && cmake --build build --target with_hakmem")
    program = ["env", "LD_LIBRARY_PATH=/usr/lib64", "/tmp/consumer/build/with_hakmem"]
    assert installed.run(*program).stdout == f"{VERSION}\n"


def test_removed_it_leaves_nothing(installed):
    """The last test on this machine."""
    installed.run("rpm", "-e", "hakmem", "libhakmem-devel", "libhakmem0")
    assert installed.shell("find /usr /etc /var/lib -xdev -name '*hakmem*' -not -path '/usr/src/*'") == ""
