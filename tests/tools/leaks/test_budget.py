"""Protects budgets of a run, the growth of a heap, profiles of programs that do not end by exit, and summaries."""

import gzip
import json
import signal

import pytest

from conftest import hakmem


def run(program, budget, *words, options=(), **more):
    return hakmem("run", "--budget", budget, *options, "--", program, *words, **more)


def test_within(program):
    result = run(program, "peak=200M,heap=100M,allocations=1e6,leaked=6M", "all")
    assert result.status == 0 and result.stdout == "done\n", result.report()
    assert [line.split(" is within its budget of ")[1]
            for line in result.stderr.splitlines()] == ["200 MiB", "100 MiB", "1,000,000", "6 MiB"]


@pytest.mark.parametrize("budget, line", [
    ("leaked=0", "leaked 5.1 MiB is above its budget of 0 B"), ("peak=1M,leaked=1G",
                                                                "MiB is above its budget of 1 MiB"),
    ("heap=1M", "is above its budget of 1 MiB"), ("allocations=2000", "is above its budget of 2,000"),
    ("inuse=1M", "is above its budget of 1 MiB"), ("allocated=1.5M", "is above its budget of 1.5 MiB")])
def test_above(program, budget, line):
    result = run(program, budget, "all")
    assert result.status == 1, result.report()
    (said,) = result.stderr.splitlines()
    assert said.startswith(f"hakmem: {program}: {budget.partition('=')[0]} ") and line in said


def test_figures_are_exact(program):
    """dynamic() takes and frees 200 blocks; test_leaks.py counts the others. C++ and the thread library take a few."""
    at = {}
    for word, blocks in (("clean", 0), ("one", 1)):
        result = run(program, "allocations=1e9,inuse=1G,leaked=1G", word)
        at[word] = [line.split(" is within")[0].rpartition(": ")[2] for line in result.stderr.splitlines()]
    numbers = [int(at[word][0].split()[1].replace(",", "")) for word in ("clean", "one")]
    assert numbers[1] - numbers[0] == 1 and 2205 <= numbers[0] < 2300, at
    assert [at[word][2] for word in ("clean", "one")] == ["leaked 0 B", "leaked 1 KiB"]


def test_the_programs_own_failure_comes_first(program):
    assert run(program, "leaked=0", "all", "exit5").status == 5
    assert run(program, "leaked=1G", "all", "kill").status == -signal.SIGKILL


def test_the_summary(program, tmp_path):
    file = tmp_path / "summary.md"
    assert run(program, "leaked=0,peak=1G", "one", options=["--markdown", file]).status == 1
    text = file.read_text()
    assert text.startswith("### Above budget: `") and "| 1 KiB | 0 B | leaked | above |" in text, text
    assert "| 1 GiB | peak | within |" in text


@pytest.mark.parametrize("budget", ["", "peak", "peak=", "peak=x", "speed=3", "peak=1M,peak=2M", "peak=-1",
                                    "peak=1e99", "=3", "peak=1M,"])
def test_what_is_no_budget_is_refused(budget):
    result = run("true", budget)
    assert result.status == 2 and "--budget" in result.stderr and "Traceback" not in result.stderr, result.report()


def test_a_program_that_cannot_be_measured(compiled, tmp_path):
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n")
    static = compiled(source, "-static")
    result = run(static, "peak=1G")
    assert result.status == 1 and "is linked statically" in result.stderr, result.report()
    result = hakmem("run", "--heap-profile", tmp_path / "heap.gz", "--", static)
    assert result.status == 0 and f"{tmp_path}/heap.gz will not be written" in result.stderr, result.report()


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
    ("_exit", 3), ("kill", -signal.SIGKILL), ("fault", -signal.SIGSEGV), ("exit5", 5)])
def test_a_profile_however_it_ends(program, profiles, tmp_path, how, status):
    file = tmp_path / "heap.%p.gz"
    result = hakmem("run", "--heap-profile", file, "--set", "record_all=1", "--", program, "all", how)
    assert result.status == status and result.stdout == "done\n", result.report()
    (made,) = tmp_path.iterdir()
    assert made.name.split(".")[1].isdigit() and gzip.decompress(made.read_bytes())
    whole, here = (json.loads(hakmem("heap", "--json", path).stdout)["totals"] for path in (profiles / "all", made))
    wanted = ("inuse_space", "inuse_objects", "alloc_space", "alloc_objects")
    assert [here[name] for name in wanted] == [whole[name] for name in wanted]


@pytest.mark.parametrize("most, status, word", [("5%", 1, "above"), ("5M", 1, "above"), ("1000%", 0, "within"),
                                                ("100M", 0, "within")])
def test_growth(profiles, tmp_path, most, status, word):
    result = hakmem("heap", "--diff", profiles / "one", "--fail-above", most, profiles / "all",
                    env={"GITHUB_STEP_SUMMARY": str(tmp_path / "s.md")})
    assert result.status == status, result.report()
    last = result.stderr.splitlines()[-1]
    assert last.startswith("hakmem heap: bytes in use: +5.099 MiB") and last.endswith(f"is {word} the growth of {most} "
                                                                                      "that is allowed"), last
    text = (tmp_path / "s.md").read_text()
    assert text.startswith("### Bytes in use: `") and "take" in text and f"is {word} the growth" in text


def test_less_is_no_growth(profiles):
    assert hakmem("heap", "--diff", profiles / "all", "--fail-above", "0%", profiles / "one").status == 0


@pytest.mark.parametrize("words, said", [(["--fail-above", "5%"], "--diff"),
                                         (["--diff", "{one}", "--fail-above", "much"], "5%"),
                                         (["--diff", "{one}", "--fail-above", "-5%"], "5%")])
def test_growth_that_cannot_be(profiles, words, said):
    result = hakmem("heap", *(word.format(one=profiles / "one") for word in words), profiles / "all")
    assert result.status == 2 and said in result.stderr, result.report()
