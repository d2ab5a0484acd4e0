"""Protects the timeline of sites: from files or from a process, as text and as the data of a page."""

import json
import os
import re
import threading
import time

import blackbox
from making import HELD, TIME, at_moments, run
from steady import FLAGS, SOURCE, steady

from hakmem.heap import timeline
from hakmem.heap.source import Process

KIB = 1024


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)[1])


def test_files(tmp_path):
    files, page = at_moments(tmp_path), tmp_path / "page.html"
    done = run("--timeline", "--html", page, *sorted(files))
    assert (done.exit_code, done.stdout) == (0, f"{page}\n"), done.output
    data = data_of(page)
    assert {name: values for name, _, values in data["bands"][0]} == {
        name: [amount * KIB for amount in amounts] for name, amounts in HELD.items()}
    assert data["times"] == [TIME / 1e9 + 60 * moment for moment in range(3)] and data["rss"] is None
    # The text has, of each site and of all, the first amount, the greatest, the last, and a curve.
    done = run("--timeline", *sorted(files))
    assert done.exit_code == 0, done.output
    sums = [sum(amounts) for amounts in zip(*HELD.values(), strict=True)]
    for name, amounts, curve in (("keep", HELD["keep"], "▁▃█"), ("cache", HELD["cache"], "█▁▄"), ("all", sums, "")):
        (line,) = (line for line in done.stdout.splitlines() if re.search(rf" {name}( |$)", line) and "KiB" in line)
        assert [int(amount) for amount in re.findall(r"(\d+) KiB", line)] == [amounts[0], max(amounts), amounts[-1]]
        assert curve in line


def test_a_process(compiled, library, tmp_path, monkeypatch):
    """Reads the process until it ends. Each of its states lasts for two reads, however slow they are here."""
    counts, found = [0], []
    monkeypatch.setattr(timeline, "told", lambda count, *_: counts.append(count))

    def wait():
        wanted, until = max(counts) + 2, time.monotonic() + blackbox.HANG
        while max(counts) < wanted:
            assert time.monotonic() < until and watching.is_alive(), counts
            time.sleep(0.05)

    with steady(compiled(SOURCE, *FLAGS), library, HAKMEM_HEAP_PROFILE="/dev/null/none",
                HAKMEM_HEAP_PROFILE_RATE="1") as process:
        process.tell("keep", 5000, 400)
        watching = threading.Thread(
            target=lambda: found.append(timeline.watch(Process(process.pid), 0.1, blackbox.HANG, False)))
        watching.start()
        wait()
        for order in (("keep", 5000, 1600), ("drop",)):
            process.tell(*order)
            wait()
        os.kill(process.pid, 9)
        watching.join(blackbox.HANG)
    made, = found
    assert any("ended" in note for note in made.notes), made.notes
    held = {name: values for name, _, values in made.bands(0)}["keep_hay"]
    assert len(held) == len(made.times) == len(made.rss) >= 6
    # Every block is a sample.
    assert (held[0], max(held), held[-1]) == (400 * 5120, 2000 * 5120, 0)
    assert max(made.rss) > 10**7 and made.times == sorted(made.times)
    page = tmp_path / "page.html"
    timeline.write_timeline(page, made)
    assert {name: values for name, _, values in data_of(page)["bands"][0]}["keep_hay"] == held


def test_what_is_refused(tmp_path):
    file = at_moments(tmp_path)[0]
    for arguments, status, names in ((["--every", "1", "1"], 2, ["--every", "--timeline"]),
                                     (["--timeline", "--tree", "1"], 2, ["--timeline"]),
                                     (["--timeline", "1", "2"], 2, ["PID"]),
                                     (["--timeline", "4194305"], 1, ["4194305"]),
                                     (["--timeline", file], 1, [])):
        done = run(*arguments)
        assert done.exit_code == status and not done.stdout and done.stderr, done.output
        assert all(name in done.stderr for name in names), done.stderr
