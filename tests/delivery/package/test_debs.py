"""Protects the .deb packages: their contents, lintian's opinion, and their use on a machine."""

import json
import os
import re
import subprocess
from pathlib import Path

import pexpect
import pytest

from elftools.elf.elffile import ELFFile

import blackbox
import cached

ROOT = Path(__file__).resolve().parents[3]
VERSION = re.search(r'HAK_VERSION_STRING "(.*)"', (ROOT / "include/hakmem/hakmem.h").read_text())[1]
PRELOAD = "LD_PRELOAD=/usr/lib/hakmem/libhakmem.so"
# Prints the name of HAKMEM's library in the process, if it is loaded.
WHOSE = "import re; print(*sorted(set(re.findall('libhakmem[^ \\n]*', open('/proc/self/maps').read()))))"


def deb(dist: Path, package: str, architecture: str) -> Path:
    return dist / f"{package}_{VERSION}-1_{architecture}.deb"


def call(*argv) -> str:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False,
                          timeout=blackbox.HANG)
    assert done.returncode == 0, f"{argv}\n{done.stdout}{done.stderr}"
    return done.stdout


def paths(file: Path) -> dict[str, str]:
    """{path: a link's target, or ""} of the files in a package."""
    lines = (line.split(None, 5)[5] for line in call("dpkg-deb", "-c", file).splitlines())
    return {name.removeprefix("."): target for name, _, target in (line.partition(" -> ") for line in lines)
            if not name.endswith("/")}


@pytest.fixture(scope="module")
def installed(machine):
    """The machine with all three packages."""
    machine.run("dpkg", "-i", *(f"/tmp/packages/{deb(Path(), package, architecture)}" for package, architecture in
                                (("libhakmem0", "amd64"), ("libhakmem-dev", "amd64"), ("hakmem", "amd64"))))
    return machine


@pytest.mark.parametrize("architecture, triplet", [("amd64", "x86_64-linux-gnu"), ("arm64", "aarch64-linux-gnu")])
def test_files(system_dist, architecture, triplet):
    folder = f"/usr/lib/{triplet}"
    library = paths(deb(system_dist, "libhakmem0", architecture))
    assert library[f"{folder}/libhakmem.so.0"] == f"libhakmem.so.{VERSION}"
    assert library["/usr/lib/hakmem/libhakmem.so"] == f"../{triplet}/libhakmem.so.0"
    assert "/usr/share/doc/libhakmem0/examples/systemd/hakmem.conf" in library
    development = paths(deb(system_dist, "libhakmem-dev", architecture))
    assert development[f"{folder}/libhakmem.so"] == "libhakmem.so.0"
    assert {f"{folder}/{name}" for name in ("libhakmem.a", "libhakmem-override.a", "hakmem.o", "pkgconfig/hakmem.pc",
                                            "cmake/hakmem/hakmem-config.cmake")} <= set(development)
    headers = (path.relative_to(ROOT / "include") for path in (ROOT / "include").rglob("*") if path.is_file())
    assert {f"/usr/include/{header}" for header in headers} <= set(development)


@pytest.mark.parametrize("architecture, machine_name", [("amd64", "EM_X86_64"), ("arm64", "EM_AARCH64")])
def test_the_library_is_for_its_architecture_and_asks_for_a_libc_that_suffices(system_dist, tmp_path, architecture,
                                                                              machine_name):
    file = deb(system_dist, "libhakmem0", architecture)
    call("dpkg-deb", "-x", file, tmp_path)
    (library,) = tmp_path.glob(f"usr/lib/*/libhakmem.so.{VERSION}")
    with open(library, "rb") as raw:
        assert ELFFile(raw)["e_machine"] == machine_name
    minors = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)\0", library.read_bytes())]
    assert call("dpkg-deb", "-f", file, "Depends").strip() == f"libc6 (>= 2.{max(minors)})"


def test_lintian_finds_nothing(system_dist, made):
    if "HAKMEM_DIST" in os.environ:
        said = call("lintian", "--allow-root", "--fail-on", "error,warning", *system_dist.glob("*_amd64.deb"))
    else:
        said = (made("lintian").dist / "lintian.txt").read_text()
    assert said == ""


