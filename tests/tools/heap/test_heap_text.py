"""Protects the figures of profiles with known numbers: as JSON, and the same in the printed tables."""

import json
import os

import blackbox
from making import TYPES, TYPES_WITH_LIVES, Making, known, named, run, words

from hakmem.units import bytes_text


def told(*arguments):
    """The data of `hakmem heap --json`."""
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def flat(data, kind="inuse_space"):
    """{site: its own figure}, without those that have none."""
    return {site["name"]: site["flat"][kind] for site in data["sites"] if site["flat"][kind]}


def check_table(kind, *arguments):
    """Checks that the printed table has the sites of the JSON with the same figures, largest first."""
    data, lines = told(*arguments), words(run(*arguments).stdout)
    head = next(number for number, line in enumerate(lines) if line.startswith("flat "))
    show = bytes_text if kind.endswith("space") else "{:,}".format
    total = data["totals"][kind]
    expected = [f"{show(site['flat'][kind])} {100 * site['flat'][kind] / total:.1f} % {show(site['cum'][kind])} "
                f"{100 * site['cum'][kind] / total:.1f} %" for site in data["sites"] if site["cum"][kind]]
    rows = [line for line in lines[head + 1:] if "%" in line]
    assert sorted(row[:row.rindex("%") + 1] for row in rows) == sorted(expected)
    sizes = [site["flat"][kind] for row in rows for site in data["sites"] if f" {site['name']} " in row]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) == len(rows)
    for name in data["types"]:
        value = data["totals"][name]
        assert any(line.endswith(f" {bytes_text(value) if name.endswith('space') else format(value, ',')}")
                   for line in lines[:head]), name


def test_every_kind(tmp_path):
    profile = known().write(tmp_path / "known.pb.gz")
    data = told(profile)
    assert data["totals"] == {"alloc_objects": 1013, "alloc_space": (1 << 20) + 14336, "inuse_objects": 7,
                              "inuse_space": 11264}
    assert flat(data) == {"grow": 8192, "fill": 3072}
    assert {site["name"]: site["cum"]["inuse_space"] for site in data["sites"]} == {
        "grow": 8192, "fill": 3072, "main": 11264, "work": 3072, "pour": 0}, "recursion counts once"
    assert data["times"] == ["2026-11-21T10:00:01+00:00"] and data["period"] == 1
    assert data["types"]["alloc_space"] == "bytes"
    for options, kind in (((), "inuse_space"), (("--alloc",), "alloc_space"), (("--objects",), "inuse_objects"),
                          (("--alloc", "--objects"), "alloc_objects")):
        check_table(kind, profile, *options)
    assert [line.split()[-2] for line in words(run(profile, "--sort", "cum").stdout)[-4:]] == [
        "main", "grow", "fill", "work"]
    assert "2026-11-21 10:00:01 UTC" in run(profile).stdout
    assert len(words(run(profile, "-n", 1).stdout)) == len(words(run(profile).stdout)) - 3


def test_what_was_in_use_at_the_peak(tmp_path):
    """A profile without this sample type is refused, and so are two options that choose one."""
    making = Making((*TYPES, ("peak_objects", "count"), ("peak_space", "bytes")))
    making.stack(named("fill", "main"), 10, 4096, 4, 1024, 8, 3072)
    making.stack(named("grow", "main"), 1, 8192, 1, 8192, 0, 0)
    path = making.write(tmp_path / "peak.pb.gz")
    assert words(run(path, "--peak", "-n", 1).stdout)[-1] == "3 KiB 100.0 % 3 KiB 100.0 % 8 fill /src/a.c:1"
    assert words(run(path, "--peak", "--objects", "-n", 1).stdout)[-1] == "8 100.0 % 8 100.0 % fill /src/a.c:1"
    none, both = run(known().write(tmp_path / "none.pb.gz"), "--peak"), run(path, "--peak", "--alloc")
    assert none.exit_code == 1 and "peak_space" in none.stderr
    assert both.exit_code == 2 and "--alloc" in both.stderr and "--peak" in both.stderr


