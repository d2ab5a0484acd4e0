"""Protects HAKMEM's statistics: each figure against an independent measure, each format by an independent parser."""

import errno
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

import blackbox
from messages import numbers

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def shadow(compiled):
    """The program with its own record, linked with the library under test."""
    folder = blackbox.LIBRARY_FOLDER
    return compiled(HERE / "shadow.c", f"-L{folder}", "-lhakmem", f"-Wl,-rpath,{folder}")


def show(fmt, env=None, argv=("/bin/true",)):
    """Runs a silent program under HAKMEM_SHOW_STATS, and returns HAKMEM's output."""
    result = blackbox.run(list(argv), preload=blackbox.LIBRARY, env={"HAKMEM_SHOW_STATS": fmt, **(env or {})})
    assert result.status == 0 and result.stdout == "", result.report()
    return result.stderr


def printed(shadow, fmt):
    """The program's own figures, and the text of hak_stats_print."""
    result = blackbox.run([shadow, "print", fmt])
    assert result.status == 0, result.report()
    own, text = result.stdout.split("\n", 1)
    return json.loads(own), text


def check_identity(memory):
    parts = ("live", "cached", "free_in_slab", "retained", "metadata")
    assert memory["mapped"] == sum(memory[part] for part in parts)


# ---- Figures ----


# The purge thread has its own stack, which smaps would include.
@pytest.mark.parametrize(
    "env",
    [
        {},
        {"HAKMEM_MF2_ENABLE": "0"},
        {"HAKMEM_CACHE_BYTES": "16K"},
        {"HAKMEM_THP": "always"},
        {"HAKMEM_PURGE_DELAY": "0"},
        {"HAKMEM_SS_PREWARM": "3"},
        {"HAKMEM_FRONT_STATS": "1"},
        *({"HAKMEM_HEAP_PROFILE": "heap.gz", "HAKMEM_HEAP_PROFILE_RATE": rate} for rate in ("1", "1000", "100000"))
    ])
def test_every_figure_after_every_step(shadow, env, tmp_path):
    if "HAKMEM_HEAP_PROFILE" in env:
        env = {**env, "HAKMEM_HEAP_PROFILE": str(tmp_path / "heap.gz")}
    result = blackbox.run([shadow], env={"HAKMEM_PURGE_THREAD": "never", **env})
    assert result.status == 0, result.report()
    checks, wrong = map(int, re.fullmatch(r"(\d+) checks, (\d+) wrong\n", result.stdout).groups())
    assert checks > 50000 and wrong == 0


# ---- Formats ----


def test_json(shadow):
    own, text = printed(shadow, "json")
    stats = json.loads(text)
    check_identity(stats["memory"])
    assert stats["version"] == 1 and stats["pid"] > 1
    row = next(row for row in stats["classes"] if row["block_size"] == own["usable"])
    assert row["live_blocks"] == own["small"]
    assert stats["pools"]["huge"]["live_blocks"] == own["huge"]
    assert stats["pools"]["huge"]["live_bytes"] == own["huge_bytes"]
    assert sum(row["live_blocks"] * row["block_size"] for row in stats["classes"]) + own["huge_bytes"] \
        == stats["memory"]["live"]
    assert len(stats["superslab_list"]) == stats["memory"]["superslabs"]
    assert sum(heap["live"] for heap in stats["heaps"]) == stats["memory"]["heaps_live"] == 1
    assert stats["counters"]["malloc_coverage"] is None
    assert ("debug_counters" in stats) == (stats["build"] == "debug")


