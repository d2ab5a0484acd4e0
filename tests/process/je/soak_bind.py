"""Protects Debian's BIND, which uses jemalloc's mallocx, rallocx and sdallocx.

It serves the same zone on libhakmem-je, and its tools run on the other libraries."""

import re
import socket
import subprocess
import time

import blackbox
import pytest

NAMES = 20000


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def write_zone(folder):
    """Names of many lengths, each with its own text."""
    lines = ["$TTL 60", "@ IN SOA here. me.here. 1 60 60 60 60", "@ IN NS here."]
    lines += [f"n{i}{'x' * (i % 40)} IN TXT \"{'y' * (i * 7 % 200)}{i}\"" for i in range(NAMES)]
    (folder / "zone").write_text("\n".join(lines) + "\n")


def served(folder, preload):
    """The answers to five simultaneous requests for the whole zone, and the server's output."""
    port = free_port()
    (folder / "conf").write_text(f'''
        options {{ directory "{folder}"; pid-file none; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no;
                   allow-transfer {{ any; }}; notify no; session-keyfile "{folder}/session"; }};
        controls {{ }};
        zone "example" {{ type primary; file "{folder}/zone"; }};
    ''')
    env = blackbox.environment({"HAKMEM_VERBOSE": "1"}, preload)
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(["named", "-g", "-c", folder / "conf", "-n", "2"], env=env, cwd=folder,
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + blackbox.HANG
        while "all zones loaded" not in (folder / "log").read_text(errors="replace"):
            assert server.poll() is None and time.monotonic() < deadline, (folder / "log").read_text(errors="replace")
            time.sleep(0.05)
        ask = ["dig", "@127.0.0.1", "-p", str(port), "+tcp", "+onesoa", "+nocmd", "+nostats", "example", "AXFR"]
        asking = [
            subprocess.Popen(ask, env=blackbox.environment(), stdout=subprocess.PIPE, text=True) for _ in range(5)
        ]
        answers = {re.sub(r"[ \t]+", " ", one.communicate(timeout=blackbox.HANG)[0]) for one in asking}
        server.terminate()
        assert server.wait(timeout=blackbox.HANG) == 0
    finally:
        blackbox.stop_session(server)
        server.wait()
    return answers, (folder / "log").read_text(errors="replace")


def test_named_serves_a_zone(je_library, tmp_path):
    needed = subprocess.run(["ldd", "/usr/sbin/named"], capture_output=True, text=True, check=True).stdout
    (libisc,) = re.findall(r"=> (\S*/libisc-\S+)", needed)
    asked = subprocess.run(["nm", "-D", "--undefined-only", libisc], capture_output=True, text=True, check=True).stdout
    assert {"mallocx", "rallocx", "sdallocx", "sallocx"} <= set(asked.split()), "the server takes jemalloc's interface"
    write_zone(tmp_path)
    answers, log = served(tmp_path, je_library)
    assert "hakmem: version" in log
    assert len(answers) == 1 and next(
        iter(answers)).count(" IN TXT ") == NAMES, "five that ask get one answer, and all of it"
    assert served(tmp_path, None)[0] == answers


def test_its_tool_reads_the_zone(je_library, tmp_path):
    write_zone(tmp_path)
    plain, ours = (blackbox.run(["named-checkzone", "-D", "example", tmp_path / "zone"], preload=preload)
                   for preload in (None, je_library))
    assert ours.status == plain.status == 0 and ours.stdout == plain.stdout and ours.stdout.count(
        "TXT") == NAMES, ours.report()


@pytest.mark.parametrize("name", ["libhakmem.so", "libhakmem-secure.so", "libhakmem-tc.so"])
def test_its_tool_reads_the_zone_on_every_library(name, tmp_path):
    write_zone(tmp_path)
    plain, ours = (blackbox.run(["named-checkzone", "-D", "example", tmp_path / "zone"], preload=preload)
                   for preload in (None, blackbox.LIBRARY.with_name(name)))
    assert ours.status == plain.status == 0 and ours.stdout == plain.stdout, ours.report()
    assert ours.stderr == plain.stderr, ours.report()
