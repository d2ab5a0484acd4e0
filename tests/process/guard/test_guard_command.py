"""Protects `hakmem guard`: reports with functions and source lines, and the refusal of wrong files."""

import json
import os
import subprocess
import time

import pytest
from click.testing import CliRunner

import blackbox
from conftest import HERE
from hakmem.guard.command import guard
from hakmem.live import descriptor

SOURCE = (HERE / "errors.c").read_text().splitlines()


def line_with(text):
    (found,) = (number for number, line in enumerate(SOURCE, 1) if text in line)
    return found


def test_source_lines(errors, hakmem):
    done = hakmem("guard", errors("threads").path)
    assert done.status == 0, done.report()
    lines = done.stdout.splitlines()
    assert lines[0].startswith("after free: read at 0x") and lines[0].endswith(": at byte 0 of a block of 1,000 bytes "
                                                                               "that is free")
    text = done.stdout

    def at(what, function, mark):
        assert f"{function}  {HERE / 'errors.c'}:{line_with(mark)}" in text[text.index(f"  {what} by thread"):], text

    at("accessed", "read_here", "return *place;")
    at("allocated", "allocate_here", "char *block = malloc(SIZE);")
    at("freed", "free_here", "static void free_here(void *block)")


def test_json(errors, hakmem):
    done = hakmem("guard", "--json", errors("behind").path, errors("double-free").path)
    first, second = json.loads(done.stdout)
    assert first["error"] == "overflow" and first["access"] == "write" and first["block"]["offset"] == 1010
    frames = first["stacks"]["accessed"]["frames"]
    assert frames[0]["function"] == "write_here" and frames[0]["line"] == line_with("*place = 1;")
    assert [frame["function"] for frame in frames[:2]] == ["write_here", "main"]
    assert second["error"] == "double-free" and second["function"] == "free" and second["access"] is None
    assert set(second["stacks"]) == {"allocated", "freed", "called"}


def test_without_the_file_there_are_offsets(errors, hakmem, tmp_path, program):
    report = json.loads(errors("behind").path.read_text())
    for module in report["modules"]:
        module["path"] = module["path"].replace(str(program), "/gone/\x1b[31mprogram")
    path = tmp_path / "gone.json"
    path.write_text(json.dumps(report) + "\n")
    done = hakmem("guard", path)
    assert done.status == 0 and "\x1b" not in done.stdout + done.stderr, done.report()
    assert "/gone/\N{REPLACEMENT CHARACTER}[31mprogram+0x" in done.stdout, done.report()


def changed(**values):
    return lambda report: report.update(values)


@pytest.mark.parametrize("change, message", [
    (lambda report: b"not JSON", "line 1 is no report of HAKMEM's: it is not JSON"),
    (lambda report: b"[" * 100000, "it is not JSON"),
    (lambda report: b"[]", "`it` is missing or of another kind"),
    (lambda report: b"\n\n", "holds no reports"),
    (changed(version=2), "its version is not 1"),
    (changed(error="fire"), "`error` is none that is known"),
    (changed(address="12"), "`address` is no address"),
    (changed(time_ns="soon"), "`time_ns` is no number"),
    (changed(process=-1), "`process` is out of range"),
    (changed(thread=None), "`thread` is missing"),
    (changed(modules=[{"build_id": "../../etc"}]), "`build_id` is none"),
    (changed(allocated={"thread": 1, "frames": ["0x1"] * 1000}), "too many frames"),
    (changed(block={"address": "0x10", "size": True, "offset": 0}), "`size` is missing"),
])
def test_what_is_no_report(errors, hakmem, tmp_path, change, message):
    report = json.loads(errors("behind").path.read_text())
    made = change(report)
    path = tmp_path / "bad.json"
    path.write_bytes(made if made is not None else json.dumps(report).encode())
    done = hakmem("guard", path)
    assert done.status == 1 and message in done.stderr and str(path) in done.stderr, done.report()
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1


def test_command_lines(errors, hakmem, tmp_path):
    assert hakmem("guard").status == 2
    done = hakmem("guard", tmp_path / "none")
    assert done.status == 1 and f"{tmp_path}/none: cannot be read" in done.stderr
    assert hakmem("guard", "http://localhost/reports").status == 2
    assert hakmem("guard", str(os.getpid()), errors("behind").path).status == 2


def test_a_process(hakmem, library):
    """Its figures, and how to turn guards on."""
    for env, word in (({"HAKMEM_GUARD": "1"}, "on"), ({}, "off")):
        process = subprocess.Popen(["sleep", "100000"], env=blackbox.environment(env, library))
        try:
            for _ in range(50):
                done = hakmem("guard", process.pid)
                if done.status == 0 and f"guards are {word}" in done.stdout:
                    break
                time.sleep(0.1)
            assert f"guards are {word}" in done.stdout and "0 errors reported" in done.stdout, done.report()
            assert (f"`hakmem guard --start {process.pid}` turns them on" in done.stdout) == (word == "off")
        finally:
            process.kill()
            process.wait()


def test_a_hakmem_without_guards(monkeypatch):
    """An older HAKMEM, whose descriptor names no guards."""
    monkeypatch.setattr(descriptor, "find", lambda memory: descriptor.Descriptor(0, "0.0.1"))
    done = CliRunner().invoke(guard, [str(os.getpid())])
    assert done.exit_code == 1 and "its HAKMEM 0.0.1 has no guards" in done.output, done.output