def test_prometheus(shadow):
    own, text = printed(shadow, "prometheus")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(family.documentation and family.type in ("gauge", "counter") for family in families.values())
    values = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
              for family in families.values() for sample in family.samples}
    assert len(values) == sum(len(family.samples) for family in families.values()), "a series is there twice"
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(values) == len(lines)

    def memory(name):
        return values[f"hakmem_memory_{name}_bytes", ()]

    assert memory("mapped") == sum(map(memory, ("live", "cached", "free_in_slab", "retained", "metadata")))
    assert values["hakmem_class_live_blocks", (("size", str(own["usable"])),)] == own["small"]
    assert values["hakmem_pool_live_bytes", (("pool", "huge"),)] == own["huge_bytes"]
    assert values["hakmem_huge_allocated_total", ()] == own["huge"]
    units = families["hakmem_superslab_units"].samples
    assert len(units) == 12 and sum(sample.value for sample in units) == 31 * values["hakmem_memory_superslabs", ()]
    assert sum(sample.value for sample in units if sample.labels["tier"] == "full") == 31 * values[
        "hakmem_memory_superslabs_full", ()]
    assert values["hakmem_heap_profile_bytes", ()] == 0
    assert families["hakmem_refills"].type == "counter"


@pytest.mark.parametrize("fmt", ["text", "json", "prometheus"])
def test_the_heap_profile_in_every_format(fmt, tmp_path):
    """The profile's heap has a name, and its tables are reported."""
    text = show(fmt, {"HAKMEM_HEAP_PROFILE": str(tmp_path / "heap.%p.gz"), "HAKMEM_HEAP_PROFILE_RATE": "1"},
                ("/usr/bin/python3", "-c", "pass"))
    if fmt == "json":
        stats = json.loads(text)
        tables = stats["profile"]["heap_profile"]
        assert [row["kind"] for row in stats["heaps"]].count(3) == 1 and stats["profile"]["heap_profile_samples"] > 0
    elif fmt == "prometheus":
        families = {family.name: family for family in text_string_to_metric_families(text)}
        tables = families["hakmem_heap_profile_bytes"].samples[0].value
        assert [sample.labels["kind"] for sample in families["hakmem_heap_slabs"].samples].count("profile") == 1
    else:
        tables = int(re.search(r"^hakmem: heap profile +(\d+) ", text, re.M)[1])
        assert len(re.findall(r"^hakmem: +\d+ +\d+ profile +\d+", text, re.M)) == 1
    assert tables >= 4096 * 64


def test_text(shadow):
    own, text = printed(shadow, "text")
    memory = dict(re.findall(r"^(mapped|live|cached|free in slabs|retained|metadata) +(\d+) ", text, re.M))
    assert int(memory.pop("mapped")) == sum(map(int, memory.values()))
    assert re.search(rf"^ +{own['usable']} +\d+ +{own['small']} ", text, re.M)
    assert re.search(rf"^ +huge +{own['huge']} +{own['huge']} +{own['huge_bytes']} ", text, re.M)
    assert len(text.splitlines()) < 60 and all(len(line) < 160 for line in text.splitlines())


def test_formats_agree(shadow):
    """The same program in the same state, in three formats."""
    live = [json.loads(printed(shadow, "json")[1])["memory"]["live"],
            int(re.search(r"^live +(\d+)", printed(shadow, "text")[1], re.M)[1]),
            int(re.search(r"^hakmem_memory_live_bytes (\d+)", printed(shadow, "prometheus")[1], re.M)[1])]
    assert len(set(live)) == 1


# ---- At exit ----


@pytest.mark.parametrize("word", ["1", "text", "on", "TEXT"])
def test_show_text(word):
    said = show(word)
    assert re.search(r"^hakmem: mapped +\d+ ", said, re.M)
    assert all(line.startswith("hakmem: ") for line in said.splitlines())


def test_show_json_and_prometheus():
    check_identity(json.loads(show("json"))["memory"])
    assert len(list(text_string_to_metric_families(show("prometheus")))) > 50


def test_show_nothing():
    assert show("0") == "" and show("off") == ""


def test_show_unknown_word():
    (line,) = show("xml").splitlines()
    assert line.startswith("hakmem: HAKMEM_SHOW_STATS=xml ")


