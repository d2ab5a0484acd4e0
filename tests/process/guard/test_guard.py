"""Protects the reports of errors at guarded blocks, as text and as JSON, and the way the process ends."""

import errno
import os
import re
import signal

import pytest

import blackbox
from messages import numbers

SEGV, ABRT = -signal.SIGSEGV, -signal.SIGABRT
# mode: the status, the error, the access or the function, the place relative to the block, the stacks.
ERRORS = {
    "behind": (SEGV, "overflow", "write", 1010, ["allocated", "accessed"]),
    "behind-read": (SEGV, "overflow", "read", 1008, ["allocated", "accessed"]),
    "before": (SEGV, "underflow", "read", -3, ["allocated", "accessed"]),
    "after-free-read": (SEGV, "use-after-free", "read", 4, ["allocated", "freed", "accessed"]),
    "after-free-write": (SEGV, "use-after-free", "write", 999, ["allocated", "freed", "accessed"]),
    "execute": (SEGV, "use-after-free", "execute", 0, ["allocated", "freed", "accessed"]),
    "threads": (SEGV, "use-after-free", "read", 0, ["allocated", "freed", "accessed"]),
    "api-start": (SEGV, "use-after-free", "read", 4, ["allocated", "freed", "accessed"]),
    "api-stop": (SEGV, "use-after-free", "read", 0, ["allocated", "freed", "accessed"]),
    "alternate": (SEGV, "use-after-free", "read", 0, ["allocated", "freed", "accessed"]),
    "double-free": (ABRT, "double-free", "free", 0, ["allocated", "freed", "called"]),
    "realloc-freed": (ABRT, "double-free", "realloc", 0, ["allocated", "freed", "called"]),
    "inside-free": (ABRT, "invalid-free", "free", 16, ["allocated", "called"]),
    "damage-behind": (ABRT, "damage-behind", "free", 1001, ["allocated", "called"]),
    "damage-before": (ABRT, "damage-before", "free", -7, ["allocated", "called"]),
}
FRAME = re.compile(r"    #(\d+) (0x[0-9a-f]+)(?: (/\S+)\+(0x[0-9a-f]+) \(build-id ([0-9a-f]{40})\))?")


def stacks_in(said):
    """{what: [(address, file, offset, build-id)]} from a report's text."""
    found, frames = {}, None
    for line in said[2:]:
        if match := re.fullmatch(r"(allocated|freed|accessed|called)\b.* (\d+):", line):
            frames = found[match[1]] = []
        else:
            match = FRAME.fullmatch(line)
            assert match and int(match[1]) == len(frames), line
            frames.append(match.group(2, 3, 4, 5))
    return found


@pytest.mark.parametrize("mode", ERRORS)
def test_an_error_is_reported(errors, program, mode):
    status, error, how, offset, stacks = ERRORS[mode]
    run = errors(mode)
    assert run.status == status, run.result.report()
    block = run.result.stdout.split()[0]
    (report,) = run.reports
    said = run.said
    assert said[0].startswith(how) and {1000, int(block, 16)} <= set(numbers(said[0])), said[0]
    apart = -offset if offset < 0 else offset - 1000 if offset >= 1000 else offset
    assert apart in numbers(said[0]) or error == "double-free", said[0]
    assert (report["function"] if status == ABRT else report["access"]) == how and report["error"] == error
    assert report["block"]["address"] == block and report["block"]["size"] == 1000
    assert int(report["address"], 16) == int(block, 16) + offset and report["block"]["offset"] == offset
    assert {report["thread"]["id"], report["process"]} <= set(numbers(said[1])) and report["thread"]["name"] in said[1]
    assert list(
        stacks_in(said)) == stacks == [name for name in ("allocated", "freed", "accessed", "called") if name in report]
    for name, frames in stacks_in(said).items():
        assert [frame[0] for frame in frames] == report[name]["frames"] and frames
        modules = {row["path"]: row["build_id"] for row in report["modules"]}
        ours = [frame for frame in frames if frame[1] == str(program)]
        assert ours and all(modules[file] == build_id for _, file, _, build_id in frames if file)
        assert not any("libhakmem" in (frame[1] or "") for frame in frames)


def test_threads_are_named(errors):
    (report,) = errors("threads").reports
    threads = [report[name]["thread"] for name in ("allocated", "freed", "accessed")]
    assert len(set(threads)) == 3 and threads[0] == report["process"]
    assert report["thread"] == {"id": threads[2], "name": 'other "thread"'}


@pytest.mark.parametrize("mode", ["kinds", "churn", "system-call"])
def test_what_is_no_error_is_not_reported(errors, mode):
    run = errors(mode)
    assert run.status == 0 and not run.said and not run.reports, run.result.report()


def test_a_leaner_unwinder_finds_no_false_errors(errors):
    run = errors("churn", HAKMEM_HEAP_PROFILE_UNWIND="fp")
    assert run.status == 0 and not run.said, run.result.report()


