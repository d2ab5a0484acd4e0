"""Protects hakmem/report/columns.py: a result's file keeps all of it but digits, and a damaged one is refused."""

import copy
import json

import pytest
import synthetic
from click.testing import CliRunner

from hakmem.bench import store
from hakmem.report import columns
from hakmem.report.command import report
from hakmem.report.result import load_result


def odd_result():
    """A result with a value that is null, an empty object, and entries that lack keys which others have."""
    result = synthetic.small()
    result["samples"][0]["idle_rss_kib"] = None
    result["samples"][1] |= {"wall_s": 1.23456789, "peak_rss_kib": 1234567}
    result["samples"][2]["status"] = "timeout"
    row, allocator = result["samples"][0]["row"], result["samples"][0]["allocator"]
    result["calls"] = [{"row": row, "allocator": allocator, "memory": {"mmap": 3, "munmap": 1}, "memory_total": 4},
                       {"row": row, "allocator": allocator, "memory": {}, "memory_total": None, "detail": "no end"}]
    return result


def test_a_result_comes_back_with_its_digits():
    result = odd_result()
    before = copy.deepcopy(result)
    back = columns.unpack(json.loads(json.dumps(columns.pack(result))))
    assert result == before
    assert back == columns.round_result(result)
    assert back["samples"][1]["wall_s"] == 1.235 and back["samples"][1]["peak_rss_kib"] == 1234567
    assert columns.pack(back) == columns.pack(result)
    for one, other in zip(back["samples"], result["samples"], strict=True):
        assert list(one) == [key for key in columns.to_table(result["samples"]) if key in other]


def test_a_file_of_either_form_is_the_same_result(tmp_path):
    result = columns.round_result(odd_result())
    (old := tmp_path / "old.json").write_text(json.dumps(result))
    new, _ = store.write_result(result, tmp_path / "new")
    assert load_result(new) == load_result(old) == result


def test_a_key_that_would_not_come_back_is_refused():
    for entry in ({"a.b": 1}, {"a": [1]}):
        with pytest.raises(ValueError, match="'a"):
            columns.to_table([entry])


def changed(*path_and_value):
    """The packed result with one value changed."""
    *path, last, value = path_and_value
    packed = columns.pack(synthetic.small())
    part = packed
    for key in path:
        part = part[key]
    part[last] = value
    return packed


@pytest.mark.parametrize("packed, place", [
    (changed("samples", []), "samples"),
    (changed("samples", "row", 3), "samples"),
    (changed("samples", "row", ["python-json"]), "samples"),
    (changed("calls", {"a": [1], "a.b": [2]}), "calls"),
    (changed("calls", {"a." * 9: [1]}), "calls"),
    (changed("summary", 1), "summary.rows"),
    (changed("summary", "rows", {"row": ["python-json"]}), "summary.rows"),
    (changed("samples", "status", ["fine"] * len(synthetic.small()["samples"])), "samples[0].status"),
])
def test_a_damaged_file_is_refused(tmp_path, packed, place):
    (path := tmp_path / "bad.json").write_text(json.dumps(packed))
    done = CliRunner().invoke(report, [str(path)])
    assert done.exit_code == 1 and f"{path}: {place}: " in done.output and "Traceback" not in done.output
