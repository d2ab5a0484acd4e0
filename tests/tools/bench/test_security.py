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
    """A library of one's own besides. Allocators that are not built are named."""
    done = security(tmp_path, *SOME, "--add", f"again={blackbox.LIBRARY}", "--cases")
    assert done.status == 0, done.report()
    assert re.search(r"^kind +default .*glibc +again$", done.stdout, re.MULTILINE), done.report()
    assert re.search(r"^double-direct +17 call +\S", done.stdout, re.MULTILINE), done.report()
    assert re.search(r"\b17 of 27 +.*\b17 of 27$", done.stdout, re.MULTILINE), done.report()
    assert re.search(r"^case +default .*glibc +again$", done.stdout, re.MULTILINE), done.report()
    assert "mimalloc-secure" in done.stderr and "scudo" in done.stderr


def test_json_has_each_case(tmp_path):
    done = security(tmp_path, *SOME, "--allocators", "default", "--json")
    assert done.status == 0, done.report()
    result = json.loads(done.stdout)
    assert result["format"] == "hakmem-security 1"
    assert result["outcomes"]["default"]["double-direct 16 same C"] == "call"
    default = result["libraries"]["default"]
    assert Path(default["library"]).samefile(blackbox.LIBRARY) and default["setting"] == {}


def test_what_is_refused(tmp_path):
    for arguments, status, word in (
        (("--allocators", "nosuch"), 2, "nosuch"),
        (("--kinds", "nosuch"), 2, "nosuch"),
        (("--record", "--kinds", "reuse"), 2, "--record"),
        (("--add", "x=/nosuch.so"), 1, "/nosuch.so"),
    ):
        found, said = tool.refused(tmp_path, "bench", "security", *arguments)
        assert found == status and word in said, said
