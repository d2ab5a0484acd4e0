"""Protects `hakmem run`, the script's and the package's: what reaches the program, and what is refused."""

import signal

import pytest
from conftest import BUILD

import blackbox

# The program prints its environment, one variable a line.
TELL = ["sh", "-c", 'printf "%s\n" "$LD_PRELOAD" "$HAKMEM_SHOW_STATS" "$HAKMEM_TINY_PROFILE" "$HAKMEM_HEAP_PROFILE" '
        '"$HAKMEM_PURGE_DELAY" "$HAKMEM_BUILD_DIR"']
NAMES = ("preload", "stats", "profile", "heap_profile", "purge_delay", "build")


def told(result):
    assert result.status == 0, result.report()
    return dict(zip(NAMES, result.stdout.split("\n")))


def test_nothing_but_the_library(launch):
    found = told(launch("--", *TELL))
    assert found == {"preload": str(BUILD / "lib/libhakmem.so"), "stats": "", "profile": "", "heap_profile": "",
                     "purge_delay": "",
                     "build": ""}


def test_variables_of_the_tools_are_no_options(launch):
    """The library warns about unknown variables. The tools' variables are not its own."""
    result = launch("sh", "-c", ":", env={"HAKMEM_PEERS_DIR": "/tmp"})
    assert (result.status, result.stderr) == (0, ""), result.report()


def test_the_hardened_library(launch):
    found = told(launch("--secure", "--set", "purge_delay=7", "--", *TELL))
    assert (found["preload"], found["purge_delay"]) == (str(BUILD / "lib/libhakmem-secure.so"), "7")
    result = launch("--secure", "--profile", "true")
    assert result.status == 2 and "--profile and --secure exclude each other" in result.stderr, result.report()


def test_it_is_active(launch):
    result = launch("--set", "verbose=1", "sh", "-c", ":")
    assert result.status == 0 and "hakmem: version" in result.stderr, result.report()


def test_options_reach_the_program(launch, tmp_path):
    found = told(launch("--stats", "--profile", "--heap-profile", tmp_path / "heap.pb.gz", "--set", "purge_delay=7",
                        "--", *TELL))
    assert (found["stats"], found["profile"], found["purge_delay"]) == ("1", "1", "7")
    assert found["heap_profile"] == str(tmp_path / "heap.pb.gz")
    assert told(launch("--stats=json", *TELL))["stats"] == "json"
    assert told(launch("--stats=text", *TELL))["stats"] == "1"
    assert told(launch("--set=HAKMEM_PURGE_DELAY=a=b", *TELL))["purge_delay"] == "a=b"


def test_a_profile_lies_where_run_was_called(launch, tmp_path):
    found = told(launch("--heap-profile", "here.pb.gz", *TELL, cwd=tmp_path))
    assert found["heap_profile"] == str(tmp_path / "here.pb.gz")


def test_stats_are_printed(launch):
    result = launch("--stats", "--", "python3", "-c", "pass")
    assert result.status == 0 and "hakmem: " in result.stderr, result.report()


def test_what_is_preloaded_already_stays_behind_it(launch):
    found = told(launch(*TELL, env={"LD_PRELOAD": "libm.so.6"}))
    assert found["preload"] == f"{BUILD}/lib/libhakmem.so:libm.so.6"


@pytest.mark.parametrize("command, status", [
    (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -SEGV $$"], -signal.SIGSEGV), (["nosuchprogram"], 127)])
def test_the_exit_status_is_the_programs(launch, command, status):
    assert launch("--", *command).status == status


def test_arguments_are_left_alone(launch):
    result = launch("sh", "-c", 'printf "[%s]" "$@"', "name", "--stats", "--set", "", "a b", "--")
    assert result.stdout == "[--stats][--set][][a b][--]", result.report()


def test_signals_are_as_they_were(launch):
    """A closed pipe ends a program that writes into it, as usual."""
    result = launch("--", "python3", "-c", "import signal, subprocess; "
                    "print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0])")
    plain = blackbox.run(["python3", "-c", "print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0])"])
    assert result.stdout == plain.stdout, result.report()


@pytest.mark.parametrize("arguments, word", [
    (["--set", "purge_dely=1", "true"], "HAKMEM_PURGE_DELY"),
    (["--set", "purge_delay", "true"], "NAME=VALUE"),
    (["--set", ".*=1", "true"], "there is no option HAKMEM_.*; docs/options.md lists them"),
    (["--set", "purge.delay=1", "true"], "there is no option HAKMEM_PURGE.DELAY"),
    (["--stats=xml", "true"], "xml"),
    (["--heap-profile", "/nosuchfolder/x", "true"], "/nosuchfolder"),
    (["--heap-profile", "/tmp", "true"], "folder"),
    (["--heap-profile"], "--heap-profile"),
    (["--set"], "--set"),
    (["--frobnicate", "true"], "--frobnicate"),
    ([], "rogram"),
    (["--stats"], "rogram"),
])
def test_bad_use_is_named(launch, arguments, word):
    result = launch(*arguments)
    assert result.status == 2 and not result.stdout, result.report()
    assert word.upper() in result.stderr.upper(), result.report()


def test_options_in_any_language(launch, tmp_path):
    """In Turkish the capital of i is another letter."""
    made = blackbox.run(["localedef", "-i", "tr_TR", "-f", "UTF-8", tmp_path / "tr_TR.UTF-8"])
    assert made.status == 0, made.report()
    turkish = {"LOCPATH": str(tmp_path), "LC_ALL": "tr_TR.UTF-8"}
    result = launch("--set", "memory_limit=1G", "sh", "-c", 'echo "$LC_ALL $HAKMEM_MEMORY_LIMIT"', env=turkish)
    assert result.stdout == "tr_TR.UTF-8 1G\n", result.report()


def test_a_build_that_is_not_there(launch, tmp_path):
    result = launch("true", env={"HAKMEM_BUILD_DIR": str(tmp_path)})
    assert result.status == 1 and "libhakmem.so is not there" in result.stderr, result.report()


def test_a_path_that_ld_preload_cannot_name(launch, tmp_path):
    odd = tmp_path / "a b"
    (odd / "lib").mkdir(parents=True)
    (odd / "lib/libhakmem.so").write_bytes(blackbox.LIBRARY.read_bytes())
    result = launch("true", env={"HAKMEM_BUILD_DIR": str(odd)})
    assert result.status == 1 and "blank or a colon" in result.stderr, result.report()
