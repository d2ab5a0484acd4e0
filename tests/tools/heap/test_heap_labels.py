"""Protects labels of samples: shown, filtered by, and used in place of sites."""

import json

import pytest
from making import TYPES_WITH_LIVES, Making, known, named, run, words

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


def told(*arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_what_each_value_has(profile):
    data = told(profile, "--by-label", "tenant")
    assert {value: row["inuse_objects"] for value, row in data["by_label"].items()} == {"a": 50, "b": 35, "(none)": 15}
    assert [stack.get("labels") for stack in data["stacks"]] == [
        {"size": "7 rows", "tenant": "a"}, {"tenant": "b"}, {"tenant": "b"}, None, None]
    # The tables: values with the figures above and the site that has most of each, and sites with their labels.
    assert words(run(profile, "--by-label", "tenant").stdout)[-3:] == [
        "4.883 KiB 50.0 % 50 a fill", "3.418 KiB 35.0 % 35 b fill", "1.465 KiB 15.0 % 15 (none) pour"]
    assert len(words(run(profile, "--by-label", "tenant", "-n", 1).stdout)) == len(words(run(
        profile, "--by-label", "tenant").stdout)) - 2
    (fill,) = (line for line in words(run(profile).stdout) if " fill " in line)
    assert "size=7 rows tenant=a,b" in fill and "80.0 %" in fill


def test_filters(profile):
    for wanted, total in ((["tenant=a"], 50), (["tenant=b"], 35), (["tenant"], 85), (["tenant=a", "tenant=b"], 85),
                          (["tenant=b", "size"], 0), (["tenant=a", "size=7"], 50), (["size=7 rows"], 50),
                          (["tenant="], 0), (["tenant=A"], 0)):
        options = [word for one in wanted for word in ("--label", one)]
        if total == 0:
            done = run(profile, "--json", *options)
            assert done.exit_code == 1 and not done.stdout and "--label" in done.stderr, wanted
            continue
        data = told(profile, *options)
        assert data["selected"]["inuse_objects"] == total and data["totals"]["inuse_objects"] == 100, wanted
        assert data["selected"]["freed_objects"] == 0  # lifetimes, too, are only of samples with the label


def test_values_stand_above_stacks(profile):
    tree = [line.split() for line in run(profile, "--by-label", "tenant", "--tree").stdout.splitlines()]
    assert [line[-1] for line in tree if line[3:4] == ["%"]] == [
        "all", "tenant=a", "main", "work", "fill", "tenant=b", "main", "work", "fill", "pour", "tenant=(none)",
        "main", "pour"]


def test_comparison(profile, tmp_path):
    later = labelled(2, [(("fill", "main"), 7, [("tenant", "new")])]).write(tmp_path / "later.pb.gz")
    rows = told(later, "--diff", profile, "--by-label", "tenant")["by_label"]
    assert {value: row["inuse_objects"] for value, row in rows.items()} == {"a": 50, "b": 35, "(none)": 15, "new": 14}


def test_the_page(profile, tmp_path):
    data = page_data(add_up({"this": labelled().profile}), 3, False)
    column = {data["texts"][site[0]]: data["texts"][site[5][3]] for site in data["sites"]}
    assert column["fill"] == "size=7 rows tenant=a,b" and column["pour"] == "tenant=b"
    assert page_data(add_up({"this": known().profile}), 3, False)["sites"][0][4:7] == [None, None, None]
    page = tmp_path / "page.html"
    assert run(profile, "--html", page, "--by-label", "tenant").exit_code == 0
    assert "tenant=(none)" in page.read_text()


def test_what_is_refused(profile, tmp_path):
    none = known().write(tmp_path / "none")
    for arguments, status, names in [
        ((profile, "--by-label", "user"), 1, ("user", "size, tenant")), ((profile, "--label", "user=1"), 1, ("user",)),
        ((none, "--by-label", "tenant"), 1, ("hak_profile_label()",)), ((profile, "--label", "=1"), 2, ("'=1'",)),
        ((profile, "--by-label", "tenant", "--lifetimes"), 2, ("--by-label", "--lifetimes")),
    ]:
        done = run(*arguments)
        assert done.exit_code == status and not done.stdout and all(name in done.stderr for name in names), done.output


def test_lost_labels_are_told(tmp_path):
    making = labelled(extra=[(("fill", "main"), 1, [("hakmem.labels", "lost")])])
    done = run(making.write(tmp_path / "lost"))
    assert done.exit_code == 0 and "hakmem.labels=lost" in done.stderr


def test_they_stay_with_names_put_in(profile, tmp_path):
    output = tmp_path / "symbolized"
    assert run(profile, "--symbolized", output).exit_code == 0
    assert told(output, "--by-label", "tenant")["by_label"]["a"]["inuse_objects"] == 50


def test_hostile_texts(tmp_path):
    making = Making().stack(named("a"), 1, 2, 1, 2)
    making.profile.sample[0].label.add(key=making.text("k\x1b[31m"), str=making.text("v\n</script>"))
    path, page = making.write(tmp_path / "hostile"), tmp_path / "page.html"
    shown = run(path).stdout
    assert "\x1b" not in shown and "k\N{REPLACEMENT CHARACTER}[31m=v\N{REPLACEMENT CHARACTER}</script>" in shown
    assert run(path, "--html", page).exit_code == 0 and "v\N{REPLACEMENT CHARACTER}</script>" not in page.read_text()
