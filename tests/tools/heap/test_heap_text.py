"""Protects the text printed for profiles with known numbers."""

import json

import blackbox
import pytest
from making import TYPES, TYPES_WITH_LIVES, Making, known, named, run


def test_what_was_in_use_at_the_peak(tmp_path):
    """A profile without this sample type is refused, and so are two options that choose one."""
    making = Making((*TYPES, ("peak_objects", "count"), ("peak_space", "bytes")))
    making.stack(named("fill", "main"), 10, 4096, 4, 1024, 8, 3072)
    making.stack(named("grow", "main"), 1, 8192, 1, 8192, 0, 0)
    path = making.write(tmp_path / "peak.pb.gz")
    assert told(run(path, "--peak", "-n", 1).stdout) == ["3 KiB 100.0 % 3 KiB 100.0 % 8 fill /src/a.c:1"]
    assert told(run(path, "--peak", "--objects", "-n", 1).stdout) == ["8 100.0 % 8 100.0 % fill /src/a.c:1"]
    assert "Bytes in use at the peak, the first 1 of " in run(path, "--peak", "-n", 1).stdout
    none = run(known().write(tmp_path / "none.pb.gz"), "--peak")
    assert none.exit_code == 1 and "no such sample type: peak_space" in none.output
    both = run(path, "--peak", "--alloc")
    assert both.exit_code == 2 and "--alloc and --peak are shown one at a time" in both.output


@pytest.fixture
def profile(tmp_path):
    return known().write(tmp_path / "known.pb.gz")


def rows(output, head="flat "):
    """The lines of the table of sites, as lists of cells."""
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if line.lstrip().startswith(head))
    return [[cell for cell in line.replace(" B ", "_B ").replace("iB ", "iB  ").split("  ") if cell.strip()]
            for line in lines[start + 1:] if line.strip()]


def told(output):
    """(flat, cum, site) of each row."""
    found = []
    for cells in rows(output):
        words = " ".join(cell.strip() for cell in cells).replace("_", " ").split()
        found.append(words)
    return [" ".join(words) for words in found]


def test_what_is_in_use(profile):
    done = run(profile)
    assert done.exit_code == 0, done.output
    assert told(done.stdout) == [
        "8 KiB 72.7 % 8 KiB 72.7 % 1 grow /src/a.c:3", "3 KiB 27.3 % 3 KiB 27.3 % 6 fill /src/a.c:8,7",
        "0 B 0.0 % 11 KiB 100.0 % 0 main /src/a.c:31,30", "0 B 0.0 % 3 KiB 27.3 % 0 work /src/a.c:20"]
    head = " ".join(done.stdout.partition("Bytes in use\n")[0].split())
    for text in ("taken 2026-11-21 10:00:01 UTC", "sampled every 512 KiB on average", "objects allocated 1,013",
                 "bytes allocated 1.014 MiB", "objects in use 7", "bytes in use 11 KiB", "stacks 4"):
        assert text in head


def test_what_was_allocated_and_objects(profile):
    assert told(run(profile, "--alloc", "-n", 1).stdout) == ["1 MiB 98.7 % 1 MiB 98.7 % 1,000 pour /src/a.c:9"]
    assert told(run(profile, "--objects", "-n", 2).stdout) == [
        "6 85.7 % 6 85.7 % fill /src/a.c:7,8", "1 14.3 % 1 14.3 % grow /src/a.c:3"]
    assert told(run(profile, "--alloc", "--objects", "-n", 1).stdout) == ["1,000 98.7 % 1,000 98.7 % pour /src/a.c:9"]


def test_cumulative_order_counts_recursion_once(profile):
    assert [line.split()[-2] for line in told(run(profile, "--sort", "cum").stdout)] == [
        "main", "grow", "fill", "work"]


def test_lines(profile):
    found = told(run(profile, "--lines").stdout)
    assert "2 KiB 18.2 % 2 KiB 18.2 % 2 fill /src/a.c:8" in found
    assert "1 KiB 9.1 % 1 KiB 9.1 % 4 fill /src/a.c:7" in found
    assert "0 B 0.0 % 8 KiB 72.7 % 0 grow /src/a.c:4" in found


