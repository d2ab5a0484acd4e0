"""Protects sizes of blocks in profiles whose samples have the label bytes, as HAKMEM's and Go's have."""

import json

from making import TYPES_WITH_LIVES, Making, known, named, run, with_sizes, words


def sizes_of(site, *arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    (found,) = (one for one in json.loads(done.stdout)["sites"] if one["name"] == site)
    return found.get("sizes")


def test_each_size_of_a_site(tmp_path):
    profile = with_sizes().write(tmp_path / "sizes")
    fill = sizes_of("fill", profile)
    assert {size: (row["inuse_objects"], row["inuse_space"], row["alloc_objects"]) for size, row in fill.items()} == {
        "64": (20, 1280, 30), "1024": (5, 5120, 5)}
    assert len(sizes_of("wide", profile)) == 40
    # The table: a line a size, with its share of the site's bytes as a bar. Many sizes become powers of two.
    lines = words(run(profile, "--sizes").stdout)
    at = lines.index("6.25 KiB 32.8 % 25 fill")
    assert lines[at + 1:at + 3] == ["1.25 KiB 20.0 % 20 64 B ████", "5 KiB 80.0 % 5 1 KiB ████████████████"]
    at = lines.index("12.81 KiB 67.2 % 40 wide")
    assert [(int(line.split(" % ")[1].split()[0]), line.rstrip(" █").rpartition(" to ")[2])
            for line in lines[at + 1:at + 8]] == [(1, "16 B"), (1, "32 B"), (2, "64 B"), (4, "128 B"), (8, "256 B"),
                                                  (16, "512 B"), (8, "1 KiB")]
    lines = words(run(profile, "--sizes", "--alloc", "--objects", "--focus", "fill").stdout)
    assert lines[lines.index("35 46.7 % fill") + 1].startswith("30 85.7 % 64 B ")


def test_a_difference(tmp_path):
    profile, later = with_sizes().write(tmp_path / "sizes"), with_sizes()
    later.profile.sample[0].value[:] = [40, 2560, 30, 1920, 0, 0]
    fill = sizes_of("fill", later.write(tmp_path / "later"), "--diff", profile)
    assert {size: row["inuse_space"] for size, row in fill.items() if row["inuse_space"]} == {"64": 640}


def test_labels_that_look_alike(tmp_path):
    """A label without a unit is the size. A label of the program may have the same name."""
    assert set(sizes_of("fill", with_sizes("").write(tmp_path / "plain"))) == {"64", "1024"}
    making = Making(TYPES_WITH_LIVES)
    for size, lived_from in ((64, None), (None, 0)):
        making.stack(named("fill", "main"), *((2, 128, 2, 128, 0, 0) if size else (0, 0, 0, 0, 3, 0)))
        making.profile.sample[-1].label.add(key=making.text("bytes"), num=4096, num_unit=making.text("bytes"))
        if size:
            making.profile.sample[-1].label.add(key=making.text("bytes"), num=size, num_unit=making.text("bytes"))
        else:
            making.profile.sample[-1].label.add(key=making.text("lifetime_from"), num=lived_from,
                                                num_unit=making.text("milliseconds"))
    stacks = json.loads(run(making.write(tmp_path / "alike"), "--json").stdout)["stacks"]
    assert [(stack.get("size"), stack["labels"]) for stack in stacks] == [
        (64, {"bytes": "4096 bytes"}), (None, {"bytes": "4096 bytes"})]


def test_sizes_above_the_classes_are_rounded_down(tmp_path):
    making = Making().stack(named("grow", "main"), 1, 3 << 20, 1, 3 << 20, size=5 << 19)
    assert "2.5 MiB+" in run(making.write(tmp_path / "huge"), "--sizes").stdout


def test_a_profile_without_them(tmp_path):
    path = known().write(tmp_path / "known")
    done = run(path, "--sizes")
    assert done.exit_code == 1 and not done.stdout and "bytes" in done.stderr
    assert sizes_of("grow", path) is None
    assert run(path, "--sizes", "--tree").exit_code == 2
