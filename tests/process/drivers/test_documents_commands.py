"""Protects the source documents' own commands: each runs as it is written there, and does the work that they name."""

import json
import os
import re
from pathlib import Path

import blackbox
import pytest

BIN = Path(os.environ.get("HAKMEM_BUILD_DIR", blackbox.REPOSITORY / "build/release")) / "bin"
HERE = Path(__file__).parent
KIB = 1024
FIELDS = {"ops", "seconds", "ns_per_op", "soft_faults", "hard_faults", "rss_peak_kib", "rss_delta_kib"}
# What an iteration asks for: sizes and how many of each, with what realloc asks for; the operations; the pages written.
SCENARIOS = {
    "json": ({64 * KIB: 1000}, 2000, 16 * 1000),
    "mir": ({256 * KIB: 100}, 200, 64 * 100),
    "mixed": ({16: 200, 512: 200, 8 * KIB: 200, 128 * KIB: 200, KIB: 200}, 2000, (1 + 1 + 2 + 32 + 1) * 200),
    "string-builder": ({8: 1000, 16: 1000, 32: 1000, 64: 1000}, 5000, 1000),
}


def typed(line, folder, **env):
    """Types a line of the documents in a folder with the links that make leaves (test_make.py). Returns the output and
    the pairs of the RESULT line."""
    for name in re.findall(r"\./(\w+)", line):
        target = BIN / (name if name.endswith("_hakmem") else f"{name}_hakmem")
        (folder / name).symlink_to(target)
    done = blackbox.run(["sh", "-c", line], cwd=folder, env=env)
    assert done.status == 0 and done.stderr == "", done.report()
    pairs = dict(pair.split("=") for pair in re.search(r"^RESULT (.*)$", done.stdout, re.M)[1].split())
    assert set(pairs) >= FIELDS
    return done.stdout, pairs


def test_random_mixed(tmp_path):
    assert typed("./bench_random_mixed_hakmem 1000000 256 42", tmp_path)[1]["ops"] == "1000000"


def test_larson(tmp_path):
    out, pairs = typed("./larson_hakmem 2 8 128 1024 1 12345 4", tmp_path)
    turns = int(re.search(r"(\d+) threads lived", out)[1])
    # The time ends up to four turns early. Each turn replaces 1,024 blocks, with two operations each.
    assert 2 * 1024 * (turns - 4) <= int(pairs["ops"]) <= 2 * 1024 * turns


def test_tiny_mt(tmp_path):
    """Four threads, 16 B, 1,000,000 times 200 operations each: two seconds of CPU time."""
    assert typed("./bench_tiny_mt", tmp_path)[1]["ops"] == str(200 * 1000000 * 4)


def test_mf2(tmp_path):
    """One thread frees all of its 5,000 blocks itself, so no slab is ever pending."""
    out, pairs = typed("./test_mf2", tmp_path)
    assert pairs["ops"] == str(2 * 5000) and pairs["owner_frees"] == "5000"
    assert int(pairs["fast_hits"]) + int(pairs["slow_hits"]) == 5000
    assert int(pairs["slow_hits"]) >= 5 and int(pairs["new_pages"]) >= 62 * KIB * 1000 // (1024 * KIB)
    queue = {"remote_frees", "pending_enqueued", "pending_drained", "pending_requeued"}
    assert all(pairs[name] == "0" for name in queue)
    shown = dict(re.findall(r"^ *mf2: (\w+) +(\d+) ", out, re.M))
    assert shown == {name: pairs[name] for name in shown} and set(shown) > queue


