"""Protects labels of samples: shown, filtered by, and used in place of sites."""

import json
import re

import pytest
from making import TYPES_WITH_LIVES, Making, known, named, run

from hakmem.heap.page import page_data
from hakmem.heap.stacks import add_up


def labelled(scale=1, extra=()):
    """Two tenants and no tenant, and one sample with a number."""
    making = Making(TYPES_WITH_LIVES)

    def add(names, kept, labels, freed=0):
        making.stack(named(*names), scale * kept, scale * kept * 100, scale * kept, scale * kept * 100, freed,
                     7 * freed)
        for key, value in labels:
            if isinstance(value, str):
                making.profile.sample[-1].label.add(key=making.text(key), str=making.text(value))
            else:
                making.profile.sample[-1].label.add(key=making.text(key), num=value, num_unit=making.text("rows"))
    add(("fill", "work", "main"), 50, [("tenant", "a"), ("size", 7)])
    add(("fill", "work", "main"), 30, [("tenant", "b")])
    add(("pour", "work", "main"), 5, [("tenant", "b")])
    add(("pour", "main"), 15, [])
    for each in extra:
        add(*each)
    making.stack(named("fill", "work", "main"), 0, 0, 0, 0, 10, 100, lived_from=4)
    return making


@pytest.fixture
def profile(tmp_path):
    return labelled().write(tmp_path / "labelled.pb.gz")


def lines(done):
    assert done.exit_code == 0, done.output
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def test_what_each_value_has(profile):
    found = lines(run(profile, "--by-label", "tenant"))
    assert found[found.index("Bytes in use by tenant"):] == [
        "Bytes in use by tenant", "flat share objects tenant most at", "4.883 KiB 50.0 % 50 a fill",
        "3.418 KiB 35.0 % 35 b fill",
        "1.465 KiB 15.0 % 15 (none) pour"]
    assert "labels size (1), tenant (2)" in found
    assert lines(run(profile, "--by-label", "size",
                     "--objects"))[-2:] == ["50 50.0 % (none) fill", "50 50.0 % 7 rows fill"]
    assert "Bytes in use by tenant, the first 1 of 3 values" in lines(run(profile, "--by-label", "tenant", "-n", 1))


def test_sites_tell_theirs(profile):
    found = lines(run(profile))
    assert any(
        re.fullmatch(r"7.812 KiB 80.0 % 7.812 KiB 80.0 % 80 \S+ ms fill size=7 rows tenant=a,b .*", line)
        for line in found), found
    assert any(re.fullmatch(r"1.953 KiB .* pour tenant=b .*", line) for line in found), found
    many = labelled(extra=[(("fill", "main"), 1, [("tenant", name)]) for name in "cdef"])
    assert any("tenant=a,b,c,..." in line for line in lines(run(many.write(profile.with_name("many")))))
    assert not any("labels" in line for line in lines(run(known().write(profile.with_name("none")))))


@pytest.mark.parametrize("wanted, total", [(["tenant=a"], 50), (["tenant=b"], 35), (["tenant"], 85),
                                           (["tenant=a", "tenant=b"], 85), (["tenant=b", "size"], 0),
                                           (["tenant=a", "size=7"], 50), (["size=7 rows"], 50), (["tenant="], 0),
                                           (["tenant=A"], 0)])
def test_filters(profile, wanted, total):
    done = run(profile, "--json", *[word for one in wanted for word in ("--label", one)])
    if total == 0:
        assert done.exit_code == 1 and "no stack is left by --focus, --ignore and --label" in done.stderr
        return
    data = json.loads(done.stdout)
    assert data["selected"]["inuse_objects"] == total and data["totals"]["inuse_objects"] == 100
    assert data["selected"]["freed_objects"] == 0  # lifetimes, too, are only of samples with the label


