"""Protects `hakmem leaks`: what counts as lost, however the program ends, its statuses and its files."""

import errno
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import blackbox
import inprocess
import pytest
from conftest import BUILD, HAKMEM, hakmem

# Usable bytes of leaks.cpp's blocks.
THOUSAND, NODE, LARGE = 1024, 48, 5 << 20


def lost_of(report):
    return report["lost"]["blocks"], report["lost"]["bytes"], report["behind_lost"]["blocks"], report["behind_lost"][
        "bytes"]


# 100 blocks, the head of a list of 50, one of a ring of two, one large block; then the rest of the list and ring.
EXPECTED = (103, 100 * THOUSAND + 2 * NODE + LARGE, 50, 50 * NODE)


@pytest.mark.parametrize("how, status", [
    ("return", 1), ("_exit", 3), ("kill", 128 + signal.SIGKILL), ("fault", 128 + signal.SIGSEGV)])
def test_the_same_is_lost_however_it_ends(leaks, how, status):
    looked = leaks(["all", how])
    assert looked.result.status == status and looked.result.stdout == "done\n", looked.result.report()
    (report,) = looked.reports
    assert report["leaks"] is True and lost_of(report) == EXPECTED


def test_each_site_has_its_own(leaks):
    looked = leaks(["all", "return"])
    assert looked.site("lose_blocks")["lost"] == {"blocks": 100, "bytes": 100 * THOUSAND, "asked": 100000}
    assert looked.site("lose_large")["lost"] == {"blocks": 1, "bytes": LARGE, "asked": LARGE}
    one = looked.site("lose_list")
    assert (one["lost"]["blocks"], one["behind_lost"]["blocks"]) == (1, 49)
    rings = [
        site for site in looked.reports[0]["sites"] if any("lose_ring" in frame["name"] for frame in site["frames"])
    ]
    assert sum(site["lost"]["blocks"] for site in rings) == sum(site["behind_lost"]["blocks"] for site in rings) == 1
    sizes = [site["lost"]["bytes"] + site["behind_lost"]["bytes"] for site in looked.reports[0]["sites"]]
    assert sizes == sorted(sizes, reverse=True)


def test_the_text(leaks):
    """The sums, and of each site its bytes, its blocks and its stack, innermost first."""
    text = leaks(["all", "return"]).result.stderr
    blocks, size, behind, behind_size = EXPECTED
    assert all(figure in text for figure in (f"{size:,} bytes", f" {blocks} ", f"{behind_size:,} bytes", f" {behind} "))
    at = text.index("102,400 bytes")
    assert re.match(r"102,400 bytes.* 100 .*\n +take.*\n +lose_blocks", text[at:]), text


def test_nothing_is_lost(leaks):
    looked = leaks(["clean"], "--reachable")
    assert looked.result.status == 0, looked.result.report()
    (report,) = looked.reports
    assert lost_of(report) == (0, 0, 0, 0)
    reachable = {
        pair for site in report["sites"] for pair in [(site["reachable"]["blocks"], site["reachable"]["bytes"])]
    }
    # The list; the block kept by a pointer into it; the large block; blocks kept by it, by a mapping and by a thread.
    assert {(2000, 2000 * NODE), (1, 448), (1, 3 << 20), (1, 2560), (1, 3584), (1, 4608), (1, 6144),
            (1, 10240)} <= reachable


def test_frames_and_storage_of_threads_that_remain(leaks):
    looked = leaks(["threads", "return"], "--reachable")
    assert lost_of(looked.reports[0]) == EXPECTED
    held = [
        site["reachable"] for site in looked.reports[0]["sites"]
        if any(frame["name"].startswith("hold") for frame in site["frames"])
    ]
    assert {(one["blocks"], one["bytes"]) for one in held} == {(3, 3 * 7168), (3, 3 * 8192)}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only there a thread's descriptor tells its own address")
def test_the_stack_of_an_ended_thread_keeps_nothing(leaks):
    """The thread library keeps it for the next thread, with what the thread has left there."""
    site = leaks(["ended", "return"]).site("leave")
    assert site["lost"] == {"blocks": 1, "bytes": 12288, "asked": 11000} and site["reachable"]["blocks"] == 0


def test_the_first_thread_has_ended(leaks):
    looked = leaks(["one", "main_thread_ends"])
    assert looked.result.status == 1 and lost_of(looked.reports[0])[:2] == (1, THOUSAND), looked.result.report()


def test_a_program_that_becomes_another(leaks):
    """Memory lost before the exec is gone with it."""
    looked = leaks(["all", "exec"])
    assert len(looked.reports) == 1 and lost_of(looked.reports[0]) == (1, THOUSAND, 0, 0)


def test_children(leaks):
    alone, both = leaks(["one", "fork"]), leaks(["one", "fork"], "--children")
    assert len(alone.reports) == 1 and len(both.reports) == 2
    assert sorted(lost_of(report)[:2] for report in both.reports) == [(1, THOUSAND), (2, THOUSAND + LARGE)]


