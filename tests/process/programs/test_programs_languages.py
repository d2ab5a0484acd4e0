"""Protects the contracts of the C names and the C++ operators: programs that pass on glibc pass on HAKMEM."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent


def test_glibc_contract(compiled):
    """The same program passes on glibc, so it asks only for what glibc gives."""
    blackbox.run_both(
        [compiled(HERE / "contract_glibc.c", "-Wno-deprecated-declarations", "-Wno-use-after-free")], timeout=60
    )


def test_names_beyond_glibc(compiled):
    result = blackbox.run_with_proof([compiled(HERE / "contract_extra.c")])
    assert result.status == 0, result.report()
    assert result.stdout == "done\n"
    assert len(result.stderr.splitlines()) >= 3, "malloc_stats says something on stderr"


@pytest.mark.parametrize("count,size", [(5000, 100), (300, 20000), (40, 200000), (3, 9000000)])
def test_malloc_info_is_xml_with_true_numbers(compiled, count, size):
    program = compiled(HERE / "contract_info.c")
    wanted = (count - 1) * size
    for runner in (blackbox.run, blackbox.run_with_proof):
        live = []
        for number in (1, count):
            result = runner([program, number, size])
            assert result.status == 0, result.report()
            live.append(live_bytes(ElementTree.fromstring(result.stdout)))
        assert wanted <= live[1] - live[0] <= wanted * 1.35 + 65536, runner.__name__


def live_bytes(root):
    """Bytes in use by glibc's format: all obtained (aspace or system), less what is free (fast and rest)."""
    assert root.tag == "malloc" and root.get("version")
    total = {element.get("type"): int(element.get("size")) for element in root.findall("total")}
    system = {element.get("type"): int(element.get("size")) for element in root.findall("system")}
    assert set(total) >= {"fast", "rest", "mmap"} and set(system) >= {"current", "max"}
    return system["current"] + total["mmap"] - total["fast"] - total["rest"]


def test_cpp_operators(compiled):
    blackbox.run_both(
        [compiled(HERE / "operators.cpp", "-Wno-mismatched-new-delete", "-Wno-alloc-size-larger-than")], timeout=60
    )