def test_values_stand_above_stacks(profile):
    told = run(profile, "--by-label", "tenant", "--tree").stdout.partition("outermost function in\n")[2]
    tree = [line.split() for line in told.splitlines()]
    assert [line[-1] for line in tree if "%" in line and line[0] != "Left"] == [
        "all", "tenant=a", "main", "work", "fill", "tenant=b", "main", "work", "fill", "pour", "tenant=(none)",
        "main", "pour"]


def test_comparison(profile, tmp_path):
    later = labelled(2, [(("fill", "main"), 7, [("tenant", "new")])]).write(tmp_path / "later.pb.gz")
    found = lines(run(later, "--diff", profile, "--by-label", "tenant", "--objects"))
    assert found[-4:] == ["+50 50.0 % a fill", "+35 35.0 % b fill", "+15 15.0 % (none) pour", "+14 14.0 % new fill"]


def test_json_has_them(profile):
    data = json.loads(run(profile, "--json", "--by-label", "tenant").stdout)
    assert {value: row["inuse_objects"] for value, row in data["by_label"].items()} == {"a": 50, "b": 35, "(none)": 15}
    assert [stack.get("labels") for stack in data["stacks"]] == [
        {"size": "7 rows", "tenant": "a"}, {"tenant": "b"}, {"tenant": "b"}, None, None]


def test_the_page(profile, tmp_path):
    made = labelled().profile
    data = page_data(add_up({"this": made}), 3, False)
    column = {data["texts"][site[0]]: data["texts"][site[5][3]] for site in data["sites"]}
    assert column["fill"] == "size=7 rows tenant=a,b" and column["pour"] == "tenant=b"
    assert page_data(add_up({"this": known().profile}), 3, False)["sites"][0][4:] == [None, None, None]
    page = tmp_path / "page.html"
    assert run(profile, "--html", page, "--by-label", "tenant").exit_code == 0
    assert '<th scope="col" class="text">Labels</th>' in page.read_text() and "tenant=(none)" in page.read_text()


def test_what_is_refused(profile, tmp_path):
    none = known().write(tmp_path / "none")
    for arguments, status, message in [
        ((profile, "--by-label", "user"), 1, "no sample has the label user; there are: size, tenant"),
        ((profile, "--label", "user=1"), 1, "no sample has the label user"),
        ((none, "--by-label", "tenant"), 1, "none has any: the program puts labels in force by hak_profile_label()"),
        ((profile, "--label", "=1"), 2, "'=1' is neither KEY=VALUE nor KEY"),
        ((profile, "--by-label", "tenant", "--lifetimes"), 2, "--by-label and --lifetimes are shown one at a time"),
    ]:
        done = run(*arguments)
        assert done.exit_code == status and message in " ".join(done.stderr.split()), done.output


def test_lost_labels_are_told(tmp_path):
    making = labelled(extra=[(("fill", "main"), 1, [("hakmem.labels", "lost")])])
    done = run(making.write(tmp_path / "lost"))
    assert done.exit_code == 0 and "hakmem heap: some samples have lost their labels (hakmem.labels=lost)" in done.stderr


def test_they_stay_with_names_put_in(profile, tmp_path):
    output = tmp_path / "symbolized"
    assert run(profile, "--symbolized", output).exit_code == 0
    assert json.loads(run(output, "--json", "--by-label", "tenant").stdout)["by_label"]["a"]["inuse_objects"] == 50


def test_hostile_texts(tmp_path):
    making = Making().stack(named("a"), 1, 2, 1, 2)
    making.profile.sample[0].label.add(key=making.text("k\x1b[31m"), str=making.text("v\n</script>"))
    path = making.write(tmp_path / "hostile")
    assert "\x1b" not in run(
        path).stdout and "k\N{REPLACEMENT CHARACTER}[31m=v\N{REPLACEMENT CHARACTER}</script>" in run(path).stdout
    page = tmp_path / "page.html"
    assert run(path, "--html", page).exit_code == 0 and "v\N{REPLACEMENT CHARACTER}</script>" not in page.read_text()
