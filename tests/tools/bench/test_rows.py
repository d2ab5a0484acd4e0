"""Protects rows.toml, and the messages about wrong rows."""

import re

import pytest
import tool

from hakmem.bench import inputs, programs, rows

ROWS = rows.load()


def test_rows_can_be_run():
    """Each driver is one of the build, and each input has its function."""
    assert len(ROWS) > 40
    for row in ROWS:
        if row.group == "driver":
            assert (tool.BUILD / "bin" / row.command[0]).is_file(), row.name
            assert row.scale_at is not None, row.name
        assert row.prepare is None or hasattr(inputs, row.prepare) or hasattr(programs, row.prepare), row.name
        assert row.threads >= 1 and row.about and not row.verbatim
        assert re.fullmatch(r"[\w.-]+", row.name)


def test_quick_rows_are_of_both_groups():
    quick = rows.choose(ROWS, [], quick=True)
    assert {row.group for row in quick} == {"driver", "program"}
    assert 6 <= len(quick) <= 12


def test_scale_and_places():
    row = rows.Row("r", "driver", 1, "", ("bench_x", "{files}/a", "1000"), "seconds", scale_at=2)
    assert row.argv("/in") == [str(tool.BUILD / "bin/bench_x"), "/in/a", "1000"]
    assert row.scaled(0.25)[2] == "250"
    assert row.scaled(1e-9)[2] == "1"
    plain = rows.Row("r", "program", 1, "", ("echo", "{files}"), "wall", verbatim=True)
    assert plain.argv("/in", 7.0) == ["echo", "{files}"]


GOOD = {"name": "n", "group": "driver", "threads": 1, "about": "a", "command": ["p", "5"], "figure": "seconds"}


@pytest.mark.parametrize("change, message", [
    ({"group": "other"}, "other"),
    ({"figure": "speed"}, "speed"),
    ({"preload": "both"}, "both"),
    ({"command": []}, "command"),
    ({"command": ["p", 5]}, "command"),
    ({"scale_at": 2}, "scale_at 2"),
    ({"scale_at": 0}, "scale_at 0"),
    ({"colour": "red"}, "colour"),
    ({"about": None}, "about"),
])
def test_mistakes_in_a_row_are_named(change, message):
    table = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=rf"row n\b.*\b{message}\b"):
        rows.check(1, table)


def test_names_are_unique(tmp_path):
    one = '[[row]]\nname = "n"\ngroup = "driver"\nthreads = 1\nabout = "a"\ncommand = ["p"]\nfigure = "wall"\n'
    (tmp_path / "rows.toml").write_text(one + one)
    with pytest.raises(ValueError, match=r"\bn\b"):
        rows.load(tmp_path / "rows.toml")


def test_rows_of_crates():
    """One program, with an amount and the checksum that it must print. The program can be built with these crates."""
    from hakmem.bench import allocators, programs

    for row in rows.load(rows.CRATES_FILE):
        assert row.prepare == "rust_crates" and re.fullmatch("[0-9a-f]{16}", row.command[3]) and int(row.command[2]) > 0
    manifest = (programs.CRATES_SOURCES / "Cargo.toml").read_text()
    found = allocators.crates()
    assert list(found) == ["glibc", *programs.CRATES]
    for crate, feature in programs.CRATES.items():
        assert f'{feature} = ["dep:{crate}"]' in manifest
        assert found[crate].library is None and found[crate].setting == {"BENCH_CRATE": crate}
        assert re.fullmatch(r"\d+\.\d+\.\d+", found[crate].version)


def test_what_is_missing_is_said():
    gone = rows.Row("r", "driver", 1, "", ("bench_nosuch",), "seconds")
    assert str(tool.BUILD / "bin/bench_nosuch") in rows.missing(gone)
    gone = rows.Row("r", "program", 1, "", ("nosuchprogram",), "wall")
    assert "nosuchprogram" in rows.missing(gone)
