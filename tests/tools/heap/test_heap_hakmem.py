"""Protects the profile that HAKMEM writes for a program with known amounts, as hakmem heap shows it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import blackbox
import pytest
from making import run

SOURCE = Path(__file__).with_name("kept.cpp")
KEPT, BURNT = 20000 * 1000, 4 * 20000 * 1000
# A sample each 4 KiB of 20 MB: 5,000 samples, so 5 standard deviations are 7 %. Blocks of 1000 bytes take 1024.
NEAR = 0.1


@pytest.fixture(scope="module")
def profile(compiled, library, tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "kept.pb.gz"
    done = blackbox.run([compiled(SOURCE)], preload=library,
                        env={"HAKMEM_HEAP_PROFILE": str(path), "HAKMEM_HEAP_PROFILE_RATE": "4096",
                             "HAKMEM_HEAP_PROFILE_OVERHEAD": "0"})
    assert done.status == 0, done.report()
    return path


def test_sites_and_amounts(profile):
    done = run(profile, "--json")
    assert done.exit_code == 0, done.output
    sites = {site["name"]: site for site in json.loads(done.stdout)["sites"]}
    keep, burn = sites["barn::keep_hay(unsigned long)"], sites["barn::burn_straw(unsigned long)"]
    assert keep["flat"]["inuse_space"] == pytest.approx(KEPT, rel=NEAR)
    assert keep["flat"]["inuse_objects"] == pytest.approx(20000, rel=NEAR)
    assert burn["flat"]["alloc_space"] == pytest.approx(BURNT, rel=NEAR)
    assert burn["flat"]["inuse_space"] < KEPT / 1000
    assert burn["lifetimes"]["freed"] == pytest.approx(80000, rel=NEAR)
    assert keep["where"] == burn["where"] == str(SOURCE)
    assert sites["main"]["cum"]["inuse_space"] >= keep["flat"]["inuse_space"]


def test_the_first_site_and_the_page(profile, tmp_path):
    lines = run(profile, "-n", 1, "--lines").stdout.splitlines()
    assert "barn::keep_hay" in lines[-1] and "unsigned" not in lines[-1] and f"{SOURCE}:" in lines[-1]
    assert any(line.startswith("comment") and "hakmem" in line for line in lines)
    page = tmp_path / "page.html"
    assert run(profile, "--html", page).exit_code == 0
    assert "barn::keep_hay" in page.read_text()


HOLDS = "import sys; kept = [bytes(100000 + i) for i in range(300)]; print('ready', flush=True); sys.stdin.readline()"


def tracer_of(pid):
    return int(re.search(r"^TracerPid:\t(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def test_gdb_attaches_once_the_process_beside_is_ended(tmp_path):
    """As docs/doctor.md says. The library still writes the profile."""
    path = tmp_path / "held.pb.gz"
    process = subprocess.Popen(
        [sys.executable, "-m", "hakmem", "run", "--heap-profile", path, "--", "python3", "-c", HOLDS],
        env=blackbox.environment({"HAKMEM_BUILD_DIR": str(blackbox.LIBRARY_FOLDER.parent)}), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "ready\n"
        attach = ["gdb", "-nx", "-batch", "-p", str(process.pid), "-ex", "print 40 + 2"]
        refused = blackbox.run(attach, timeout=120)
        assert "ptrace" in refused.stderr and tracer_of(process.pid) > 0, refused.report()
        os.kill(tracer_of(process.pid), signal.SIGTERM)
        until = time.monotonic() + blackbox.HANG
        while tracer_of(process.pid) and time.monotonic() < until:
            time.sleep(0.02)
        attached = blackbox.run(attach, timeout=120)
        assert "$1 = 42" in attached.stdout and "not permitted" not in attached.stderr, attached.report()
        process.communicate("\n", timeout=blackbox.HANG)
    assert process.returncode == 0 and run(path).exit_code == 0
