"""Protects the ./hakmem command: its output, its failures, and that `run` puts HAKMEM under a program."""

import subprocess

import pytest

import blackbox

COMMAND = blackbox.REPOSITORY / "hakmem"
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


@pytest.mark.parametrize("words", [["help"], ["--help"], ["-h"]])
def test_help_names_the_commands(words):
    result = hakmem(*words)
    assert result.returncode == 0
    for name in ("build", "run", "test", "test --soak", "fuzz", "--version"):
        assert f"  {name}" in result.stdout
    assert "Exit status: 0 done; 1 failed; 2 the command line is wrong." in result.stdout


@pytest.mark.parametrize("name, words", [("build", "asan"), ("run", "--heap-profile FILE"), ("test", "--all"),
                                         ("fuzz", "libFuzzer"), ("wheel", "build/wheel"), ("help", "SUBCOMMAND"),
                                         ("top", "--svg FILE"), ("trace replay", "--threads-merged"),
                                         ("peers build", "--anew"), ("ps", "--json"), ("advise", "--try NAME=VALUE"),
                                         ("completion", "compinit"), ("compare", "--resume"),])
def test_each_command_has_a_page(name, words):
    """COMMAND --help and help COMMAND give the same page, which names the command as people type it."""
    pages = [hakmem(*name.split(), "--help"), hakmem("help", *name.split())]
    assert [page.returncode for page in pages] == [0, 0], pages
    assert pages[0].stdout == pages[1].stdout and words in pages[0].stdout
    assert pages[0].stdout.lower().startswith(f"usage: hakmem {name}"), pages[0].stdout


@pytest.mark.parametrize("words", ["--version", "--help", "help test"])
@pytest.mark.parametrize("redirection, status, message", [
    (">/dev/full", 1, "hakmem: the output cannot be written: No space left on device\n"),
    (">&-", 0, ""), ("<&- >&- 2>&-", 0, "")])
def test_a_full_or_closed_output(words, redirection, status, message):
    """As the tools in Python do it (test_streams.py)."""
    result = blackbox.run(["bash", "-c", f"{COMMAND} {words} {redirection}"], env={})
    assert (result.status, result.stderr) == (status, message), result.report()


@pytest.mark.parametrize("word", [["-R", "no_such_test"], ["-N", "-j2"], ["--label-regex", "none", "-V"]])
def test_what_ctest_knows_goes_to_ctest(word):
    script = f'source {COMMAND} --version >/dev/null; check_ctest_arguments "$@"'
    result = blackbox.run(["bash", "-c", script, COMMAND, *word], env={})
    assert result.status == 0, result.report()


def test_a_programs_own_help_is_the_programs():
    result = hakmem("run", "sh", "-c", 'echo "$@"', "sh", "--help")
    assert (result.returncode, result.stdout) == (0, "--help\n")


@pytest.mark.parametrize(
    "arguments, status, message",
    [
        ([], 2, "usage: hakmem"),
        (["fly"], 2, "unknown command 'fly'"),
        (["help", "fly"], 2, "unknown command 'fly'"),
        (["build", "fast"], 2, "unknown flavor 'fast'"),
        (["build", "release", "debug"], 2, "build takes one flavor"),
        (["test", "--flavor", "fast"], 2, "unknown flavor 'fast'"),
        (["test", "--flavor", "coverage"], 2, "hakmem test --coverage"),
        (["test", "--flavor"], 2, "--flavor needs a name"),
        (["test", "--soak"], 2, "--soak needs a value"),
        (["test", "--soak", "long"], 2, "--soak needs a number, not 'long'"),
        (["test", "--nope"], 2, "unknown option '--nope' of test, and of ctest"),
        (["test", "test_lock"], 2, "test takes options only, not 'test_lock'"),
        (["wheel", "--nope"], 2, "unknown option '--nope' of wheel"),
        (["wheel", "/dev/null"], 2, "wheel takes a folder, which /dev/null is not"),
        (["crates", "/dev/null"], 2, "crates takes a folder, which /dev/null is not"),
        (["amalgamate", "/dev/null"], 2, "amalgamate takes a folder, which /dev/null is not"),
        (["package", "/dev/null", "--only", "libraries"], 1, "Error: cannot make /dev/null: File exists"),
        (["fuzz"], 2, "fuzz needs a target"),
        (["fuzz", "nothing"], 2, "fuzz needs a target"),
        (["fuzz", "calls", "--minutes", "0"], 2, "--minutes needs a number, not '0'"),
        (["run"], 2, "run needs a program"),
        (["run", "--"], 2, "run needs a program"),
        (["run", "--fast", "true"], 2, "unknown option '--fast'"),
        (["run", "--", "no-such-program"], 127, "program 'no-such-program' not found"),
        (["run", "--", "/no/such/program"], 127, "program '/no/such/program' not found"),
    ],
)
def test_what_is_wrong_is_said(arguments, status, message):
    result = hakmem(*arguments)
    assert result.returncode == status
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("dashes", [["--"], []])
def test_run_from_anywhere_through_a_link(tmp_path, dashes):
    link = tmp_path / "hak"
    link.symlink_to(COMMAND)
    result = hakmem("run", *dashes, "cat", "/proc/self/maps", command=link, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert str(LIBRARY.resolve()) in result.stdout


def test_run_keeps_arguments_directory_and_status(tmp_path):
    result = hakmem("run", "--", "sh", "-c", 'pwd; printf "%s\\n" "$@"; exit 7', "sh", "a b", "*", "", cwd=tmp_path)
    assert result.stdout == f"{tmp_path}\na b\n*\n\n"
    assert result.stderr == ""
    assert result.returncode == 7


def test_run_comes_before_what_is_preloaded_already(compiled, tmp_path):
    source = tmp_path / "other.c"
    source.write_text("int other;\n")
    other = compiled(source, shared=True)
    result = hakmem("run", "--", "printenv", "LD_PRELOAD", LD_PRELOAD=str(other))
    assert result.stdout == f"{LIBRARY}:{other}\n"


def test_makefile_builds_a_target():
    result = subprocess.run(
        ["make", "-C", str(blackbox.REPOSITORY), "hakmem", "BUILD_FLAVOR=release"],
        env=blackbox.environment(), capture_output=True, text=True, timeout=blackbox.HANG,
    )
    assert result.returncode == 0, result.stderr
    assert LIBRARY.is_file()


def test_makefile_refuses_an_unknown_flavor():
    result = subprocess.run(
        ["make", "-C", str(blackbox.REPOSITORY), "hakmem", "BUILD_FLAVOR=fast"],
        env=blackbox.environment(), capture_output=True, text=True, timeout=blackbox.HANG,
    )
    assert result.returncode != 0
    assert "fast" in result.stderr
