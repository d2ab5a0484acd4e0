"""Protects `hakmem look`, which opens the view that is meant, and the list of commands in help."""

import json
import os
import re

import click
import pytest
from conftest import own
from inprocess import hakmem

import blackbox
from hakmem.cli import ALIAS, COMMANDS, VIEWS, main
from hakmem.look.command import look, preferred

# The names that scripts may have.
EVER = {"advise", "bench", "compare", "completion", "doctor", "explain", "guard", "heap", "help", "leaks", "map",
        "peers", "ps", "run", "serve", "stats", "top", "trace"}
EVER_IN_A_CHECKOUT = EVER | {"amalgamate", "build", "crates", "fuzz", "package", "shell", "test", "wheel"}
CHECKOUT = blackbox.REPOSITORY / "hakmem"


@pytest.fixture
def pid(waiting, library):
    return str(waiting(own("look"), library).pid)


def output(*words):
    result = hakmem(*words)
    assert result.status == 0, result.report()
    return result.stdout


def data(*words):
    return json.loads(output(*words))


def test_each_view_is_its_command(pid, tmp_path):
    for view in ("stats", "explain"):
        seen, wanted = data("look", pid, f"--{view}", "--json"), data(view, pid, "--json")
        assert seen.keys() == wanted.keys() and seen["pid"] == int(pid)
    for words in (["map", pid], ["look", "--map", pid]):
        page = tmp_path / f"{words[0]}.html"
        assert output(*words, "-o", page) == f"{page}\n" and page.stat().st_size > 10_000
    assert hakmem("look", pid, "--serve", "--port", "0", "--socket", "/").status == 1


def test_without_a_pid_the_processes_are_listed(pid):
    assert int(pid) in [row["pid"] for row in data("look", "--json")["processes"]]
    assert pid in output("look").split()


def test_a_name_is_enough(pid):
    assert data("look", own("look"), "--stats", "--json")["pid"] == int(pid)


@pytest.mark.parametrize("option, command", [
    (["--json"], "explain"), (["--superslabs", "--json"], "stats"), (["--prometheus"], "stats"), (["-n5"], "explain"),
    (["--once"], "top"), (["--interval=2"], "top"), (["--port", "0"], "serve"), (["-o", "file"], "map"),
    (["--"], "explain")])
def test_an_option_asks_for_the_view_that_has_it(option, command, monkeypatch):
    monkeypatch.setattr("hakmem.look.command.watch", lambda words: None)
    with click.Context(main) as parent:
        found = look.make_context("look", [*option, str(os.getpid())], parent)
        assert found.command is main.get_command(parent, command)


def test_what_goes_on_needs_a_terminal(monkeypatch):
    assert preferred(["1"])[0] == "explain" and preferred(["--json"])[0] == "ps"
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    assert preferred(["1"])[0] == "top" and preferred([])[0] == "ps"


def test_what_does_not_go_together():
    hakmem("look", "--map", "--stats", "1").says(2, "--map", "--stats")
    hakmem("look", "--nonesuch", "1").says(2, "--nonesuch")
    hakmem("look", "--explain").says(2, "PID")


# ---- Help ----


def names(text):
    """The commands of a list: the first word of each line that is set off by two blanks."""
    return re.findall(r"^  ([a-z]+) ", text.partition("Exit status")[0], re.MULTILINE)


def test_help_lists_few_commands_and_both_commands_the_same():
    here = names(output("help"))
    there = names(blackbox.run([CHECKOUT, "help"]).stdout)
    assert set(here) == set(there) and len(set(here)) <= 14
    assert len(here) == len(set(here)) and not set(here) & {*VIEWS}
    developers = set(names(output("help", "developer")))
    assert {*here} | developers | {*VIEWS, ALIAS} == {*COMMANDS} and not {*here} & developers
    assert developers < set(names(blackbox.run([CHECKOUT, "help", "developer"]).stdout))


def test_every_name_has_its_page():
    assert EVER <= {*COMMANDS}
    for name in COMMANDS:
        assert output("help", name).startswith(f"Usage: hakmem {name}")
    for view in VIEWS:
        assert hakmem("look", f"--{view}", "--help").stdout.split()[2:4] == ["look", f"--{view}"]


@pytest.mark.parametrize("name", sorted(EVER_IN_A_CHECKOUT))
def test_every_name_has_its_page_in_a_checkout(name):
    result = blackbox.run([CHECKOUT, "help", name])
    assert result.status == 0 and result.stdout.lower().startswith(f"usage: hakmem {name}"), result.report()