@pytest.mark.skipif("HAKMEM_DIST" in os.environ, reason="a release's packages are compared with a clone's, whole")
def test_two_builds_are_the_same_bytes(system_dist, made, tmp_path):
    """The smallest package. All are packed in the same way."""
    import debs
    import system

    libraries = made("libraries")
    plan = cached.plan_in(ROOT, tmp_path)
    (plan.work / "lib").symlink_to(libraries.work / "lib")
    (plan.work / "system").mkdir()
    system.stage_library(plan, "x86_64-linux-gnu", tmp_path / "libhakmem0", "usr/lib/x86_64-linux-gnu")
    (library,) = tmp_path.glob("libhakmem0/usr/lib/*/libhakmem.so.0.*")
    debs.write_package(plan, tmp_path / "libhakmem0", "amd64", {"depends": f"libc6 (>= {debs.oldest_glibc(library)})"})
    (package,) = plan.dist.iterdir()
    assert package.read_bytes() == (system_dist / package.name).read_bytes()


# ---- On a machine ----

def test_dpkg_finds_every_file_as_packed(installed):
    assert installed.shell("dpkg -V libhakmem0 libhakmem-dev hakmem") == ""
    assert "libhakmem.so.0 (libc6,x86-64) => /lib/x86_64-linux-gnu/libhakmem.so.0" in installed.shell("ldconfig -p")


def test_preloaded(installed):
    said = installed.run("env", PRELOAD, "HAKMEM_VERBOSE=1", "python3", "-c", WHOSE)
    assert said.stdout.strip() == f"libhakmem.so.{VERSION}"
    assert VERSION in said.stderr


def test_for_every_program_by_ld_so_preload(installed):
    installed.shell("echo /usr/lib/hakmem/libhakmem.so >/etc/ld.so.preload")
    try:
        assert installed.run("python3", "-c", WHOSE).stdout.strip() == f"libhakmem.so.{VERSION}"
    finally:
        installed.shell("rm /etc/ld.so.preload")


def test_the_example_of_a_drop_in_names_the_library(installed):
    text = installed.shell("cat /usr/share/doc/libhakmem0/examples/systemd/hakmem.conf")
    settings = dict(re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE))
    assert installed.run("env", f"LD_PRELOAD={settings['LD_PRELOAD']}", "python3", "-c", WHOSE).stdout.strip()


def test_the_command(installed):
    assert installed.run("hakmem", "--version").stdout == f"hakmem {VERSION}\n"
    said = installed.run("hakmem", "run", "--set", "verbose=1", "--", "python3", "-c", f"{WHOSE}; raise SystemExit(5)",
                         status=5)
    assert said.stdout.strip() == f"libhakmem.so.{VERSION}" and "* HAKMEM_VERBOSE=1" in said.stderr
    assert installed.run("hakmem", "fly", status=2).stderr.startswith("Usage: hakmem")