def test_file_for_each_process(tmp_path):
    env = {"HAKMEM_STATS_FILE": str(tmp_path / "100%% of %p.json")}
    assert show("json", env, ["/bin/bash", "-c", "/bin/true; /bin/true; :"]) == ""
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    for path in files:
        stats = json.loads(path.read_text())
        assert path.name == f"100% of {stats['pid']}.json"
        check_identity(stats["memory"])


def test_file_is_replaced(tmp_path):
    path = tmp_path / "stats"
    path.write_text("x" * 100000)
    assert show("text", {"HAKMEM_STATS_FILE": str(path)}) == ""
    assert re.search(r"^mapped +\d+ ", path.read_text(), re.M) and "x" * 10 not in path.read_text()


def test_file_that_cannot_be_made_or_written():
    for path, error in (("/no/such/directory/stats", errno.ENOENT), ("/proc", errno.EISDIR),
                        ("/dev/null/stats", errno.ENOTDIR), ("/dev/full", errno.ENOSPC)):
        (line,) = show("json", {"HAKMEM_STATS_FILE": path}).splitlines()
        assert "HAKMEM_STATS_FILE" in line and path in line and numbers(line) == (error,), line


def test_file_without_statistics(tmp_path):
    assert show("0", {"HAKMEM_STATS_FILE": str(tmp_path / "stats")}) == ""
    assert list(tmp_path.iterdir()) == []


# ---- Tables ----


def test_front_table_sums():
    """The table's rows by class sum to the two lines above them."""
    lines = show("0", {"HAKMEM_FRONT_STATS": "1"}, ["/bin/bash", "-c", ":"]).splitlines()
    refilled = int(re.search(r"refills of (\d+) blocks", lines[0])[1])
    lines = [re.sub(r"[\d.]+ %", "", line) for line in lines]
    hits, misses, free_hits, overflows = numbers(lines[1])
    rows = [list(map(int, line.split()[1:])) for line in lines[2:] if re.match(r"hakmem: +\d+ ", line)]
    assert rows and [sum(column) for column in zip(*rows)][1:6] == [hits, misses, free_hits, overflows, refilled]


def test_prewarm_is_counted():
    said = show("0", {"HAKMEM_SS_PREWARM": "3", "HAKMEM_SS_PREWARM_DEBUG": "1"})
    (ready,) = (line for line in said.splitlines() if "prewarm:" in line)
    (lru,) = (line for line in said.splitlines() if "prewarmed" in line)
    assert numbers(ready)[:2] == numbers(lru)[:2] == (3, 3), said


def test_malloc_info_and_stats(compiled):
    """malloc_info's figures equal the exit statistics of the same moment."""
    program = compiled(blackbox.REPOSITORY / "tests/process/programs/contract_info.c")
    result = blackbox.run([program, "500", "100"], preload=blackbox.LIBRARY)
    assert result.status == 0, result.report()
    root = ElementTree.fromstring(result.stdout)
    figures = {name: int(value) for name, value in root.find("hakmem").attrib.items()}
    check_identity(figures)
    assert figures["live"] >= 500 * 112


@pytest.mark.parametrize("env", [{}, {"HAKMEM_PURGE_DELAY": "0"}, {"HAKMEM_HEAP_PROFILE_RATE": "5000"}])
def test_glibcs_figures_while_threads_run(compiled, env, tmp_path):
    """malloc_info and mallinfo2 are consistent at any moment, and malloc_stats prints whole reports."""
    if env.get("HAKMEM_HEAP_PROFILE_RATE"):
        env = {**env, "HAKMEM_HEAP_PROFILE": str(tmp_path / "heap.gz")}
    asked = 500
    result = blackbox.run([compiled(HERE / "beside.c"), asked], preload=blackbox.LIBRARY, env=env)
    assert (result.status, result.stdout) == (0, ""), result.report()
    mapped, *parts = ([int(value) for value in re.findall(rf"^hakmem: {name} +(\d+) ", result.stderr, re.MULTILINE)]
                      for name in ("mapped", "live", "cached", "free in slabs", "retained", "metadata"))
    assert len(mapped) == asked and mapped == [sum(row) for row in zip(*parts, strict=True)]
