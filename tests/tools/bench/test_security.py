"""Protects hakmem bench security: the misuse suite on several allocators."""

import json
import re
from pathlib import Path

import blackbox
import tool

SOME = ("--kinds", "double-direct", "--kinds", "secrets")


def security(folder, *arguments):
    return tool.run(folder, "bench", "security", *arguments)


def test_kinds_and_totals_side_by_side(tmp_path):
    done = security(tmp_path, *SOME, "--allocators", "default,glibc")
    assert done.status == 0, done.report()
    assert re.search(r"^kind +default +glibc$", done.stdout, re.MULTILINE), done.report()
    assert re.search(r"^double-direct +17 call +\S", done.stdout, re.MULTILINE), done.report()
    assert re.search(r"^stopped +17 of 27 +\d+ of 27$", done.stdout, re.MULTILINE), done.report()


def test_json_has_each_case(tmp_path):
    done = security(tmp_path, *SOME, "--allocators", "default", "--json", "--rounds", 2)
    assert done.status == 0, done.report()
    result = json.loads(done.stdout)
    assert result["format"] == "hakmem-security 1"
    assert result["outcomes"]["default"]["double-direct 16 same C"] == "call"
    default = result["libraries"]["default"]
    assert Path(default["library"]).samefile(blackbox.LIBRARY) and default["setting"] == {}


def test_another_library(tmp_path):
    done = security(tmp_path, "--kinds", "reuse", "--add", f"again={blackbox.LIBRARY}", "--cases")
    assert done.status == 0, done.report()
    assert re.search(r"^case +default .*glibc +again$", done.stdout, re.MULTILINE), done.report()
    assert "not built and left out: hardened, mimalloc-secure, snmalloc-checks, scudo" in done.stderr


def test_what_is_refused(tmp_path):
    for arguments, status, words in (
        (("--allocators", "nosuch"), 2, "no such allocator: nosuch"),
        (("--kinds", "nosuch"), 2, "no such kind: nosuch"),
        (("--record", "--kinds", "reuse"), 2, "--record wants every kind"),
        (("--add", "x=/nosuch.so"), 1, "x: there is no library /nosuch.so"),
    ):
        done = security(tmp_path, *arguments)
        assert done.status == status and words in done.stderr and not done.stdout, done.report()