def test_beside_the_heap_profile(errors, tmp_path):
    """The profile samples more often than guards, and the other way round. A guarded block is also a sample."""
    for rate, guard in (("4096", "16384"), ("16384", "1")):
        path = tmp_path / f"{rate}.gz"
        run = errors("churn", HAKMEM_HEAP_PROFILE=str(path), HAKMEM_HEAP_PROFILE_RATE=rate, HAKMEM_GUARD_RATE=guard)
        assert run.status == 0 and not run.said and path.exists(), run.result.report()
    run = errors("kinds", HAKMEM_HEAP_PROFILE=str(tmp_path / "kinds.gz"), HAKMEM_HEAP_PROFILE_RATE="1")
    assert run.status == 0 and not run.said, run.result.report()


def test_fork(errors):
    """The child's own places work, and the parent's block still belongs to the parent."""
    run = errors("fork")
    assert run.status == 0, run.result.report()
    (report,) = run.reports
    assert report["error"] == "use-after-free" and report["block"]["offset"] == 3


# ---- Going on ----

def test_going_on(errors):
    run = errors("go-on", HAKMEM_GUARD_CONTINUE="1")
    assert run.status == 0 and "went on" in run.result.stdout, run.result.report()
    # The later accesses find their pages opened, or their report made.
    assert [report["error"] for report in run.reports] == ["overflow", "double-free"]


def test_storms(errors):
    """Eight threads fault at one block: one whole report, and then the end, or they go on."""
    run = errors("storm")
    assert run.status == SEGV and len(run.reports) == 1, run.result.report()
    run = errors("storm-go-on", HAKMEM_GUARD_CONTINUE="1")
    assert run.status == 0 and len(run.reports) == 1 and "went on" in run.result.stdout, run.result.report()


def test_misuse_that_does_not_abort(errors):
    run = errors("double-free", HAKMEM_ABORT_ON_MISUSE="0")
    assert run.status == 0 and [report["error"] for report in run.reports] == ["double-free"], run.result.report()


# ---- The program's own handlers ----

@pytest.mark.parametrize("mode, status, reports, said", [
    ("api-own-before", 0, 1, "went on"),       # gets 20,000 faults elsewhere, and the reported one
    ("own-later", 0, 1, "went on"),            # alone at first; then behind HAKMEM's by hak_guard_start
    ("own-hands-back", SEGV, 0, ""),           # two handlers that pass on to each other must not loop
    ("own-hands-back-guarded", SEGV, 1, ""),   # a later handler passes on, and the report is made
    ("own-plain", 42, 1, "mine"),              # without SA_SIGINFO
    ("stack-overflow", 42, 0, "mine"),         # on its alternate stack, behind HAKMEM's
    ("elsewhere", SEGV, 0, ""),
    ("sent", SEGV, 0, ""),                     # sent by kill: no access faults again
])
def test_the_programs_handler(errors, mode, status, reports, said):
    run = errors(mode)
    assert run.status == status and len(run.reports) == reports and said in run.result.stdout, run.result.report()


# ---- On and off ----

def test_off_there_is_nothing(program):
    """Neither a range nor a handler exists."""
    result = blackbox.run([program, "after-free-read"], env={"HAKMEM_GUARD_RATE": "1"})
    assert result.status == 3 and "hakmem" not in result.stderr, result.report()


def test_a_static_program(compiled, override_archive, tmp_path):
    """Without a dynamic linker, an unwinder or a shared HAKMEM, stacks come from frame pointers."""
    path = tmp_path / "guard.json"
    built = compiled(blackbox.REPOSITORY / "tests/process/guard/errors.c", "-static", "-fno-omit-frame-pointer",
                     "-Wno-use-after-free", "-Wno-infinite-recursion", override_archive)
    result = blackbox.run([built, "after-free-write"],
                          env={"HAKMEM_GUARD": "1", "HAKMEM_GUARD_RATE": "1", "HAKMEM_GUARD_FILE": str(path)})
    assert result.status == SEGV and '"error":"use-after-free"' in path.read_text(), result.report()
    assert f"{built}+0x" in result.stderr


def test_the_file_takes_the_process_number_or_says_why_not(program, tmp_path):
    env = {"HAKMEM_GUARD": "1", "HAKMEM_GUARD_RATE": "1", "HAKMEM_GUARD_FILE": str(tmp_path / "%p.%%.json")}
    result = blackbox.run([program, "double-free"], env=env)
    (path,) = tmp_path.iterdir()
    assert re.fullmatch(r"\d+\.%\.json", path.name) and int(path.name.split(".")[0]) in numbers(result.stderr)
    env["HAKMEM_GUARD_FILE"] = str(tmp_path / "none/file")
    result = blackbox.run([program, "double-free"], env=env)
    named = ["HAKMEM_GUARD_FILE", f"{tmp_path}/none/file", os.strerror(errno.ENOENT)]
    assert any(all(word in line for word in named) for line in result.stderr.splitlines()), result.report()
    assert result.status == ABRT
