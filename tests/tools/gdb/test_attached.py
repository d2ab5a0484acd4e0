"""Protects programs to which gdb attaches: it reads the probes' arguments, and takes over from hakmem's own tracer."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import blackbox
import pytest

sys.path[:0] = [str(blackbox.REPOSITORY / folder) for folder in ("python", "tests/tools/heap")]

from steady import FLAGS, SOURCE, steady  # noqa: E402

from hakmem.live.control import Control  # noqa: E402
from hakmem.live.memory import ProcessMemory  # noqa: E402


@pytest.fixture
def running(compiled, library):
    with steady(compiled(SOURCE, *FLAGS), library, HAKMEM_HEAP_PROFILE_RATE="4K") as process:
        yield process


def test_arguments_by_a_debugger(running, library):
    """gdb finds the probes by their notes, increments the semaphore, and stops at the nop."""
    script = ["set pagination off", "set breakpoint pending on", "handle SIGINT nostop noprint pass",
              "break -probe-stap otel_memory:alloc", "break -probe-stap otel_memory:free",
              "commands 1\nsilent\nprintf \"alloc %#lx %lu %lu\\n\", $_probe_arg0, $_probe_arg1, "
              "$_probe_arg2\ncontinue\nend",
              "commands 2\nsilent\nprintf \"free %#lx\\n\", $_probe_arg0\ncontinue\nend", "continue"]
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"hakmem-probes-{running.pid}.gdb"
    path.write_text("\n".join(script) + "\n")
    debugger = subprocess.Popen(
        ["gdb", "-nx", "-q", "-batch", "-p", str(running.pid), "-x",
         str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        control = Control(ProcessMemory(running.pid))
        deadline = time.monotonic() + blackbox.HANG
        while control.memory.read(control.field("word")[0], 4) == bytes(4) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert control.memory.read(control.field("word")[0], 4) == b"\1\0\1\0"
        running.tell("keep", 5000, 60)
        running.tell("drop")
    finally:
        running.process.kill()
        told = debugger.communicate(timeout=blackbox.HANG)[0]
        path.unlink()
    allocated = re.findall(r"^alloc (0x[0-9a-f]+) (\d+) (\d+)$", told, re.M)
    freed = re.findall(r"^free (0x[0-9a-f]+)$", told, re.M)
    # 60 blocks of 5,120 bytes, each a sample with a chance of 0.71: fewer than ten have one of 10^-18.
    assert len([size for _, size, _ in allocated if size == "5120"]) >= 10, told
    for address, size, weighted in allocated:
        chance = 1 - 2.718281828459045 ** (-int(size) / 4096)
        assert int(weighted) == pytest.approx(int(size) / chance, rel=0.001)
        assert int(address, 16) % 16 == 0
    assert set(freed) <= {address for address, _, _ in allocated}
    assert freed


HOLDS = "import sys; kept = [bytes(100000 + i) for i in range(300)]; print('ready', flush=True); sys.stdin.readline()"


def tracer_of(pid):
    return int(re.search(r"^TracerPid:\t(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1])


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
        assert "ptrace" in refused.stderr, refused.report()
        assert tracer_of(process.pid) > 0
        os.kill(tracer_of(process.pid), signal.SIGTERM)
        blackbox.wait_for(lambda: not tracer_of(process.pid), "the tracer's end")
        attached = blackbox.run(attach, timeout=120)
        assert "$1 = 42" in attached.stdout and "not permitted" not in attached.stderr, attached.report()
        process.communicate("\n", timeout=blackbox.HANG)
    assert process.returncode == 0 and path.stat().st_size