@pytest.fixture
def served(installed):
    """A process on HAKMEM, started by the installed command."""
    code = "blocks = [bytes(1000) for _ in range(20000)]; print('ready', flush=True); input()"
    process = subprocess.Popen(installed.words("hakmem", "run", "--", "python3", "-c", code), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    yield process.pid
    process.communicate("\n", timeout=blackbox.HANG)


def test_tools_look_at_a_process(installed, served):
    findings = json.loads(installed.run("hakmem", "doctor", "--json", str(served)).stdout)["findings"]
    (found,) = (finding for finding in findings if finding["subject"] == "HAKMEM")
    assert found["level"] == "ok" and re.search(r"/usr/lib/.*libhakmem\.so", found["seen"])
    figures = json.loads(installed.run("hakmem", "stats", "--json", str(served)).stdout)
    assert figures["totals"]["live"] > 20_000_000
    assert installed.run("hakmem", "explain", str(served)).stdout


def test_tools_read_a_heap_profile(installed):
    # Python frees its objects as it ends. These blocks stay.
    code = "import ctypes; [ctypes.CDLL(None).malloc(100000) for _ in range(1000)]"
    # Each block is sampled, and its usable size is 128 KiB.
    installed.run("hakmem", "run", "--heap-profile", "/tmp/profile.pb.gz", "--set", "HEAP_PROFILE_RATE=1",
                  "--", "python3", "-c", code)
    said = installed.run("hakmem", "heap", "/tmp/profile.pb.gz").stdout
    assert re.search(r"^ *125 MiB .*libffi", said, re.MULTILINE), said


def test_tools_compare_allocators(installed):
    said = installed.run("hakmem", "compare", "--rounds", "1", "--no-calls", "--", "python3", "-c", "pass").stdout
    assert all(re.search(rf"^{name} +[\d.]+ m?s ", said, re.MULTILINE) for name in ("hakmem", "glibc")), said


def test_another_hakmem_of_the_user_is_not_mixed_in(installed):
    installed.shell("mkdir -p /tmp/own/hakmem && echo 'raise SystemExit(9)' >/tmp/own/hakmem/__init__.py")
    assert installed.run("env", "PYTHONPATH=/tmp/own", "hakmem", "--version").stdout == f"hakmem {VERSION}\n"


def test_manual_pages(installed):
    options = installed.shell("MANWIDTH=200 man 7 hakmem")
    table = (ROOT / "docs/options.md").read_text()
    for name in re.findall(r"^\| `(HAKMEM_\w+)`", table, re.MULTILINE):
        assert re.search(rf"^ +{name}$", options, re.MULTILINE), name
    assert "@" not in options
    assert "--heap-profile" in installed.shell("MANWIDTH=200 man hakmem-run")
    assert "hakmem-run(1)" in installed.shell("MANWIDTH=200 man hakmem")
    # Every page, without a warning of groff.
    said = installed.run("sh", "-ec",
                         "for page in /usr/share/man/man?/hakmem*; do man --warnings -l $page >/dev/null; done")
    assert said.stderr == ""


def test_completion_in_bash(installed):
    script = """
        . /usr/share/bash-completion/completions/hakmem
        complete -p hakmem
        COMP_WORDS=(hakmem ru) COMP_CWORD=1
        _hakmem_completion hakmem
        echo "${COMPREPLY[@]}"
    """
    said = installed.run("bash", "-ec", script).stdout.splitlines()
    assert said[0].endswith(" hakmem") and said[1:] == ["run"]


def test_completion_in_fish(installed):
    said = installed.run("fish", "-c", "complete -C 'hakmem ru'").stdout
    assert said.split("\t")[0].strip() == "run"


def test_completion_in_zsh(installed):
    words = installed.words("zsh", "-f", "-i")
    shell = pexpect.spawn(words[0], words[1:], encoding="utf-8", timeout=blackbox.HANG)
    shell.sendline("autoload -U compinit && compinit -u -D && unsetopt zle_bracketed_paste; PROMPT='ready''>'")
    shell.expect("ready>")
    # The second time click's function is used alone.
    for _ in range(2):
        shell.send("hakmem ru\t")
        shell.expect("hakmem run ")
        shell.send("\x15")
    shell.sendline("exit")
    shell.expect(pexpect.EOF)


@pytest.mark.parametrize("package", ["hakmem", "hakmem-static", "hakmem-override"])
def test_pkg_config_leads_to_a_program(installed, package):
    installed.shell(f"gcc /tmp/checkout/tests/delivery/install/consumer/consumer.c -o /tmp/{package} "
                    f"$(pkg-config --cflags --libs {package})")
    assert installed.run(f"/tmp/{package}").stdout == f"{VERSION}\n"


def test_cmake_leads_to_programs(installed):
    installed.shell(
        "cp -r /tmp/checkout/tests/delivery/install/consumer /tmp/consumer && cd /tmp/consumer && cmake -B build -G "
        "Ninja && "
        "cmake --build build --target with_hakmem with_static with_override")
    for name in "hakmem", "static", "override":
        assert installed.run(f"/tmp/consumer/build/with_{name}").stdout == f"{VERSION}\n"
    assert "libhakmem.so.0 => /lib/x86_64-linux-gnu/libhakmem.so.0" in installed.run(
        "ldd", "/tmp/consumer/build/with_hakmem").stdout


def test_removed_it_leaves_nothing(installed):
    """The last test on this machine."""
    installed.run("dpkg", "--purge", "hakmem", "libhakmem-dev", "libhakmem0")
    assert installed.shell("find /usr /etc /var/lib -xdev -name '*hakmem*' -not -path '/usr/src/*'") == ""
    assert "libhakmem" not in installed.shell("ldconfig -p")


def test_arm64_under_qemu(system_dist, tmp_path):
    call("dpkg-deb", "-x", deb(system_dist, "libhakmem0", "arm64"), tmp_path)
    source = tmp_path / "whose.c"
    source.write_text('#include <malloc.h>\n#include <stdio.h>\n#include <stdlib.h>\nconst char *hak_version(void) '
                      '__attribute__((weak));\nint main(void)\n{\n    free(malloc(100));\n'
                      '    puts(hak_version ? hak_version() : "none");\n}\n')
    call("aarch64-linux-gnu-gcc", "-o", tmp_path / "whose", source)
    said = call("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", "-E",
                f"LD_PRELOAD={tmp_path}/usr/lib/hakmem/libhakmem.so", tmp_path / "whose")
    assert said == f"{VERSION}\n"