def test_exit_code(leaks, program):
    assert leaks(["one"], "--exit-code", "23").result.status == 23


def test_files(program, tmp_path):
    """The report goes to the given file, a profile of the lost memory is one, and the summary is appended."""
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    names = {name: tmp_path / name for name in ("report.txt", "lost.pb.gz")}
    result = hakmem("leaks", "--output", names["report.txt"], "--pprof", names["lost.pb.gz"], "--", program, "all",
                    env={"GITHUB_STEP_SUMMARY": str(summary)})
    assert (result.status, result.stderr) == (1, ""), result.report()
    assert "102,400 bytes" in names["report.txt"].read_text()
    told = json.loads(inprocess.hakmem("heap", "--json", names["lost.pb.gz"]).stdout)
    assert told["totals"]["inuse_space"] == EXPECTED[1] + EXPECTED[3] and told["totals"][
        "inuse_objects"] == EXPECTED[0] + EXPECTED[2]
    text = summary.read_text()
    assert text.startswith("before\n") and re.search(r"^\| 5,242,880 \| 1 \| take", text, re.MULTILINE), text


def test_python_objects_as_blocks(tmp_path):
    """An interpreter keeps what its variables name. With PYTHONMALLOC=malloc each object is a block."""
    code = ("import ctypes, os; ctypes.CDLL(None).malloc(777777); kept = [bytes(3000) for _ in range(1000)]; "
            "os._exit(0)")
    file = tmp_path / "leaks.json"
    result = hakmem("leaks", "--json", file, "--", "/usr/bin/python3", "-c", code, env={"PYTHONMALLOC": "malloc"})
    assert result.status == 1, result.report()
    (report,) = json.loads(file.read_text())
    lost = [site["lost"] for site in report["sites"] if site["lost"]["bytes"] > 3000]
    assert lost == [{"blocks": 1, "bytes": 786432, "asked": 777777}] and report["reachable"]["bytes"] > 3_000_000


# ---- What cannot be ----


def test_wrong_command_lines():
    for words, status, named in ((("--", "nosuchprogram"), 127, "nosuchprogram"), (("--", "/tmp"), 126, "/tmp"),
                                 ((), 2, "PROGRAM"), (("--json", "/nosuchfolder/x", "--", "true"), 2, "/nosuchfolder"),
                                 (("--exit-code", "300", "--", "true"), 2, "300"),
                                 (("--nosuch", "--", "true"), 2, "--nosuch")):
        inprocess.hakmem("leaks", *words, HAKMEM_BUILD_DIR=str(BUILD)).says(status, named)


def test_labels(compiled, tmp_path):
    """Blocks of one place are told apart by the labels that they were allocated under (hak_profile_label)."""
    labelled = compiled(Path(__file__).with_name("labelled.c"), f"-I{blackbox.INCLUDE_FOLDER}", "-O1", "-g")
    file, profile = tmp_path / "leaks.json", tmp_path / "leaks.gz"
    result = hakmem("leaks", "--json", file, "--pprof", profile, "--", labelled)
    assert result.status == 1, result.report()
    (report,) = json.loads(file.read_text())
    lost = {site["labels"].get("tenant"): site for site in report["sites"]}
    assert {tenant: site["lost"]["blocks"] for tenant, site in lost.items()} == {None: 10, "a": 20, "b": 30}
    assert lost["b"]["labels"] == {"tenant": "b", "part": "1002 bytes"} and lost[None]["labels"] == {}
    assert {tuple(frame["name"] for frame in site["frames"][:1]) for site in report["sites"]} == {("lose",)}
    assert "tenant=b" in result.stderr and "30,720 bytes" in result.stderr
    data = json.loads(inprocess.hakmem("heap", profile, "--by-label", "tenant", "--json").stdout)
    assert {value: row["inuse_objects"] for value, row in data["by_label"].items()} == {"a": 20, "b": 30, "(none)": 10}


def test_a_static_program(compiled, tmp_path):
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n")
    program = compiled(source, "-static")
    result = hakmem("leaks", "--", program)
    assert result.status == 1 and str(program) in result.stderr, result.report()


def test_a_file_that_is_no_program(tmp_path):
    """The kernel refuses it after the start. One message says so, with a shell's status."""
    file = tmp_path / "words"
    file.write_bytes(b"\x7fELF nothing else")
    file.chmod(0o755)
    result = hakmem("leaks", "--", file)
    assert result.status == 126 and result.stderr.count(os.strerror(errno.ENOEXEC)) == 1, result.report()


def test_signals_reach_the_program(program):
    """A signal sent to the command ends the program, and the report is still written."""
    code = "import time, sys; print('ready', flush=True); time.sleep(100000)"
    process = subprocess.Popen([*HAKMEM, "leaks", "--", "/usr/bin/python3", "-c", code], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True,
                               env=blackbox.environment({"HAKMEM_BUILD_DIR": str(blackbox.LIBRARY_FOLDER.parent)}))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=blackbox.HANG)
    assert process.returncode == 128 + signal.SIGTERM and "SIGTERM" in said, said
