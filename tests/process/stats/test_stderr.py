"""Protects reports at exit when a program closes standard error first, as GNU's tools do: they appear only there."""

from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).parent
STATS = {"HAKMEM_SHOW_STATS": "1"}
REPORT = "hakmem: mapped"


@pytest.fixture(scope="module")
def program(compiled):
    return compiled(HERE / "stderr.c")


def run(argv, env=STATS, **arguments):
    result = blackbox.run(argv, preload=blackbox.LIBRARY, env=env, **arguments)
    assert result.status == 0, result.report()
    return result


def numbers(text):
    return {int(word) for word in text.split()}


@pytest.mark.parametrize(
    "argv", [["ls", "/"], ["sort", "/etc/passwd"], ["date"], ["cat", "/etc/passwd"], ["grep", "root", "/etc/passwd"]])
def test_real_tools(argv):
    result = run(argv)
    assert REPORT in result.stderr and REPORT not in result.stdout
    plain = blackbox.run(argv)
    assert argv == ["date"] or result.stdout == plain.stdout


@pytest.mark.parametrize("env, said", [
    ({"HAKMEM_SHOW_STATS": "json"}, '"memory":{"mapped":'),
    ({"HAKMEM_SHOW_STATS": "prometheus"}, "hakmem_memory_mapped_bytes"),
    ({"HAKMEM_FRONT_STATS": "1"}, "fast path"),
    ({"HAKMEM_DEBUG_COUNTERS": "1"}, "debug counters"),
    ({"HAKMEM_TINY_PROFILE": "1"}, "cycle profile"),
    ({"HAKMEM_LEAK_REPORT": "1"}, "hakmem: in use at exit"),
    ({"HAKMEM_HEAP_PROFILE": "/nowhere/profile"}, "/nowhere/profile"),
])
def test_each_report(program, env, said):
    assert said in run([program, "close", "-"], env).stderr


def test_nothing_is_kept_that_nobody_asked_for(program):
    assert numbers(run([program, "none", "-"], {}).stdout) == {0, 1, 2}
    kept = numbers(run([program, "none", "-"]).stdout) - {0, 1, 2}
    assert len(kept) == 1 and min(kept) >= 20


def test_few_numbers_to_be_had(program):
    import resource
    result = run([program, "close", "-"], limits={resource.RLIMIT_NOFILE: 64})
    assert numbers(result.stdout) == {0, 1, 2, 20} and REPORT in result.stderr
    result = run([program, "close", "-"], limits={resource.RLIMIT_NOFILE: 10})
    assert numbers(result.stdout) == {0, 1, 2} and result.stderr == ""


def test_a_file_that_took_the_number_is_left_alone(program, tmp_path):
    result = run([program, "all", tmp_path / "data"])
    assert result.stderr == "" and (tmp_path / "data").read_bytes() == b""


def test_where_standard_error_leads_by_then(program, tmp_path):
    result = run([program, "redirect", tmp_path / "log"])
    assert result.stderr == "" and REPORT in (tmp_path / "log").read_text()


def test_children_hold_nothing(program):
    """A daemon must not keep a pipe open whose reader waits for its end: it closes its parent's number, as exec
    does."""
    own, child = run([program, "fork", "-"]).stdout.splitlines()
    assert len(numbers(own)) == 4 and numbers(child) == {0, 1, 2}
    listed = run([program, "exec", "-"]).stdout.splitlines()[1:]
    assert len([name for name in listed if int(name) > 10]) == 1, "the one that ls keeps"
