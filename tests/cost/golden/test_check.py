"""Protects check.py: what counts as a difference, how it is reported, and what --update writes."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import check
import pytest
import small_rows
from subject import CheckError, Subject

KERNEL = check.CHECKS["kernel"]
NOWHERE = Subject(Path("/nosuch/lib.so"), Path("/nosuch/bin"))
ROW, OTHER = "random-mixed-256", "json"


def instructions(library, program="56.00"):
    return {"program": program, "library": library}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """fake(golden, measured) replaces the check `instructions` by one with the golden rows, whose file is in a folder
    of the test, and which measures the given rows."""
    monkeypatch.setattr(check, "made_with", lambda subject: "here")

    def make(golden, measured, made="here", **more):
        path = tmp_path / "golden.txt"
        if golden:
            path.write_text(check.format_rows("title", golden, made))

        def measure(_subject, wanted=None):
            return {row: dict(columns) for row, columns in measured.items() if wanted is None or row in wanted}

        faked = replace(check.CHECKS["instructions"], file=path, names=(ROW, OTHER), measure=measure, **more)
        monkeypatch.setitem(check.CHECKS, "instructions", faked)
        return path

    return make


def test_rows_survive_the_file(tmp_path):
    rows = {"malloc 16": {"instructions": "15", "hits": "6/6"},
            "random_mixed 200000 4096": {"instructions": "1", "hits": "-"}}
    path = tmp_path / "golden.txt"
    path.write_text(check.format_rows("title", rows, "a compiler, a libc"))
    assert (check.read_rows(path), check.read_made(path)) == (rows, "a compiler, a libc")


@pytest.mark.parametrize("measured, told", [("20.40", "+2.0 %"), ("19.60", "-2.0 %"), ("20.00", None)])
def test_a_figure_that_differs_fails(fake, measured, told):
    """A lower cost fails as well."""
    fake({ROW: instructions("20.00")}, {ROW: instructions(measured)})
    if told is None:
        assert check.verify("instructions", NOWHERE) is None
        return
    with pytest.raises(CheckError) as failure:
        check.verify("instructions", NOWHERE)
    (line,) = (line for line in str(failure.value).splitlines() if told in line)
    assert all(word in line for word in (ROW, "library", "20.00", measured))
    assert "--update --only instructions" in str(failure.value)


def test_figures_of_another_compiler_are_not_compared_but_limits_hold(fake):
    apart = fake({ROW: instructions("20.00")}, {ROW: instructions("30.00")}, made="there")
    apart = check.verify("instructions", NOWHERE)
    assert "there" in apart and "here" in apart
    fake(None, {ROW: instructions("30.00")}, limits=lambda rows: ["too much"])
    with pytest.raises(CheckError, match="too much"):
        check.verify("instructions", NOWHERE)


def test_missing_rows_and_columns_are_named(fake):
    golden = {ROW: {"program": "56.00", "pushes": "1"}, "old": instructions("1.00")}
    measured = {ROW: instructions("20.00"), OTHER: instructions("30.00")}
    found = check.differences(check.CHECKS["instructions"], golden, measured)
    assert len(found) == 4
    assert all(any(line.startswith(row) and column in line for line in found)
               for row, column in ((OTHER, ""), ("old", ""), (ROW, "pushes"), (ROW, "library")))


def test_a_missing_file_is_an_error(fake):
    path = fake(None, {ROW: instructions("20.00")})
    with pytest.raises(CheckError, match="--update"):
        check.verify("instructions", NOWHERE)
    assert not path.exists()


def test_faults_have_a_bound_and_calls_are_exact():
    row = {column: "0" for column in ("calls", *small_rows.MEMORY_CALLS)}

    def differ(calls, faults):
        return check.differences(KERNEL, {ROW: {**row, "calls": "9", "faults": "4000"}},
                                 {ROW: {**row, "calls": calls, "faults": faults}})

    assert not differ("9", "5500") and not differ("9", "1000")
    assert len(differ("9", "5501")) == len(differ("10", "4000")) == len(differ("8", "4000")) == 1


def test_update_writes_and_tells_what_changes(fake, capsys):
    path = fake({ROW: instructions("20.00"), "old": instructions("1.00")},
                {ROW: instructions("21.00"), OTHER: instructions("30.00")})
    check.update("instructions", NOWHERE)
    said = capsys.readouterr().out.splitlines()
    assert any(all(word in line for word in (ROW, "library", "20.00", "21.00", "+5.0 %")) for line in said), said
    assert any(OTHER in line for line in said) and any("old" in line for line in said)
    assert check.read_rows(path) == {ROW: instructions("21.00"), OTHER: instructions("30.00")}
    assert check.verify("instructions", NOWHERE) is None


def test_update_of_one_row_keeps_the_others(fake):
    measured = {ROW: instructions("25.00"), OTHER: instructions("35.00")}
    path = fake({ROW: instructions("20.00"), OTHER: instructions("30.00")}, measured)
    check.update("instructions", NOWHERE, [OTHER])
    assert check.read_rows(path) == {ROW: instructions("20.00"), OTHER: instructions("35.00")}
    fake({ROW: instructions("20.00"), OTHER: instructions("30.00")}, measured, made="there")
    with pytest.raises(CheckError, match="there"):
        check.update("instructions", NOWHERE, [OTHER])


def test_patterns_choose():
    assert check.select([]) == {name: list(one.names) for name, one in check.CHECKS.items()}
    assert check.select(["kernel"]) == {"kernel": list(small_rows.ROWS)}
    assert check.select(["/pareto"]) == {"instructions": ["pareto"], "kernel": ["pareto"]}
    assert check.select(["instructions/fork$", "fastpath/free 16"]) == {
        "fastpath": ["free 16"], "instructions": ["fork"]}
    with pytest.raises(CheckError, match="nosuch.*fastpath"):
        check.select(["kernel", "nosuch"])
    with pytest.raises(CheckError, match="--only"):
        check.select(["("])


def test_a_cost_that_is_added_fails(tmp_path):
    """The whole way: another allocator's costs differ from HAKMEM's."""
    subject = check.default_subject()
    empty = tmp_path / "libempty.so"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", empty], check=True)
    if check.read_made(KERNEL.path) != check.made_with(subject):
        pytest.skip(f"{KERNEL.file} has figures of {check.read_made(KERNEL.path)}")
    with pytest.raises(CheckError, match="calloc: calls"):
        check.verify("kernel", replace(subject, library=empty), ["calloc"])


def test_a_program_that_is_not_built_is_named():
    with pytest.raises(CheckError, match="/nosuch/bin/bench_fork"):
        check.verify("instructions", NOWHERE, ["fork"])


def test_the_command():
    """A wrong command line gives status 1 and a clear message."""
    script = Path(check.__file__)
    done = subprocess.run([sys.executable, script, "--only", "nosuch", "--measure"], capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stdout) == (1, "") and "nosuch" in done.stderr and "Traceback" not in done.stderr
