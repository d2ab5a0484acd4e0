"""Protects lifetimes in profiles that have them, as HAKMEM's own profiles do."""

import json

import pytest
from making import known, run, with_lives, words

from hakmem.heap.lifetimes import duration_text


@pytest.fixture
def profile(tmp_path):
    return with_lives().write(tmp_path / "lives")


def test_the_table_has_the_mean(profile):
    done = run(profile)
    assert done.exit_code == 0, done.output
    lines = words(done.stdout)
    assert "500 B 71.4 % 500 B 71.4 % 5 - keep /src/a.c:1" in lines
    assert "200 B 28.6 % 200 B 28.6 % 20 1.82 s fill /src/a.c:1" in lines
    assert "objects freed 110" in lines and "mean lifetime 1.82 s" in lines and "stacks 2" in lines
    assert not any("milliseconds" in line for line in lines)


def test_lifetimes_by_span(profile):
    lines = words(run(profile, "--lifetimes").stdout)
    assert "freed mean < 1 ms 1 ms 16 ms 256 ms 4.1 s 65.5 s 17.5 min site" in lines
    assert lines[-1] == "110 1.82 s 90.9 % 9.1 % fill"


def test_json_has_them(profile):
    sites = {site["name"]: site["lifetimes"] for site in json.loads(run(profile, "--json").stdout)["sites"]}
    assert sites["keep"] is None and sites["fill"]["freed"] == 110
    assert sites["fill"]["mean_ms"] == pytest.approx(200_000 / 110)
    spans = {name: objects for name, objects in sites["fill"]["spans"].items() if objects}
    assert spans == {"< 1 ms": 100, "4.1 s": 10}


def test_a_difference_tells_of_the_time_between(profile, tmp_path):
    later = with_lives()
    later.profile.sample[1].value[4] = 150
    sites = json.loads(run(later.write(tmp_path / "later"), "--diff", profile, "--json").stdout)["sites"]
    (fill,) = (site["lifetimes"] for site in sites if site["name"] == "fill")
    assert (fill["freed"], fill["mean_ms"], fill["spans"]["< 1 ms"]) == (50, 0, 50)


def test_a_profile_without_them(tmp_path):
    path = known().write(tmp_path / "known")
    assert "life" not in run(path).stdout
    done = run(path, "--lifetimes")
    assert done.exit_code == 1
    assert "the profile tells no lifetimes: it has no sample types freed_objects and lifetime" in done.stderr


def test_durations():
    assert [duration_text(one) for one in (None, 0, 0.5, 1, 999, 1500, 90_000, 7_200_000)] == [
        "-", "< 1 ms", "< 1 ms", "1 ms", "999 ms", "1.5 s", "1.5 min", "2 h"]