def test_lines_and_stacks(tmp_path):
    profile = known().write(tmp_path / "known.pb.gz")
    lines = {(site["name"], site["where"]): site["flat"]["inuse_space"] for site in told(profile, "--lines")["sites"]}
    assert lines["fill", "/src/a.c:8"] == 2048 and lines["fill", "/src/a.c:7"] == 1024
    assert lines["grow", "/src/a.c:3"] == 8192 and lines["grow", "/src/a.c:4"] == 0
    data = told(profile, "--focus", "grow", "--lines")
    assert data["selected"]["inuse_space"] == 8192 and data["totals"]["inuse_space"] == 11264
    assert [(frame["name"], frame["line"]) for frame in data["stacks"][0]["frames"]] == [
        ("grow", 3), ("grow", 4), ("grow", 4), ("main", 31)]


def test_focus_ignore_and_hide(tmp_path):
    profile = known().write(tmp_path / "known.pb.gz")

    def names(*arguments):
        return {site["name"] for site in told(profile, *arguments)["sites"]}
    assert names("--focus", "^work$") == {"fill", "pour", "main", "work"}
    assert names("--focus", "^work$", "--ignore", "pour") == {"fill", "main", "work"}
    assert flat(told(profile, "--hide", "^grow$")) == {"main": 8192, "fill": 3072}
    assert flat(told(profile, "--focus", "/src/a.c")) == {"grow": 8192, "fill": 3072}


def test_tree(tmp_path):
    profile = known().write(tmp_path / "known.pb.gz")
    lines = [line for line in run(profile, "--tree", "--alloc", "--min", 0.5).stdout.splitlines()
             if line.split()[3:4] == ["%"]]
    assert [" ".join(line.split()) for line in lines] == [
        "1.014 MiB 100.0 % all", "1.014 MiB 100.0 % main", "1.006 MiB 99.2 % work", "1 MiB 98.7 % pour",
        "6 KiB 0.6 % fill", *["8 KiB 0.8 % grow"] * 3]
    depth = {line.split()[-1]: line.index(line.split()[-1]) for line in lines}
    assert depth["all"] < depth["main"] < depth["work"] < depth["pour"] == depth["fill"]
    assert depth["grow"] == depth["work"]
    few = run(profile, "--tree", "--alloc").stdout
    assert "fill" not in few and "grow" not in few and "pour" in few


def test_several_files_are_added_up(tmp_path):
    profile = known().write(tmp_path / "known.pb.gz")
    other = Making().stack(named("fill:7", "work:20", "main:30"), 1, 100, 1, 1024).write(tmp_path / "b", packed=False)
    assert flat(told(profile, other)) == {"grow": 8192, "fill": 4096}


def test_a_difference(tmp_path):
    profile, later = known().write(tmp_path / "known.pb.gz"), known()
    later.profile.sample[0].value[:] = [20, 8192, 14, 5120]
    del later.profile.sample[3]
    after = later.write(tmp_path / "after.pb.gz")
    data = told(after, "--diff", profile)
    assert flat(data) == {"grow": -8192, "fill": 4096} and data["totals"]["inuse_space"] == -4096
    assert words(run(after, "--diff", profile, "-n", 2).stdout)[-2:] == [
        "-8 KiB -72.7 % -8 KiB -72.7 % -1 grow /src/a.c:3", "+4 KiB 36.4 % +4 KiB 36.4 % +10 fill /src/a.c:7"]
    assert set(told(profile, "--diff", profile)["totals"].values()) == {0}
    tree = run(after, "--diff", profile, "--tree").stdout
    assert "-8 KiB" in tree and "+4 KiB" in tree


