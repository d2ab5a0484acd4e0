"""Protects the wheels: their contents, the systems they are for, and all that an installation promises."""

import io
import json
import re
import stat
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pexpect
import pytest
from elftools.elf.elffile import ELFFile

import blackbox
import cached

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/package"))

import wheels as maker  # noqa: E402
from plan import Plan  # noqa: E402
from targets import TARGETS  # noqa: E402

NATIVE = next(target for target in TARGETS if target.name == "x86_64-linux-gnu")
GLIBC = [target for target in TARGETS if target.libc == "glibc"]
# All packages of a base installation, and its largest size.
BASE = {"click", "hakmem", "jinja2", "markupsafe", "prometheus-client", "protobuf", "pyelftools"}
MOST_BYTES = 20_000_000
# Runs until it is ended, with blocks that a heap profile samples.
WAITS = "import time; kept = [bytes(1000) for _ in range(20000)]; print('ready', flush=True); time.sleep(100000)"
# A program for musl. musl's loader preloads the library.
MUSL_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    char *block = malloc(100);
    block = realloc(block, 100000);
    puts(block ? "served" : "not");
    free(block);
}
"""


@pytest.fixture(scope="session")
def plan(made):
    """A plan with the libraries and the wheels in its folders."""
    made("libraries")
    return made("wheels")


@pytest.fixture(scope="session")
def wheels(plan):
    """{target's name: its wheel}."""
    found = {name: list(plan.dist.glob(f"*-{tag}.whl")) for name, tag in maker.TAGS.items()}
    assert all(len(files) == 1 for files in found.values()) and len(list(plan.dist.glob("*.whl"))) == len(found), found
    return {name: files[0] for name, files in found.items()}


def elf_of(wheel, name):
    with zipfile.ZipFile(wheel) as file:
        return ELFFile(io.BytesIO(file.read(name)))


def needed(elf):
    dynamic = elf.get_section_by_name(".dynamic")
    return [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")] if dynamic else None


# ---- What is in them ----

@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_tag_is_what_auditwheel_finds(wheels, target):
    wheel, tag = wheels[target.name], maker.TAGS[target.name]
    assert wheel.name == f"hakmem-{Plan(ROOT, ROOT, ROOT).version}-py3-none-{tag}.whl"
    with zipfile.ZipFile(wheel) as file:
        told = file.read(next(name for name in file.namelist() if name.endswith(".dist-info/WHEEL"))).decode()
    assert {line for line in told.splitlines() if line.startswith("Tag: ")} == {
        f"Tag: py3-none-{part}" for part in tag.split(".")}
    result = blackbox.run([Path(sys.executable).with_name("auditwheel"), "show", wheel])
    words = " ".join(result.stdout.split())
    assert result.status == 0 and f'consistent with the following platform tag: "{tag.partition(".")[0]}"' in words, (
        result.report())
    assert "requires no external shared libraries" in words or target in GLIBC, result.report()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_files_of_each(plan, wheels, target):
    with zipfile.ZipFile(wheels[target.name]) as file:
        names = set(file.namelist())
        modes = {info.filename: stat.S_IMODE(info.external_attr >> 16) for info in file.infolist()}
    programs = {name for name in names if name.startswith(("hakmem/lib/", "hakmem/bin/"))}
    started = {"hakmem/bin/bench_measure", "hakmem/bin/hakmem-run"}
    assert programs == {"hakmem/lib/libhakmem.so", "hakmem/lib/libhakmem-secure.so"} | started | (
        {"hakmem/lib/cycles/libhakmem.so"} if target in GLIBC else set())
    assert all(modes[name] == 0o755 for name in programs)
    assert all(elf_of(wheels[target.name], name)["e_machine"] == target.machine for name in programs)
    assert not any(needed(elf_of(wheels[target.name], name)) for name in started), "they are static"
    library = elf_of(wheels[target.name], "hakmem/lib/libhakmem.so")
    if target in GLIBC:
        tree = plan.work / "lib" / target.name / "lib/libhakmem.so"
        assert library.stream.getvalue() == tree.read_bytes()
    else:
        assert needed(library) == [f"libc.musl-{target.processor}.so.1"]
    assert {"hakmem/gdb/hakmem-gdb.py", "hakmem/live/page/map.html", "hakmem/report/result.schema.json"} <= names
    assert not [name for name in names if re.search(r"__pycache__|\.pyc$|egg-info|/tests?/", name)]
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"hakmem"}


def test_what_the_metadata_say(wheels):
    with zipfile.ZipFile(wheels[NATIVE.name]) as file:
        folder = next(name for name in file.namelist() if name.endswith("/METADATA")).partition("/")[0]
        about = Parser().parsestr(file.read(f"{folder}/METADATA").decode())
        assert file.read(f"{folder}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert about["Requires-Python"] == ">=3.9" and about["License-Expression"] == "MIT"
    assert about.get_payload()
    base = [line for line in about.get_all("Requires-Dist") if "extra ==" not in line]
    assert {re.match(r"[\w-]+", line)[0] for line in base} == BASE - {"hakmem", "markupsafe"}
    assert {"top", "serve", "leaks", "report", "all"} <= set(about.get_all("Provides-Extra"))


def test_the_same_sources_make_the_same_bytes(plan, wheels, tmp_path):
    """The one that is fastest to make. The others are made in the same way."""
    target = next(target for target in TARGETS if target.name == "x86_64-linux-musl")
    again = cached.plan_in(ROOT, tmp_path)
    (again.work / "lib").symlink_to(plan.work / "lib")
    maker.make_wheel(again, target, [maker.static_program(again, target, *one) for one in maker.PROGRAMS.items()])
    (wheel,) = again.dist.iterdir()
    assert wheel.read_bytes() == wheels[target.name].read_bytes()


def test_nothing_in_it_is_newer_than_python_3_9():
    """Syntax, modules, functions and their arguments, including annotations."""
    result = blackbox.run([Path(sys.executable).with_name("vermin"), "-t=3.9-", "--eval-annotations", "--no-tips",
                           "--violations", ROOT / "python/hakmem"], timeout=120)
    assert result.status == 0 and "Minimum required versions: 3.9" in result.stdout, result.report()


@pytest.mark.parametrize("target, python", [("x86_64-linux-gnu", "3.9"), ("aarch64-linux-musl", "3.13")])
def test_what_it_needs_is_there_for_each_system(wheels, tmp_path, target, python):
    """pip finds wheels of all base packages, for the oldest Python and a newer one. It compiles nothing."""
    result = blackbox.run([
        sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--dry-run", "--target",
        tmp_path / "no", "--only-binary=:all:", "--python-version", python, "--implementation", "cp", "--abi",
        f"cp{python.replace('.', '')}", "--abi", "abi3", "--abi", "none", "--platform",
        maker.TAGS[target].rpartition(".")[2], "--report", "-", wheels[target]
    ], timeout=120)
    assert result.status == 0, result.report()
    assert {row["metadata"]["name"].lower().replace("_", "-") for row in json.loads(result.stdout)["install"]} == BASE


# ---- musl ----

def test_the_library_serves_a_program_on_musl(wheels, tmp_path):
    """Debian has musl but no Python on it, so a C program stands for Alpine's."""
    with zipfile.ZipFile(wheels["x86_64-linux-musl"]) as file:
        file.extract("hakmem/lib/libhakmem.so", tmp_path)
        file.extract("hakmem/bin/bench_measure", tmp_path)
    (tmp_path / "program.c").write_text(MUSL_PROGRAM)
    files, libraries = Path("/usr/lib/x86_64-linux-musl"), Path("/lib/x86_64-linux-musl")
    own = subprocess.run(["gcc", "-print-file-name=include"], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run(["gcc", "-nostdinc", "-isystem", "/usr/include/x86_64-linux-musl", "-isystem", own, "-nostdlib",
                    "-no-pie", f"-Wl,-dynamic-linker,{libraries}/libc.so", files / "crt1.o", files / "crti.o",
                    tmp_path / "program.c", "-o", tmp_path / "program", f"-L{libraries}", "-lc", files / "crtn.o"],
                   check=True)
    result = blackbox.run([tmp_path / "program"], env={"LD_PRELOAD": str(tmp_path / "hakmem/lib/libhakmem.so"),
                                                       "HAKMEM_VERBOSE": "1"})
    assert result.stdout == "served\n" and result.stderr.startswith("hakmem: "), result.report()


# ---- An installation ----

@pytest.fixture(scope="session")
def installed(wheels, tmp_path_factory):
    """A fresh environment's folder of commands."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run(["/usr/bin/python3", "-m", "venv", folder], check=True)
    done = blackbox.run([folder / "bin/python", "-m", "pip", "install", "--disable-pip-version-check", "-q",
                         wheels[NATIVE.name]], timeout=300)
    assert done.status == 0, done.report()
    return folder / "bin"


@pytest.fixture
def hakmem(installed):
    """hakmem(ARGUMENTS...): the command for a user without the checkout."""
    def run(*arguments, status=0, **more):
        result = blackbox.run([installed / "hakmem", *arguments], cwd="/", **more)
        assert result.status == status, result.report()
        return result

    return run


def test_the_base_is_small(installed):
    """Beyond an empty environment: pip, and its own packages."""
    (site,) = installed.parent.glob("lib/python3.*/site-packages")
    own = {"pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils"}
    files = [path for path in site.rglob("*") if path.is_file()
             and path.relative_to(site).parts[0].partition("-")[0] not in own]
    # On the disk, in whole blocks.
    size = sum(path.stat().st_blocks * 512 for path in files)
    assert 2_000_000 < size < MOST_BYTES
    listed = blackbox.run([installed / "python", "-m", "pip", "list", "--disable-pip-version-check",
                           "--format=freeze"])
    names = {line.partition("==")[0].lower().replace("_", "-") for line in listed.stdout.splitlines()}
    assert names - {"pip", "setuptools"} == BASE


def test_every_command_has_its_page(hakmem):
    names = re.findall(r"^  ([a-z]+) ", hakmem("help").stdout.partition("Run:")[2].partition("Exit status")[0],
                       re.MULTILINE)
    for name in set(names) - {"help"}:
        assert hakmem("help", name).stdout.startswith(f"Usage: hakmem {name}")


@pytest.fixture(scope="module")
def running(installed, tmp_path_factory):
    """A program with a heap profile, to which a debugger may attach: its PID."""
    profile = tmp_path_factory.mktemp("profile") / "heap.pb.gz"
    process = subprocess.Popen(
        [installed / "hakmem", "run", "--set", f"HAKMEM_HEAP_PROFILE={profile}", "--", "/usr/bin/python3",
         "-c", WAITS], cwd="/",
        text=True, stdout=subprocess.PIPE, env=blackbox.environment(), start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    yield process.pid
    blackbox.stop_session(process)
    process.communicate()


@pytest.mark.parametrize("words", [
    ["stats"], ["stats", "--json"], ["stats", "--prometheus"], ["explain"], ["top", "--once", "--interval", "0.05"],
    ["heap"],
], ids=" ".join)
def test_a_running_process_is_looked_into(hakmem, running, words):
    result = hakmem(*words, str(running))
    assert result.stdout and result.stderr.count("Traceback") == 0, result.report()


def test_a_running_process_is_examined(installed, running):
    """doctor's status is 1 where it warns of the machine, as where memory ran out once."""
    result = blackbox.run([installed / "hakmem", "doctor", str(running)], cwd="/")
    assert result.status in (0, 1) and result.stdout.startswith(f"process {running}\n"), result.report()
    assert result.stderr == "", result.report()


def test_pages_are_made(hakmem, running, tmp_path):
    hakmem("map", str(running), "-o", tmp_path / "map.html")
    hakmem("heap", str(running), "--html", tmp_path / "heap.html")
    assert all((tmp_path / name).stat().st_size > 10000 for name in ("map.html", "heap.html"))


def test_a_profile_is_read_when_the_program_has_ended(hakmem, tmp_path):
    file = tmp_path / "heap.pb.gz"
    hakmem("run", "--heap-profile", file, "--", "/usr/bin/python3", "-c",
           "print(len([bytes(1000) for _ in range(9000)]))")
    assert hakmem("heap", "--alloc", file).stdout


def test_programs_are_compared(hakmem):
    result = hakmem("compare", "--rounds", "1", "--warm", "0", "--allocators", "glibc,hakmem", "--no-calls",
                    "--", "/usr/bin/python3", "-c",
                    "print(len([bytes(1000) for _ in range(9000)]))")
    assert re.search(r"^glibc .*MiB", result.stdout, re.MULTILINE) and "hakmem-again" in result.stdout, result.report()


def test_the_cycle_profile_is_there(hakmem):
    result = hakmem("run", "--profile", "--", "/usr/bin/python3", "-c", "pass")
    assert result.stderr.startswith("hakmem: "), result.report()


def test_gdb_finds_what_it_needs_beside_the_script(installed, running):
    """Debian 12's gdb has the same Python as the environment."""
    (package,) = installed.parent.glob("lib/python3.*/site-packages/hakmem")
    result = blackbox.run(["gdb", "-nx", "-batch", "-p", str(running), "-ex", f"source {package}/gdb/hakmem-gdb.py",
                           "-ex", "hakmem info"], cwd="/", timeout=120)
    assert result.status == 0 and "SuperSlabs" in result.stdout, result.report()


# ---- Extras ----

@pytest.mark.parametrize("words, package", [
    (["serve", "PID"], "aiohttp"), (["top", "--svg", "/tmp/never.svg", "PID"], "rich"),
    (["leaks", "--", "true"], "numpy"),
])
def test_what_is_missing_is_said_in_a_line(hakmem, running, words, package):
    """Under a name that PyPI has: nobody else can take it."""
    result = hakmem(*(str(running) if word == "PID" else word for word in words), status=1)
    assert re.search(rf"pip install .*\b{package}\b", result.stderr) and "hakmem[" not in result.stderr
    assert result.stdout == "" and result.stderr.count("\n") == 1, result.report()


def test_top_without_its_extra_is_a_screen_without_keys(installed, running):
    screen = pexpect.spawn(str(installed / "hakmem"),
                           ["top", "--interval", "0.2", str(running)], cwd="/", timeout=blackbox.HANG,
                           dimensions=(50, 150), encoding="utf-8", env=blackbox.environment({"TERM": "xterm"}))
    screen.expect_exact("textual")
    screen.expect("[0-9.,]+/s")  # of the second reading
    screen.sendintr()
    screen.expect(pexpect.EOF)
    screen.close()
    assert screen.exitstatus == 0


def test_what_only_a_checkout_has_is_refused_in_a_line(hakmem):
    for word in "peers", "bench", "trace", "help developer":
        assert f"./hakmem {word}" in hakmem(*word.split(), status=2).stderr
    assert "help developer" not in hakmem("help").stdout