def test_mf2_on_another_allocator():
    done = blackbox.run([BIN / "test_mf2", 10])
    assert done.status == 0 and "RESULT name=test_mf2 ops=100 " in done.stdout, done.report()
    assert "fast_hits" not in done.stdout


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios_ask_for_what_the_documents_say(compiled, scenario):
    """Each block is freed before the next one, and each page is written."""
    sizes, operations, pages = SCENARIOS[scenario]
    done = blackbox.run([BIN / "bench_allocators", "--scenario", scenario, "--iterations", 3],
                        preload=compiled(HERE / "sizes.c", "-O2", shared=True))
    assert done.status == 0 and f"RESULT name={scenario} ops={3 * operations} " in done.stdout, done.report()
    told = re.search(r"^SIZES(.*)$", done.stdout, re.M)[1]
    told = {int(size): int(count) for size, count in re.findall(r"(\d+)x(\d+)", told)}
    # Printing takes a few more blocks, of a page.
    assert [size for size in told if size in sizes] == list(sizes)
    assert all(3 * count <= told[size] <= 3 * count + 10 for size, count in sizes.items()), told
    assert int(re.search(r"^HELD (\d+)$", done.stdout, re.M)[1]) <= 1 + len(told) - len(sizes)
    written = int(re.search(r"^PAGES (\d+)$", done.stdout, re.M)[1])
    assert 3 * pages <= written <= 3 * pages + 20


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios_tell_hits_and_misses_by_class(tmp_path, scenario):
    """The misses are those of HAKMEM's own statistics at exit. A string's block of 8 B is one of 16 B."""
    sizes, operations, _ = SCENARIOS[scenario]
    line = f"./bench_allocators_hakmem --scenario {scenario} --iterations 100"
    out, pairs = typed(line, tmp_path, HAKMEM_SHOW_STATS="json", HAKMEM_STATS_FILE=f"{tmp_path}/stats")
    assert pairs["ops"] == str(100 * operations)
    rows = {int(size): (int(hits), int(misses)) for size, hits, misses in
            re.findall(r"^ *pool: +(\d+) B: (\d+) hits, (\d+) misses$", out, re.M)}
    assert rows.keys() == {max(size, 16) for size in sizes}
    own = {}
    for row in json.loads((tmp_path / "stats").read_text())["classes"]:
        own[row["block_size"]] = row["malloc_misses"]
    for size, (hits, misses) in rows.items():
        assert hits + misses == 100 * max(sizes.get(size, 0), sizes.get(size // 2, 0) if size == 16 else 0)
        assert misses <= own[size] <= misses + 3
    assert int(pairs["pool_hits"]) == sum(hits for hits, _ in rows.values())
    assert int(pairs["pool_misses"]) == sum(misses for _, misses in rows.values()) >= len(rows)


def test_the_same_figures_with_the_library_preloaded(library):
    command = ["--scenario", "mixed", "--iterations", 2]
    shown = [re.findall(r"^ *pool: .*$", blackbox.run(argv, preload=preload).stdout, re.M) for argv, preload in (
        ([BIN / "bench_allocators", *command], library), ([BIN / "bench_allocators_hakmem", *command], None),
        ([BIN / "bench_allocators", *command], None))]
    assert len(shown[0]) == 5 and shown[0] == shown[1] and shown[2] == []


def test_a_wrong_allocator_is_noticed(compiled):
    for kind, status in (("-DWRONG_OVERLAP", 1), ("-DRIGHT", 0)):
        wrong = compiled(HERE / "wrong_malloc.c", kind, shared=True)
        done = blackbox.run([BIN / "test_mf2", 20], preload=wrong)
        assert done.status == status, done.report()
        assert status == 0 or "lost its contents" in done.stderr


def test_the_documents_settings(tmp_path):
    """Each is obeyed, or HAKMEM says in one line what does its work. None is unknown."""
    accepted = ["HAKMEM_TINY_FRONT_DIRECT", "HAKMEM_TINY_USE_SUPERSLAB"]
    obeyed = {"HAKMEM_FC_CAP": "64", "HAKMEM_FC_REFILL": "32", "HAKMEM_SS_LRU_SIZE": "64", "HAKMEM_SS_PREWARM": "2",
              "HAKMEM_MF2_ENABLE": "1", "HAKMEM_MF2_MAX_QUEUES": "8", "HAKMEM_MF2_IDLE_THRESHOLD_US": "100",
              "HAKMEM_MF2_ENQUEUE_THRESHOLD": "2"}
    env = {**obeyed, **dict.fromkeys(accepted, "1")}
    typed("./bench_random_mixed_hakmem 1000 256 42", tmp_path, **env)
    done = blackbox.run([BIN / "bench_random_mixed_hakmem", 1000, 256, 42], env={**env, "HAKMEM_VERBOSE": "1"})
    assert done.status == 0, done.report()
    lines = done.stderr.splitlines()
    for name in accepted:
        assert sum(name in line for line in lines) == 1, done.report()
    for name, value in obeyed.items():
        assert any(f"{name}={value}" in line for line in lines), name


def test_a_release_build_names_the_one_with_the_cycle_profile(tmp_path):
    (tmp_path / "larson_hakmem").symlink_to(BIN / "larson_hakmem")
    done = blackbox.run(["./larson_hakmem", 0, 8, 128, 1024, 1, 12345, 4], cwd=tmp_path,
                        env={"HAKMEM_TINY_PROFILE": "1"})
    assert done.status == 0 and done.stderr.count("\n") == 1, done.report()
    assert "make larson_hakmem BUILD_FLAVOR=cycles" in done.stderr