def test_a_difference_to_an_older_build(tmp_path):
    """A profile of a HAKMEM that knew fewer sample types, and a later one of a HAKMEM that knows more."""
    making, later = Making(), Making((*TYPES_WITH_LIVES, ("peak_objects", "count"), ("own_freed_objects", "count")))
    making.stack(named("fill", "main"), 100, 1000, 20, 200)
    making.stack(named("keep", "main"), 5, 500, 5, 500)
    later.stack(named("fill", "main"), 130, 1300, 30, 300, 0, 0, 31, 0, size=10)
    later.stack(named("gone", "main"), 0, 0, 0, 0, 70, 5000, 0, 0, lived_from=64)
    later.stack(named("keep", "main"), 5, 500, 5, 500, 0, 0, 5, 0, size=100)
    older, newer = making.write(tmp_path / "older"), later.write(tmp_path / "newer")
    for after, base, sign in ((newer, older, 1), (older, newer, -1)):
        done = run(after, "--diff", base)
        assert done.exit_code == 0 and all(name in done.stderr for name in (
            "freed_objects", "lifetime", "peak_objects", "own_freed_objects")), done.output
        data = told(after, "--diff", base)
        assert data["types"] == dict(TYPES)
        assert data["totals"] == {"alloc_objects": 30 * sign, "alloc_space": 300 * sign, "inuse_objects": 10 * sign,
                                  "inuse_space": 100 * sign}
        assert flat(data) == {"fill": 100 * sign} and "gone" not in {site["name"] for site in data["sites"]}
    done = run(newer, "--diff", older, "--peak", "--objects")
    assert done.exit_code == 1 and "peak_objects" in done.stderr


def test_frames_that_the_profile_drops(tmp_path):
    making = Making().stack(named("pool_take", "wrap_alloc", "user", "main"), 1, 1, 1, 64)
    making.stack(named("wrap_alloc"), 1, 1, 1, 32)
    making.profile.drop_frames = making.text("wrap_.*|pool_.*")
    data = told(making.write(tmp_path / "a"))
    assert [[frame["name"] for frame in stack["frames"]] for stack in data["stacks"]] == [
        ["user", "main"], ["wrap_alloc"]]


def test_the_allocators_own_frames_are_no_site(tmp_path):
    making = Making()
    making.mapping(0x1000, 0x2000, 0, "/opt/libhakmem.so.0")
    making.mapping(0x3000, 0x4000, 0x500, "/gone/app")
    making.stack([0x1100, 0x1200, 0x3010, 0x1300, 0x9999], 1, 1, 1, 64)
    done = run(making.write(tmp_path / "a"), "--json", "--notes")
    (stack,) = json.loads(done.stdout)["stacks"]
    assert [frame["name"] for frame in stack["frames"]] == ["app+0x510", "libhakmem.so.0+0x300", "0x9999"]
    assert "/gone/app" in done.stderr and "/opt/libhakmem.so.0" in done.stderr


def test_odd_profiles(tmp_path):
    """Nothing in use, stacks without frames, and a sample type that HAKMEM does not know."""
    freed = Making().stack(named("a", "main"), 5, 50, 0, 0).write(tmp_path / "freed")
    assert run(freed).exit_code == run(freed, "--diff", freed).exit_code == 0 and flat(told(freed)) == {}
    assert flat(told(Making().stack([], 1, 10, 1, 10).write(tmp_path / "a"))) == {"(no stack)": 10}
    other = Making((*TYPES, ("contentions", ""))).stack(named("a"), 1, 2, 3, 4, 5).write(tmp_path / "b")
    assert told(other)["totals"]["contentions"] == 5 and "contentions 5" in words(run(other).stdout)


def test_the_checkouts_command(tmp_path):
    profile = known().write(tmp_path / "known.pb.gz")
    done = blackbox.run([blackbox.REPOSITORY / "hakmem", "heap", profile, "--json"], timeout=300)
    assert done.status == 0 and json.loads(done.stdout) == told(profile), done.report()
    done = blackbox.run([blackbox.REPOSITORY / "hakmem", "heap", tmp_path / "none"])
    assert (done.status, done.stdout) == (1, "") and f"{tmp_path}/none" in done.stderr and os.strerror(2) in done.stderr
