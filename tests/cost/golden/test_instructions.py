"""Protects the count of instructions: how callgrind's profiles are read, and which runs are refused."""

import check
import pytest
import small_rows

from hakmem.bench import deterministic, instructions

PROFILE = """\
positions: line
events: Ir

ob=(1) /bin/program
fl=(1) a.c
fn=(1) main
12 100
cob=(2) /lib/lib.so
cfn=(2) malloc
calls=5 0
13 999
* 1

ob=(2)
fn=(2)
+3 40
-2 2
cob=(3) /usr/lib/x86_64-linux-gnu/libc.so.6
cfn=(3) memset
calls=1 0
14 500

ob=(4) ???
fn=(4) realloc
1 6

ob=(3)
fn=(3)
20 30
cfn=(5) free
calls=2 0
21 77

ob=(1)
fn=(1)
30 1
cob=(3)
cfn=(5)
calls=2 0
31 55
cob=(3)
cfn=(3)
calls=2 0
31 44
totals: 180
"""


@pytest.fixture(scope="module")
def subject():
    return check.default_subject()


def count(subject, program, *arguments, **more):
    preload = more.pop("preload", subject.library)
    return instructions.count([subject.program(program), *map(str, arguments)], preload, small_rows.SAME_EVERYWHERE,
                              **more)


def test_a_library_has_what_it_executes_itself():
    """Code without a file is an allocator's that has moved its own code."""
    lines = PROFILE.splitlines()
    assert instructions.read_profile(lines, {"/lib/lib.so"}) == (180, 42 + 6, True)
    assert instructions.read_profile(lines, {"/lib/other.so"}) == (180, 6, False)


def test_the_system_has_what_its_calls_cost():
    """The calls of free by the program count. memset's do not, nor do the C library's own calls."""
    assert instructions.read_profile(PROFILE.splitlines()) == (180, 55, True)


def test_a_run_repeats(subject):
    one, two = (count(subject, "bench_string_builder", 2000, 64, 64, 42) for _ in range(2))
    assert one["library"] == two["library"] > 10_000
    assert one["total"] == pytest.approx(two["total"], rel=0.005)
    assert one["ops"] == two["ops"] >= 2000


def test_the_system_allocator_is_counted(subject):
    counted = count(subject, "bench_random_mixed", 20_000, 64, 42, preload=None)
    assert 20_000 * 10 < counted["library"] < counted["total"] - 20_000


def test_a_child_is_not_charged_for_its_parent(subject):
    """A child that changes ten blocks costs little, although an 8 MiB heap was made before the fork."""
    none, four = (count(subject, "bench_fork", 8, children, 10, 42) for children in (0, 4))
    assert none["total"] < four["total"] < 1.1 * none["total"]
    assert four["ops"] - none["ops"] == 4 * (4 * 10 + 64)


def test_children_of_exec_are_counted(subject):
    one, three = (count(subject, "bench_spawn", starts, "true") for starts in (1, 3))
    assert three["total"] > one["total"] + 200_000
    assert three["library"] > one["library"] + 2_000


def test_a_run_that_fails_says_why(subject):
    failed = count(subject, "bench_fork", "many")
    assert failed["total"] is None and failed["library"] is None
    assert all(word in failed["reason"] for word in ("status 2", "bench_fork", "MIB"))
    gone = count(subject, "bench_fork", 0, 0, preload="/nosuch/lib.so")
    assert gone["total"] is None and "'/nosuch/lib.so'" in gone["reason"]
    late = count(subject, "bench_fork", 64, 40, limit=0.2)
    assert late["total"] is None and "0.2 s" in late["reason"]


def test_what_is_not_installed_is_named(subject, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "valgrind" in count(subject, "bench_fork", 0, 0)["reason"]


def test_the_base_is_taken_away(subject):
    """A pair of fast hits costs what the fast path's golden file says, without the run's start and end."""
    row = deterministic.SmallRow("r", ("bench_tiny_mt", "1", "100000", "16", "64"),
                                 ("bench_tiny_mt", "1", "1", "16", "64"))
    counted = deterministic.per_operation(row, subject.programs, subject.library, small_rows.SAME_EVERYWHERE)
    assert 14 < counted["library"] < 20
    assert counted["ops"] == 100_096 - 128


def test_a_row_without_operations_is_refused(subject):
    row = deterministic.SmallRow("r", ("bench_fork", "1", "0", "1"), ("bench_fork", "0", "0", "1"))
    counted = deterministic.per_operation(row, subject.programs, subject.library)
    assert counted["total"] is None and counted["reason"].startswith("r: 0 ")


@pytest.mark.parametrize("text, told", [
    ('name = "a"\ncommand = ["p", "1"]', "row a: base"),
    ('name = "a"\ncommand = ["p", "1"]\nbase = ["q", "0"]', "row a: base"),
    ('name = "a"\ncommand = ["p", "1"]\nbase = ["p", "0"]\nsize = 3', "row a: .* size"),
    ('name = "a"\ncommand = ["p", 1]\nbase = ["p", "0"]', "row a: command"),
    ('name = "a"\ncommand = ["p", "1"]\nbase = ["p", "0"]\nvaries = ["time"]\nwhy = "so"', "row a: varies .* time"),
    ('name = "a"\ncommand = ["p", "1"]\nbase = ["p", "0"]\nvaries = ["calls"]', "row a: varies .* why"),
])
def test_a_row_that_is_wrong_is_named(tmp_path, text, told):
    path = tmp_path / "deterministic.toml"
    path.write_text(f"[[row]]\n{text}\n")
    with pytest.raises(ValueError, match=told):
        deterministic.load(path)


def test_every_driver_has_a_row(subject):
    """bench/CMakeLists.txt lists the drivers."""
    text = (check.HERE.parents[2] / "bench/CMakeLists.txt").read_text()
    drivers = {word.split()[0] for word in text.split("\nhak_bench(")[1:]}
    assert len(drivers) >= 25 and drivers == {row.command[0] for row in deterministic.load().values()}
    assert all((subject.programs / driver).exists() for driver in drivers)
