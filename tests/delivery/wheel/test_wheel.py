"""Protects the wheel: installed in its own environment, without the checkout, it runs programs and inspects them."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import blackbox

BUILD = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")).resolve()
WAITS = "import time; kept = [bytes(1000) for _ in range(20000)]; print('ready', flush=True); time.sleep(100000)"


def built_wheel(folder, **env):
    return blackbox.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder,
                         blackbox.REPOSITORY / "python"], env=env, timeout=120)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    result = built_wheel(folder, HAKMEM_BUILD_DIR=str(BUILD))
    found = list(folder.glob("*.whl"))
    assert result.status == 0 and len(found) == 1, result.report()
    return found[0]


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """A fresh environment's folder of commands. The tests' environment lends it the packages that hakmem needs."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = blackbox.run([folder / "bin/python", "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel],
                        timeout=120)
    assert done.status == 0, done.report()
    (site,) = folder.glob("lib/python3.*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def hakmem(installed, *arguments, **more):
    """The command for a user without the checkout."""
    return blackbox.run([installed / "hakmem", *arguments], cwd="/", **more)


def package(installed):
    (found,) = installed.parent.glob("lib/python3.*/site-packages/hakmem")
    return found


def test_what_is_in_it(wheel):
    assert "-py3-none-manylinux_2_" in wheel.name
    with zipfile.ZipFile(wheel) as file:
        assert file.read("hakmem/lib/libhakmem.so") == blackbox.LIBRARY.read_bytes()
        names = file.namelist()
    assert "hakmem/gdb/hakmem-gdb.py" in names and not [name for name in names if "__pycache__" in name]


def test_without_a_library_there_is_no_wheel(tmp_path):
    result = built_wheel(tmp_path / "out", HAKMEM_BUILD_DIR=str(tmp_path))
    assert result.status != 0 and "libhakmem.so" in result.stderr, result.report()


def test_it_is_the_installed_one(installed):
    result = blackbox.run([installed / "python", "-c", "import hakmem; print(hakmem.__file__)"], cwd="/")
    assert result.stdout.strip() == str(package(installed) / "__init__.py"), result.report()


def test_version_and_help(installed):
    header = (blackbox.INCLUDE_FOLDER / "hakmem/hakmem.h").read_text()
    result = hakmem(installed, "--version")
    assert result.status == 0 and f'HAK_VERSION_STRING "{result.stdout.split()[1]}"' in header, result.report()
    pages = [hakmem(installed, "top", "--help"), hakmem(installed, "help", "top"),
             blackbox.run([installed / "python", "-m", "hakmem", "top", "-h"], cwd="/")]
    assert pages[0].status == 0 and pages[0].stdout.startswith("Usage: hakmem top "), pages[0].report()
    assert pages[0] == pages[1] == pages[2]
    assert hakmem(installed, "help", "fly").status == 2


def test_run(installed):
    result = hakmem(installed, "run", "--set", "verbose=1", "--", "sh", "-c", 'echo "$LD_PRELOAD"; exit 5')
    assert result.status == 5 and result.stdout.strip() == str(package(installed) / "lib/libhakmem.so"), result.report()
    assert result.stderr.startswith("hakmem: ")


def test_a_profile_needs_the_library_that_carries_it(installed):
    result = hakmem(installed, "run", "--profile", "true")
    assert result.status == 1 and "cycles/libhakmem.so" in result.stderr, result.report()


@pytest.fixture
def running(installed):
    process = subprocess.Popen([installed / "hakmem", "run", "--", "/usr/bin/python3", "-c", WAITS], cwd="/", text=True,
                               stdout=subprocess.PIPE, env=blackbox.environment(), start_new_session=True)
    try:
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        blackbox.stop_session(process)
        process.wait()


def test_stats_and_doctor_of_a_process(installed, running):
    result = hakmem(installed, "stats", "--json", str(running))
    assert result.status == 0, result.report()
    assert json.loads(result.stdout)["totals"]["live"] > 20000 * 1000
    result = hakmem(installed, "doctor", "--json", str(running))
    found = {finding["subject"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert found["HAKMEM"]["level"] == "ok" and str(package(installed)) in found["HAKMEM"]["seen"], result.report()


def test_doctor_without_a_process(installed):
    result = hakmem(installed, "doctor", "--json")
    first = json.loads(result.stdout)["findings"][0]
    assert (first["level"], first["subject"]) == ("ok", "library") and str(package(installed)) in first["seen"]


def test_gdb_finds_what_it_needs_beside_the_script(installed, running):
    """Lent packages are not beside the script, so the environment tells gdb's Python where they are."""
    result = blackbox.run(["gdb", "-nx", "-batch", "-p", str(running), "-ex", f"source "
                           f"{package(installed)}/gdb/hakmem-gdb.py",
                           "-ex", "hakmem info"], env={"PYTHONPATH": sysconfig.get_path("purelib")}, cwd="/",
                          timeout=120)
    assert result.status == 0 and "SuperSlabs" in result.stdout, result.report()
