"""Protects files of known leaks in both formats: what they match, and what is refused."""

import pytest

from conftest import hakmem
from hakmem.leaks.suppressions import Caller, Glob, Wrong, of_text, read_suppressions

STACK = (Caller(("Cache::fill(int)", "_ZN5Cache4fillEi"), "/src/cache.cpp", 42, "/usr/lib/libcache.so.1"),
         Caller(("main",), "/src/main.c", 7, "/usr/bin/app"))


@pytest.mark.parametrize("pattern, matches", [("Cache::fill", True), ("_ZN5Cache4fillEi", True), ("cache.cpp", True),
                                              ("libcache", True), ("^main$", True), ("^ain", False), ("mai$", False),
                                              ("C*fill*)", True), ("^/usr/bin/*p$", True), ("fill?int", False),
                                              ("nothing", False), ("^Cache*int)$", True)])
def test_sanitizers_patterns(pattern, matches):
    (found,) = of_text(f"leak:{pattern}\n", "f")
    assert found.matches(STACK) is matches


@pytest.mark.parametrize("frames, matches", [(["fun:malloc", "fun:_ZN5Cache4fillEi", "fun:main"], True),
                                             (["fun:malloc", "fun:Cache::*"], True),
                                             (["fun:_Znw*", "obj:*libcache.so*"], True),
                                             (["fun:malloc", "fun:main"], False),
                                             (["fun:malloc", "...", "fun:main"], True), (["...", "fun:main"], True),
                                             (["fun:_ZN5Cache4fillEi"], False),
                                             (["fun:?alloc", "src:cache.cpp:42"], True),
                                             (["fun:malloc", "src:cache.cpp:43"], False), (["...", "obj:*/app"], True),
                                             (["obj:*vgpreload*", "fun:*", "fun:main", "fun:start"], False),
                                             (["fun:malloc", "...", "fun:*fill*", "...", "fun:main", "..."], True)])
def test_valgrinds_blocks(frames, matches):
    text = "{\n  a name\n  Memcheck:Leak\n  match-leak-kinds: definite,indirect\n" + "".join(f"  {line}\n"
                                                                                             for line in frames) + "}\n"
    (found,) = of_text(text, "f")
    assert found.name == "a name" and found.matches(STACK) is matches


def test_blocks_about_something_else_are_passed_over():
    text = ("# both\n{\n a\n Memcheck:Cond\n fun:x\n}\n{\n b\n Helgrind:Race\n obj:y\n}\n"
            "{\n c\n Memcheck:Leak\n match-leak-kinds: reachable\n fun:malloc\n}\nleak:main\n")
    assert [one.name for one in of_text(text, "f")] == ["leak:main"]


@pytest.mark.parametrize("text, said",
                         [("leak:\n", ":1: "), ("\nleak:*\n", ":2: "), ("race:foo\n", ":1: "),
                          ("{\n a\n Memcheck:Leak\n fun:x\n", ":1: "), ("{\n}\n", ":1: "),
                          ("{\n a\n Memcheck:Leak\n}\n", ":1: "),
                          ("{\n a\n Memcheck:Leak\n nonsense\n}\n", ":4: "),
                          ("{\n a\n Memcheck:Leak\n match-leak-kinds: some\n fun:x\n}\n", ":4: "),
                          ("leak:" + "x" * 5000, "5,005"),
                          ("{\n a\n Memcheck:Leak\n" + " fun:x\n" * 300 + "}\n", "300"),
                          ("\0\x1b[31m\n", ":1: ")])
def test_what_is_no_suppression_is_refused(text, said):
    with pytest.raises(Wrong) as raised:
        of_text(text, "some/file")
    assert "some/file:" in raised.value.message and said in raised.value.message and "\x1b" not in raised.value.message


def test_files_that_cannot_be_read(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"#" * (5 << 20))
    for name in ("nothing", "pipe", ".", "large"):
        with pytest.raises(Wrong, match="--suppress"):
            read_suppressions([tmp_path / name])


def test_patterns_that_go_back_without_end_take_no_time():
    """The same pattern as a regular expression would take years."""
    assert not Glob("*a" * 200 + "b", anywhere=True).matches("a" * 100_000)
    deep = tuple(Caller((f"f{number}",)) for number in range(64))
    text = "{\n a\n Memcheck:Leak\n" + " ...\n fun:f*\n" * 100 + "}\n"
    (found,) = of_text(text, "f")
    assert not found.matches(deep)


def test_suppressed_leaks_are_no_leaks(leaks, tmp_path):
    file = tmp_path / "known.txt"
    file.write_text(
        "leak:lose_blocks\nleak:lose_ring\n{\n the list\n Memcheck:Leak\n fun:malloc\n fun:*take*\n ...\n "
        "fun:*lose_list*\n}\n"
    )
    looked = leaks(["all", "return"], "--suppress", file)
    assert looked.result.status == 1, looked.result.report()
    (report,) = looked.reports
    assert report["lost"] == {"blocks": 1, "bytes": 5 << 20, "asked": 5 << 20} and report["behind_lost"]["blocks"] == 0
    assert {(one["name"], one["blocks"]) for one in report["suppressed"]} == {
        ("leak:lose_blocks", 100), ("leak:lose_ring", 2), ("the list", 50)}
    file.write_text("leak:leaks-*\n")
    again = leaks(["all", "return"], "--suppress", file, "-n", "3")
    assert again.result.status == 0 and again.reports[0]["lost"]["blocks"] == 0, again.result.report()


def test_what_a_known_leak_leads_to_is_known(leaks, tmp_path):
    """Only the list's blocks come from there. The head is found by its own stack, and all of it is one site here."""
    file = tmp_path / "list.txt"
    file.write_text("leak:lose_list\n")
    looked = leaks(["all", "return"], "--suppress", file)
    assert looked.reports[0]["behind_lost"]["blocks"] == 1  # of the ring


def test_a_wrong_file_is_a_wrong_command_line(program, tmp_path):
    file = tmp_path / "wrong.txt"
    file.write_text("leak:fine\nnonsense\n")
    result = hakmem("leaks", "--suppress", file, "--", program, "one")
    assert result.status == 2 and f"{file}:2: " in result.stderr and result.stdout == "", result.report()
