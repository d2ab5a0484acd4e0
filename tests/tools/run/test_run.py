"""Protects `hakmem run`: what reaches the program, how it ends, and what is refused."""

import os
import signal
import sys
from pathlib import Path

import pytest
from conftest import BUILD, launch, statistics

import blackbox

# The program prints its environment, one variable a line.
TELL = ["sh", "-c", 'printf "%s\n" "$LD_PRELOAD" "$HAKMEM_SHOW_STATS" "$HAKMEM_TINY_PROFILE" "$HAKMEM_HEAP_PROFILE" '
        '"$HAKMEM_PURGE_DELAY" "$HAKMEM_BUILD_DIR"']
NAMES = ("preload", "stats", "profile", "heap_profile", "purge_delay", "build")
NOTHING = {"preload": str(BUILD / "lib/libhakmem.so"), "stats": "", "profile": "", "heap_profile": "",
           "purge_delay": "", "build": ""}


def told(result):
    assert result.status == 0, result.report()
    return dict(zip(NAMES, result.stdout.split("\n")))


def test_options_reach_the_program_as_variables(tmp_path):
    assert told(launch("--", *TELL)) == NOTHING
    file = tmp_path / "heap.pb.gz"
    assert told(launch("--stats", "--profile", "--heap-profile", file, "--set", "purge_delay=7", "--", *TELL)) == {
        **NOTHING, "stats": "1", "profile": "1", "purge_delay": "7", "heap_profile": str(file)}
    assert told(launch("--stats=json", "--heap-profile", "here.pb.gz", *TELL, cwd=tmp_path)) == {
        **NOTHING, "stats": "json", "heap_profile": str(tmp_path / "here.pb.gz")}
    assert told(launch("--secure", "--set=HAKMEM_PURGE_DELAY=a=b", *TELL, env={"LD_PRELOAD": "libm.so.6"})) == {
        **NOTHING, "preload": f"{BUILD}/lib/libhakmem-secure.so:libm.so.6", "purge_delay": "a=b"}


def test_the_library_serves_the_program():
    result = launch("cat", "/proc/self/maps")
    assert str((BUILD / "lib/libhakmem.so").resolve()) in result.stdout, result.report()
    # The library warns about variables that it does not know. This one is the tools'.
    assert launch("true", env={"HAKMEM_PEERS_DIR": "/tmp"}).stderr == ""
    (stats,) = statistics(launch("--stats=json", "--", sys.executable, "-c", "pass").stderr)
    assert stats["pid"] > 0


@pytest.mark.parametrize("command, status", [
    (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -SEGV $$"], -signal.SIGSEGV), (["nosuchprogram"], 127)])
def test_the_exit_status_is_the_programs(command, status):
    assert launch("--", *command).status == status


def test_arguments_folder_and_signals_are_left_alone(tmp_path):
    result = launch("sh", "-c", 'pwd; printf "[%s]" "$@"', "name", "--stats", "--set", "", "a b", "--", "--help",
                    cwd=tmp_path)
    assert result.stdout == f"{tmp_path}\n[--stats][--set][][a b][--][--help]", result.report()
    # A closed pipe ends a program that writes into it, as usual.
    ignored = ["grep", "SigIgn", "/proc/self/status"]
    assert launch(*ignored).stdout == blackbox.run(ignored).stdout


@pytest.mark.parametrize("arguments, word", [
    (["--set", "purge_dely=1", "true"], "HAKMEM_PURGE_DELY"),
    (["--set", "purge_delay", "true"], "NAME=VALUE"),
    (["--set", ".*=1", "true"], "HAKMEM_.*"),
    (["--stats=xml", "true"], "xml"),
    (["--secure", "--profile", "true"], "--secure"),
    (["--heap-profile", "/nosuchfolder/x", "true"], "/nosuchfolder"),
    (["--heap-profile", "/tmp", "true"], "/tmp"),
    (["--heap-profile"], "--heap-profile"),
    (["--frobnicate", "true"], "--frobnicate"),
    (["--stats"], "rogram"),
])
def test_bad_use_is_named(arguments, word):
    result = launch(*arguments)
    assert result.status == 2 and not result.stdout, result.report()
    assert word in result.stderr, result.report()


def test_options_in_any_language(tmp_path):
    """In Turkish the capital of i is another letter."""
    if not Path("/usr/share/i18n/locales/tr_TR").exists():
        pytest.skip("needs the sources of locales (Debian's package locales)")
    made = blackbox.run(["localedef", "-i", "tr_TR", "-f", "UTF-8", tmp_path / "tr_TR.UTF-8"])
    assert made.status == 0, made.report()
    turkish = {"LOCPATH": str(tmp_path), "LC_ALL": "tr_TR.UTF-8"}
    result = launch("--set", "memory_limit=1G", "sh", "-c", 'echo "$LC_ALL $HAKMEM_MEMORY_LIMIT"', env=turkish)
    assert result.stdout == "tr_TR.UTF-8 1G\n", result.report()


def test_a_build_that_cannot_be_used(tmp_path):
    """It is not there, or LD_PRELOAD cannot name its path."""
    result = launch("true", env={"HAKMEM_BUILD_DIR": str(tmp_path)})
    assert result.status == 1 and f"{tmp_path}/lib/libhakmem.so" in result.stderr, result.report()
    odd = tmp_path / "a b"
    (odd / "lib").mkdir(parents=True)
    (odd / "lib/libhakmem.so").write_bytes(blackbox.LIBRARY.read_bytes())
    result = launch("true", env={"HAKMEM_BUILD_DIR": str(odd)})
    assert result.status == 1 and f"{odd}/lib" in result.stderr, result.report()


@pytest.mark.parametrize("name, status", [
    ("nosuchprogram", 127), ("/no/such/program", 127), ("./words", 126), ("/tmp", 126)])
def test_programs_that_cannot_be_run(tmp_path, name, status):
    (tmp_path / "words").write_text("words\n")
    result = launch("--stats", "--", name, cwd=tmp_path)
    assert (result.status, result.stdout, result.stderr.count("\n")) == (status, "", 1), result.report()
    assert f"'{name}'" in result.stderr, result.report()


def test_a_program_of_no_known_kind(tmp_path):
    """The file is executable, and of no kind that the kernel knows. A shell takes it for a script."""
    (tmp_path / "odd").write_bytes(b"\x7fELF" + bytes(100))
    os.chmod(tmp_path / "odd", 0o755)
    result = launch("--", "./odd", cwd=tmp_path)
    assert result.status in (126, 127) and "odd" in result.stderr and "Traceback" not in result.stderr, result.report()
