"""Protects the ./hakmem command: its output, its failures, and that `run` puts HAKMEM under a program."""

import errno
import os
import subprocess

import pytest

import blackbox

COMMAND = blackbox.REPOSITORY / "hakmem"
FULL = os.strerror(errno.ENOSPC)
LIBRARY = blackbox.REPOSITORY / "build/release/lib/libhakmem.so"


def hakmem(*arguments, command=COMMAND, cwd=None, **variables):
    environment = blackbox.environment(variables)
    return subprocess.run(
        [str(command), *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=blackbox.HANG
    )


def test_version_is_the_headers():
    header = (blackbox.INCLUDE_FOLDER / "hakmem/hakmem.h").read_text()
    result = hakmem("--version")
    assert result.returncode == 0
    assert result.stdout.startswith("hakmem ")
    assert f'HAK_VERSION_STRING "{result.stdout.split()[1]}"' in header


@pytest.mark.parametrize("words", [["help"], ["-h"]])
def test_help_names_the_commands(words):
    result = hakmem(*words)
    assert result.returncode == 0
    for name in ("run", "look", "heap", "doctor", "--version"):
        assert f"  {name}" in result.stdout


@pytest.mark.parametrize("name, option", [("build", "asan"), ("test", "--all"), ("trace replay", "--threads-merged"),
                                          ("ps", "--json"), ("look", "--map")])
def test_each_command_has_a_page(name, option):
    """COMMAND --help and help COMMAND give the same page, which names the command as people type it."""
    pages = [hakmem(*name.split(), "--help"), hakmem("help", *name.split())]
    assert [page.returncode for page in pages] == [0, 0], pages
    assert pages[0].stdout == pages[1].stdout and option in pages[0].stdout
    assert f"hakmem {name}" in pages[0].stdout.splitlines()[0], pages[0].stdout


@pytest.mark.parametrize("words, redirection, status, message", [
    ("--version", ">/dev/full", 1, FULL), ("help test", ">/dev/full", 1, FULL), ("--help", ">&-", 0, ""),
    ("--version", "<&- >&- 2>&-", 0, "")])
def test_a_full_or_closed_output(words, redirection, status, message):
    """As the tools in Python do it (test_streams.py)."""
    result = blackbox.run(["bash", "-c", f"{COMMAND} {words} {redirection}"], env={})
    assert result.status == status and message in result.stderr, result.report()
    assert len(result.stderr.splitlines()) == bool(message)


@pytest.mark.parametrize("word", [["-R", "no_such_test"], ["-N", "-j2"], ["--label-regex", "none", "-V"]])
def test_what_ctest_knows_goes_to_ctest(word):
    script = f'source {COMMAND} --version >/dev/null; check_ctest_arguments "$@"'
    result = blackbox.run(["bash", "-c", script, COMMAND, *word], env={})
    assert result.status == 0, result.report()


@pytest.mark.parametrize("arguments, status, word", [
    ([], 2, "hakmem"),
    (["fly"], 2, "'fly'"),
    (["doctr"], 2, " doctor?"),
    (["help", "explian"], 2, " explain?"),
    (["help", "fly"], 2, "'fly'"),
    (["build", "fast"], 2, "'fast'"),
    (["build", "release", "debug"], 2, "build"),
    (["test", "--flavor", "fast"], 2, "'fast'"),
    (["test", "--flavor", "coverage"], 2, "--coverage"),
    (["test", "--flavor"], 2, "--flavor"),
    (["test", "--soak"], 2, "--soak"),
    (["test", "--soak", "long"], 2, "'long'"),
    (["test", "--nope"], 2, "'--nope'"),
    (["test", "test_lock"], 2, "'test_lock'"),
    (["wheel", "--nope"], 2, "'--nope'"),
    (["wheel", "/dev/null"], 2, "/dev/null"),
    (["crates", "/dev/null"], 2, "/dev/null"),
    (["amalgamate", "/dev/null"], 2, "/dev/null"),
    (["package", "/dev/null", "--only", "libraries"], 1, "/dev/null"),
    (["fuzz"], 2, "fuzz"),
    (["fuzz", "calls", "--minutes", "0"], 2, "--minutes"),
    (["run", "--", "no-such-program"], 127, "'no-such-program'"),
])
def test_what_is_wrong_is_named(arguments, status, word):
    result = hakmem(*arguments)
    assert result.returncode == status
    assert word in result.stderr
    assert result.stdout == ""


def calls(words, stubs):
    """The output of a command of the checkout, with functions replaced by those that say what they were called with."""
    script = f'source {COMMAND} --version >/dev/null\n{stubs}\n"$@"'
    return blackbox.run(["bash", "-c", script, COMMAND, *words], env={})


def test_rows_are_looked_at_before_anything_is_installed():
    stubs = "offer_bench_tools() { echo installs; exit 9; }"
    for words in (["--rows", "no-such-row"], ["--no-such-option"]):
        result = calls(["command_bench", *words], stubs)
        assert (result.status, result.stdout) == (2, "") and words[-1] in result.stderr, result.report()
    result = calls(["command_bench", "--quick"], stubs)
    assert (result.status, result.stdout) == (9, "installs\n"), result.report()


@pytest.mark.parametrize("words, needed", [
    ("record", {"hakmem", "hakmem_run", "hakmem_trace", "hakmem_trace_finish"}),
    ("replay", {"hakmem", "bench_measure", "hakmem_replay"})])
def test_traces_need_a_small_part_of_the_build(words, needed):
    result = calls(["command_trace", words], 'build_flavor() { echo "$@"; exit 9; }')
    assert result.status == 9 and set(result.stdout.split()) == {"release", *needed}, result.report()


def test_a_first_build_is_told(tmp_path):
    stubs = f'out={tmp_path}; progressing() {{ :; }}; quietly() {{ touch "$out/release/build.ninja"; }}'
    (tmp_path / "release").mkdir()
    first, second = (calls(["configure", "release", "OFF"], stubs) for _ in range(2))
    assert f"{tmp_path}/release" in first.stderr and second.stderr == "", (first.report(), second.report())


def test_run_from_anywhere_through_a_link(tmp_path):
    link = tmp_path / "hak"
    link.symlink_to(COMMAND)
    result = hakmem("run", "cat", "/proc/self/maps", command=link, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert str(LIBRARY.resolve()) in result.stdout


def test_the_makefile_builds_a_target_of_a_flavor():
    def make(flavor):
        return subprocess.run(["make", "-C", str(blackbox.REPOSITORY), "hakmem", f"BUILD_FLAVOR={flavor}"],
                              env=blackbox.environment(), capture_output=True, text=True, timeout=blackbox.HANG,
                              check=False)

    done = make("release")
    assert done.returncode == 0 and LIBRARY.is_file(), done.stderr
    done = make("fast")
    assert done.returncode != 0 and "fast" in done.stderr
