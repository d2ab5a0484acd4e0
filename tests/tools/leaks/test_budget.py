"""Protects budgets of a run, the growth of a heap, profiles of programs that do not end by exit, and summaries."""

import gzip
import json
import signal

import click
import inprocess
import pytest
from conftest import hakmem

from hakmem.budget import parse_bounds


def run(program, budget, *words, options=(), **more):
    return hakmem("run", "--budget", budget, *options, "--", program, *words, **more)


def told(program, result):
    """{figure: (its value, its bound)} of the lines that the command prints."""
    found = {}
    for line in result.stderr.splitlines():
        name, _, rest = line.removeprefix(f"hakmem: {program}: ").partition(" ")
        value, *_, bound = inprocess.figures(f"{name} {rest}")
        found[name if not name[0].isdigit() else rest.split()[0]] = (value, bound)
    return found


def test_within(program):
    result = run(program, "peak=200M,heap=100M,allocations=1e6,leaked=6M", "all")
    assert result.status == 0 and result.stdout == "done\n", result.report()
    assert {name: bound for name, (_, bound) in told(program, result).items()} == {
        "peak": "200 MiB", "heap": "100 MiB", "allocations": "1,000,000", "leaked": "6 MiB"}


def test_above(program):
    """A line for each figure that is above its bound, with both."""
    result = run(program, "leaked=0,peak=1M,heap=1M,allocations=2000,inuse=1M,allocated=1.5M", "all")
    assert result.status == 1, result.report()
    found = told(program, result)
    assert {name: bound for name, (_, bound) in found.items()} == {
        "leaked": "0 B", "peak": "1 MiB", "heap": "1 MiB", "allocations": "2,000", "inuse": "1 MiB",
        "allocated": "1.5 MiB"}
    assert found["leaked"][0] == "5.1 MiB"


def test_figures_are_exact(program):
    """dynamic() takes and frees 200 blocks; test_leaks.py counts the others. C++ and the thread library take a few."""
    at = {}
    for word, leaked in (("clean", "0 B"), ("one", "1 KiB")):
        found = told(program, run(program, "allocations=1e9,inuse=1G,leaked=1G", word))
        at[word] = int(found["allocations"][0].replace(",", ""))
        assert found["leaked"][0] == leaked
    assert at["one"] - at["clean"] == 1 and 2205 <= at["clean"] < 2300, at


def test_the_programs_own_failure_comes_first(program):
    assert run(program, "leaked=0", "all", "exit5").status == 5
    assert run(program, "leaked=1G", "all", "kill").status == -signal.SIGKILL


def test_the_summary(program, tmp_path):
    file = tmp_path / "summary.md"
    assert run(program, "leaked=0,peak=1G", "one", options=["--markdown", file]).status == 1
    text = file.read_text()
    assert str(program) in text and "| 1 KiB | 0 B | leaked |" in text and "| 1 GiB | peak |" in text, text


def test_what_is_no_budget_is_refused():
    for budget in ("", "peak", "peak=", "peak=x", "speed=3", "peak=1M,peak=2M", "peak=-1", "peak=1e99", "=3",
                   "peak=1M,"):
        with pytest.raises(click.UsageError):
            parse_bounds(budget)
    result = run("true", "speed=3")
    assert result.status == 2 and "--budget" in result.stderr and "Traceback" not in result.stderr, result.report()


def test_a_program_that_cannot_be_measured(compiled, tmp_path):
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n")
    static = compiled(source, "-static")
    result = run(static, "peak=1G")
    assert result.status == 1 and str(static) in result.stderr, result.report()
    result = hakmem("run", "--heap-profile", tmp_path / "heap.gz", "--", static)
    assert result.status == 0 and f"{tmp_path}/heap.gz" in result.stderr, result.report()


# ---- Profiles ----


@pytest.fixture(scope="module")
def profiles(program, tmp_path_factory):
    """Profiles of every block: a program that lost one block, and one that lost more."""
    folder = tmp_path_factory.mktemp("profiles")
    for word in ("one", "all"):
        result = hakmem("run", "--heap-profile", folder / word, "--set", "record_all=1", "--", program, word)
        assert result.status == 0, result.report()
    return folder


@pytest.mark.parametrize("how, status", [
    ("_exit", 3), ("kill", -signal.SIGKILL), ("fault", -signal.SIGSEGV)])
def test_a_profile_however_it_ends(program, profiles, tmp_path, how, status):
    file = tmp_path / "heap.%p.gz"
    result = hakmem("run", "--heap-profile", file, "--set", "record_all=1", "--", program, "all", how)
    assert result.status == status and result.stdout == "done\n", result.report()
    (made,) = tmp_path.iterdir()
    assert made.name.split(".")[1].isdigit() and gzip.decompress(made.read_bytes())
    whole, here = (json.loads(inprocess.hakmem("heap", "--json", path).stdout)["totals"]
                   for path in (profiles / "all", made))
    wanted = ("inuse_space", "inuse_objects", "alloc_space", "alloc_objects")
    assert [here[name] for name in wanted] == [whole[name] for name in wanted]


def growth(profiles, most, first="one", last="all", **variables):
    return inprocess.hakmem("heap", "--diff", profiles / first, "--fail-above", most, profiles / last, **variables)


def test_growth(profiles, tmp_path):
    """The status, and a line with the growth and its bound, here and in the summary."""
    for most, status in (("5%", 1), ("100M", 0)):
        summary = tmp_path / most
        result = growth(profiles, most, GITHUB_STEP_SUMMARY=str(summary))
        assert result.status == status, result.report()
        for text in (result.stderr.splitlines()[-1], summary.read_text()):
            assert "+5.099 MiB" in text and most in text, text
        assert "take" in summary.read_text()
    assert growth(profiles, "0%", "all", "one").status == 0, "less is no growth"


def test_growth_that_cannot_be(profiles):
    inprocess.hakmem("heap", "--fail-above", "5%", profiles / "all").says(2, "--fail-above", "--diff")
    for most in ("much", "-5%"):
        growth(profiles, most).says(2, "--fail-above", most)