def test_focus_ignore_and_hide(profile):
    def names(*arguments):
        return [line.split()[-2] for line in told(run(profile, *arguments).stdout)]
    assert names("--focus", "^work$") == ["fill", "main", "work"]
    assert names("--alloc", "--focus", "^work$") == ["pour", "fill", "main", "work"]
    assert names("--alloc", "--focus", "^work$", "--ignore", "pour") == ["fill", "main", "work"]
    assert told(run(profile, "--hide", "^grow$").stdout)[0] == "8 KiB 72.7 % 11 KiB 100.0 % 1 main /src/a.c:31"
    assert told(run(profile, "--focus", "/src/a.c", "-n", 1).stdout) == ["8 KiB 72.7 % 8 KiB 72.7 % 1 grow /src/a.c:3"]


def test_tree(profile):
    lines = run(profile, "--tree", "--alloc", "--min", 0.5).stdout.partition("function in\n")[2].splitlines()
    assert [line.split() for line in lines] == [
        ["1.014", "MiB", "100.0", "%", "all"], ["1.014", "MiB", "100.0", "%", "main"],
        ["1.006", "MiB", "99.2", "%", "work"], ["1", "MiB", "98.7", "%", "pour"], ["6", "KiB", "0.6", "%", "fill"],
        ["8", "KiB", "0.8", "%", "grow"], ["8", "KiB", "0.8", "%", "grow"], ["8", "KiB", "0.8", "%", "grow"]]
    depth = {line.split()[-1]: line.index(line.split()[-1]) for line in lines}
    assert depth["all"] < depth["main"] < depth["work"] < depth["pour"] == depth["fill"]
    assert depth["grow"] == depth["work"]
    few = run(profile, "--tree", "--alloc").stdout
    assert "fill" not in few and "Left out: 2 branches below 1 % of the total" in few


def test_several_files_are_added_up(profile, tmp_path):
    other = Making().stack(named("fill:7", "work:20", "main:30"), 1, 100, 1, 1024).write(tmp_path / "b", packed=False)
    done = run(profile, other, "--focus", "fill")
    assert "4 KiB 33.3 % 4 KiB 33.3 % 7 fill /src/a.c:7,8" in told(done.stdout)


def test_a_difference(profile, tmp_path):
    later = known()
    later.profile.sample[0].value[:] = [20, 8192, 14, 5120]
    del later.profile.sample[3]
    after = later.write(tmp_path / "after.pb.gz")
    done = run(after, "--diff", profile)
    assert done.exit_code == 0, done.output
    assert told(done.stdout)[:2] == ["-8 KiB -72.7 % -8 KiB -72.7 % -1 grow /src/a.c:3",
                                     "+4 KiB 36.4 % +4 KiB 36.4 % +10 fill /src/a.c:7"]
    assert "bytes in use -4 KiB" in " ".join(done.stdout.split())
    same = run(profile, "--diff", profile, "--json")
    assert set(json.loads(same.stdout)["totals"].values()) == {0}
    tree = run(after, "--diff", profile, "--tree").stdout
    assert "-8 KiB" in tree and "+4 KiB" in tree


@pytest.fixture
def from_an_older_build(tmp_path):
    """A profile of a HAKMEM that knew fewer sample types, and a later one of a HAKMEM that knows more."""
    older, newer = Making(), Making((*TYPES_WITH_LIVES, ("peak_objects", "count"), ("own_freed_objects", "count")))
    older.stack(named("fill", "main"), 100, 1000, 20, 200)
    older.stack(named("keep", "main"), 5, 500, 5, 500)
    newer.stack(named("fill", "main"), 130, 1300, 30, 300, 0, 0, 31, 0, size=10)
    newer.stack(named("gone", "main"), 0, 0, 0, 0, 70, 5000, 0, 0, lived_from=64)
    newer.stack(named("keep", "main"), 5, 500, 5, 500, 0, 0, 5, 0, size=100)
    return older.write(tmp_path / "older"), newer.write(tmp_path / "newer")


