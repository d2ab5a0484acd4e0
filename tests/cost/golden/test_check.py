"""Protects check.py: what counts as a difference, how it is reported, and what --update writes."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import check
import pytest
import small_rows
from subject import CheckError, Subject

INSTRUCTIONS, KERNEL = check.CHECKS["instructions"], check.CHECKS["kernel"]
NOWHERE = Subject(Path("/nosuch/lib.so"), Path("/nosuch/bin"))
ROW, OTHER, VARYING = "random-mixed-256", "json", "ring-2"


def instructions(library, program="56.00"):
    return {"program": program, "library": library}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """fake(golden, *measured) replaces the check `instructions` by one with the golden rows, whose file is in a folder
    of the test. It measures the given results in turn, and the last one from then on."""

    def make(golden, *measured, **more):
        path = tmp_path / "golden.txt"
        if golden:
            path.write_text(check.format_rows("title", golden))
        results = list(measured)

        def measure(_subject, wanted=None):
            rows = results.pop(0) if len(results) > 1 else results[0]
            return {row: dict(columns) for row, columns in rows.items() if wanted is None or row in wanted}

        faked = replace(INSTRUCTIONS, file=path, names=(ROW, OTHER, VARYING), measure=measure, **more)
        monkeypatch.setitem(check.CHECKS, "instructions", faked)
        return path

    return make


def test_rows_survive_the_file(tmp_path):
    rows = {"malloc 16": {"instructions": "15", "hits": "6/6"},
            "random_mixed 200000 4096": {"instructions": "1", "hits": "-"}}
    path = tmp_path / "golden.txt"
    path.write_text(check.format_rows("title", rows, ("a row: a note",)))
    assert check.read_rows(path) == rows
    assert "# a row: a note\n" in path.read_text()


def test_half_a_per_cent_passes(fake):
    fake({ROW: instructions("20.00")}, {ROW: instructions("20.10")})
    check.verify("instructions", NOWHERE)


@pytest.mark.parametrize("measured, told", [("20.40", "+2.0 %"), ("19.60", "-2.0 %"), ("20.21", "+1.0 %")])
def test_two_per_cent_fail(fake, measured, told):
    """A lower cost fails as well."""
    fake({ROW: instructions("20.00")}, {ROW: instructions(measured)})
    with pytest.raises(CheckError) as failure:
        check.verify("instructions", NOWHERE)
    assert f"{ROW}: library expected 20.00, found {measured} ({told})" in str(failure.value)
    assert "--update --only instructions" in str(failure.value)


def test_one_per_cent_is_within():
    golden = {ROW: instructions("20.00")}
    for measured in ("20.20", "19.80"):
        assert not check.differences(INSTRUCTIONS, golden, {ROW: instructions(measured)})


def test_missing_rows_are_named(fake):
    fake({ROW: instructions("20.00"), "old": instructions("1.00")},
         {ROW: instructions("20.00"), OTHER: instructions("30.00")})
    with pytest.raises(CheckError) as failure:
        check.verify("instructions", NOWHERE)
    assert f"\n  {OTHER}: not in the golden file\n  old: in the golden file only\n" in str(failure.value)


def test_missing_columns_are_named():
    found = check.differences(INSTRUCTIONS, {ROW: {"program": "56.00", "pushes": "1"}}, {ROW: instructions("20.00")})
    assert found == [f"{ROW}: no column 'pushes' any more", f"{ROW}: no column 'library' in the golden file"]


def test_a_missing_file_is_an_error(fake):
    path = fake(None, {ROW: instructions("20.00")})
    with pytest.raises(CheckError, match="there is no .*make it with --update"):
        check.verify("instructions", NOWHERE)
    assert not path.exists()


def test_faults_have_a_slack_and_calls_have_none():
    row = {column: "0" for column in ("calls", *small_rows.MEMORY_CALLS)}

    def differ(calls, faults):
        return check.differences(KERNEL, {ROW: {**row, "calls": "9", "faults": "100"}},
                                 {ROW: {**row, "calls": calls, "faults": faults}})

    assert not differ("9", "124") and not differ("9", "76")
    assert differ("9", "125") == [f"{ROW}: faults expected 100, found 125 (+25.0 %)"]
    assert differ("9", "75") == [f"{ROW}: faults expected 100, found 75 (-25.0 %)"]
    assert differ("10", "100") == [f"{ROW}: calls expected 9, found 10 (+11.1 %)"]


def test_bounds_are_held_where_figures_vary():
    golden = {VARYING: instructions("<=30.00", "<=170.00")}
    assert not check.differences(INSTRUCTIONS, golden, {VARYING: instructions("12.00")})
    found = check.differences(INSTRUCTIONS, golden, {VARYING: instructions("33.00")})
    assert found == [f"{VARYING}: library expected <=30.00, found 33.00 (+10.0 %)"]


@pytest.mark.parametrize("golden", ["<=99.00", "-"])
def test_a_figure_that_repeats_has_no_bound(golden):
    """Otherwise a golden file could be loosened by hand."""
    found = check.differences(INSTRUCTIONS, {ROW: instructions(golden)}, {ROW: instructions("20.00")})
    assert found == [f"{ROW}: library is {golden} in the golden file, but repeats now"]


def test_update_writes_and_tells_what_changes(fake, capsys):
    path = fake({ROW: instructions("20.00"), "old": instructions("1.00")},
                {ROW: instructions("21.00"), OTHER: instructions("30.00")}, repeated=())
    check.update("instructions", NOWHERE)
    said = capsys.readouterr().out
    assert f"  {ROW}: library 20.00 -> 21.00 (+5.0 %)\n" in said
    assert f"  {OTHER}: new\n  old: gone\n" in said
    assert check.read_rows(path) == {ROW: instructions("21.00"), OTHER: instructions("30.00")}
    check.verify("instructions", NOWHERE)


def test_update_of_one_row_keeps_the_others(fake):
    path = fake({ROW: instructions("20.00"), OTHER: instructions("30.00")},
                {ROW: instructions("25.00"), OTHER: instructions("35.00")})
    check.update("instructions", NOWHERE, [OTHER])
    assert check.read_rows(path) == {ROW: instructions("20.00"), OTHER: instructions("35.00")}


def test_update_bounds_what_varies_by_the_highest_of_its_runs(fake):
    runs = [{ROW: instructions("20.00"), VARYING: instructions(library, "100.00")}
            for library in ("20.00", "9.00", "24.00", "21.00", "20.00")]
    path = fake(None, *runs)
    check.update("instructions", NOWHERE)
    assert check.read_rows(path) == {ROW: instructions("20.00"), VARYING: instructions("<=38.40", "<=160.00")}


def test_patterns_choose():
    assert check.select([]) == {name: list(one.names) for name, one in check.CHECKS.items()}
    assert check.select(["kernel"]) == {"kernel": list(small_rows.ROWS)}
    assert check.select(["/larson"]) == {"instructions": ["larson-1"], "kernel": ["larson-1"]}
    assert check.select(["instructions/fork$", "fastpath/free 16"]) == {
        "fastpath": ["free 16"], "instructions": ["fork"]}
    with pytest.raises(CheckError, match="--only nosuch: no such check or row; there are the checks fastpath"):
        check.select(["kernel", "nosuch"])
    with pytest.raises(CheckError, match="--only: "):
        check.select(["("])


def test_a_cost_that_is_added_fails(tmp_path):
    """The whole way: another allocator's costs differ from HAKMEM's."""
    subject = check.default_subject()
    empty = tmp_path / "libempty.so"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", empty], check=True)
    with pytest.raises(CheckError) as failure:
        check.verify("kernel", replace(subject, library=empty), ["calloc"])
    assert "calloc: calls expected" in str(failure.value) and "calloc: faults expected" in str(failure.value)


def test_a_program_that_is_not_built_is_named():
    with pytest.raises(CheckError, match="/nosuch/bin/bench_fork is not there; build it"):
        check.verify("instructions", NOWHERE, ["fork"])


def test_the_command():
    """A wrong command line gives status 1 and a clear message."""
    script = Path(check.__file__)
    done = subprocess.run([sys.executable, script, "--only", "nosuch", "--measure"], capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stdout) == (1, "") and "no such check or row" in done.stderr


def test_a_row_that_differs_is_measured_again(fake):
    """As often as `attempts` says. A row that differs each time is a difference."""
    good, off = instructions("17.55"), instructions("20.00")
    fake({ROW: good, OTHER: good}, {ROW: good, OTHER: off}, {OTHER: good}, attempts=2)
    assert check.verify("instructions", NOWHERE)[OTHER] == good
    fake({ROW: good, OTHER: good}, {ROW: good, OTHER: off}, attempts=3)
    with pytest.raises(CheckError, match="expected 17.55, found 20.00"):
        check.verify("instructions", NOWHERE)
