"""Protects `hakmem guard`: reports with functions and source lines, and the refusal of wrong files."""

import json
import os
import re
import subprocess

from click.testing import CliRunner

import blackbox
import machine
from conftest import HERE
from hakmem.guard.command import guard
from hakmem.live import descriptor

SOURCE = (HERE / "errors.c").read_text().splitlines()


def line_with(text):
    (found,) = (number for number, line in enumerate(SOURCE, 1) if text in line)
    return found


@machine.needs("program:llvm-symbolizer")
def test_source_lines(errors, hakmem):
    done = hakmem("guard", errors("threads").path)
    assert done.status == 0, done.report()
    lines = done.stdout.splitlines()
    assert " read " in lines[0] and "1,000" in lines[0], lines[0]
    text = done.stdout

    def at(what, function, mark):
        stack = text[text.index(f"\n  {what} "):]
        assert re.search(rf"\b{function}\b.*{re.escape(str(HERE))}/errors\.c:{line_with(mark)}\b", stack), text

    at("accessed", "read_here", "return *place;")
    at("allocated", "allocate_here", "char *block = malloc(SIZE);")
    at("freed", "free_here", "static void free_here(void *block)")


@machine.needs("program:llvm-symbolizer")
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


def test_what_is_no_report(errors, tmp_path):
    """One line, which names the file and the field."""
    changes = [
        (b"not JSON", ""),
        (b"[" * 100000, ""),
        (b"[]", ""),
        (b"\n\n", ""),
        ({"version": 2}, "version"),
        ({"error": "fire"}, "`error`"),
        ({"address": "12"}, "`address`"),
        ({"time_ns": "soon"}, "`time_ns`"),
        ({"process": -1}, "`process`"),
        ({"thread": None}, "`thread`"),
        ({"modules": [{"build_id": "../../etc"}]}, "`build_id`"),
        ({"allocated": {"thread": 1, "frames": ["0x1"] * 1000}}, "frames"),
        ({"block": {"address": "0x10", "size": True, "offset": 0}}, "`size`"),
    ]
    path, report = tmp_path / "bad.json", json.loads(errors("behind").path.read_text())
    for change, field in changes:
        path.write_bytes(change if isinstance(change, bytes) else json.dumps({**report, **change}).encode())
        done = CliRunner().invoke(guard, [str(path)])
        assert done.exit_code == 1 and str(path) in done.output and field in done.output, done.output
        assert len(done.output.splitlines()) == 1 and isinstance(done.exception, SystemExit)


def test_command_lines(errors, hakmem, tmp_path):
    assert hakmem("guard").status == 2
    done = hakmem("guard", tmp_path / "none")
    assert done.status == 1 and f"{tmp_path}/none" in done.stderr and "Traceback" not in done.stderr
    assert hakmem("guard", "http://localhost/reports").status == 2
    assert hakmem("guard", str(os.getpid()), errors("behind").path).status == 2


@machine.needs("process_vm_readv")
def test_a_process(hakmem, library):
    """Its figures, and how to turn guards on."""
    for env in ({"HAKMEM_GUARD": "1"}, {}):
        process = subprocess.Popen(["sleep", "100000"], env=blackbox.environment(env, library))
        try:
            def told(process=process):
                done = hakmem("guard", process.pid)
                return done.status == 0 and done.stdout
            said = blackbox.wait_for(told, "the process's figures")
            assert bool(env) == ("guards are on" in said) != ("guards are off" in said), said
            assert (f"`hakmem guard --start {process.pid}`" in said) == (not env), said
        finally:
            process.kill()
            process.wait()


def test_a_hakmem_without_guards(monkeypatch):
    """An older HAKMEM, whose descriptor names no guards."""
    monkeypatch.setattr(descriptor, "find", lambda memory: descriptor.Descriptor(0, "0.0.1"))
    done = CliRunner().invoke(guard, [str(os.getpid())])
    assert done.exit_code == 1 and "0.0.1" in done.output, done.output