def test_a_difference_to_an_older_build(from_an_older_build):
    older, newer = from_an_older_build
    said = "freed_objects, lifetime, peak_objects, own_freed_objects, sizes of blocks, which only"
    for after, base, sign, whose in ((newer, older, 1, "the profile"), (older, newer, -1, "the base")):
        done = run(after, "--diff", base)
        assert done.exit_code == 0, done.output
        assert done.stderr == f"hakmem heap: not compared: {said} {whose} has\n"
        change, share = ("+100 B", "14.3 %") if sign > 0 else ("-100 B", "-12.5 %")
        assert told(done.stdout)[0] == f"{change} {share} {change} {share} {10 * sign:+} fill /src/a.c:1"
        data = json.loads(run(after, "--diff", base, "--json").stdout)
        assert data["types"] == dict(TYPES)
        assert data["totals"] == {"alloc_objects": 30 * sign, "alloc_space": 300 * sign, "inuse_objects": 10 * sign,
                                  "inuse_space": 100 * sign}
        assert "gone" not in {site["name"] for site in data["sites"]}
    done = run(newer, "--diff", older, "--peak", "--objects")
    assert done.exit_code == 1 and "no such sample type: peak_objects; the profile has alloc_objects" in done.stderr


def test_json(profile):
    data = json.loads(run(profile, "--json", "--focus", "grow", "--lines").stdout)
    assert data["totals"] == {"alloc_objects": 1013, "alloc_space": (1 << 20) + 14336, "inuse_objects": 7,
                              "inuse_space": 11264}
    assert data["selected"]["inuse_space"] == 8192 and data["types"]["alloc_space"] == "bytes"
    assert data["times"] == ["2026-11-21T10:00:01+00:00"] and data["period"] == 512 * 1024
    assert [(frame["name"], frame["line"]) for frame in data["stacks"][0]["frames"]] == [
        ("grow", 3), ("grow", 4), ("grow", 4), ("main", 31)]
    (leaf,) = (site for site in data["sites"] if site["flat"]["inuse_space"])
    assert (leaf["name"], leaf["where"], leaf["cum"]["inuse_space"]) == ("grow", "/src/a.c:3", 8192)


def test_frames_that_the_profile_drops(tmp_path):
    making = Making().stack(named("pool_take", "wrap_alloc", "user", "main"), 1, 1, 1, 64)
    making.stack(named("wrap_alloc"), 1, 1, 1, 32)
    making.profile.drop_frames = making.text("wrap_.*|pool_.*")
    data = json.loads(run(making.write(tmp_path / "a"), "--json").stdout)
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
    assert "/gone/app: no such file; 1 address without names" in done.stderr
    assert "/opt/libhakmem.so.0: no such file; 3 addresses without names" in done.stderr


def test_nothing_in_use_is_said(tmp_path):
    path = Making().stack(named("a", "main"), 5, 50, 0, 0).write(tmp_path / "freed")
    assert run(path).stdout.endswith("\nBytes in use: none\n")
    assert "Bytes in use, change: none" in run(path, "--diff", path).stdout


def test_stacks_without_frames_are_counted(tmp_path):
    path = Making().stack([], 1, 10, 1, 10).write(tmp_path / "a")
    assert told(run(path).stdout)[0].startswith("10 B 100.0 % 10 B 100.0 % 1 (no stack)")


def test_other_types_can_be_there_too(tmp_path):
    making = Making((*TYPES, ("contentions", "")))
    path = making.stack(named("a"), 1, 2, 3, 4, 5).write(tmp_path / "a")
    assert "contentions 5" in " ".join(run(path).stdout.split())


def test_the_checkouts_command(profile, tmp_path):
    done = blackbox.run([blackbox.REPOSITORY / "hakmem", "heap", profile, "--json"], timeout=300)
    assert done.status == 0, done.report()
    assert json.loads(done.stdout) == json.loads(run(profile, "--json").stdout)
    done = blackbox.run([blackbox.REPOSITORY / "hakmem", "heap", tmp_path / "none"])
    assert (done.status, done.stdout) == (1, "")
    assert done.stderr == f"Error: {tmp_path}/none: cannot be read: No such file or directory\n"
