"""Protects the profile that HAKMEM writes for a program with known amounts, as hakmem heap shows it."""

import json
from pathlib import Path

import blackbox
from making import run

SOURCE = Path(__file__).with_name("kept.cpp")
COUNT, BLOCK = 20000, 1024  # bytes of the class in which 1000 bytes are


def test_sites_and_amounts(compiled, library, tmp_path):
    """Every block is a sample, so that the figures are exact. tests/process/profile has sampled ones."""
    path, page = tmp_path / "kept.pb.gz", tmp_path / "page.html"
    done = blackbox.run([compiled(SOURCE)], preload=library,
                        env={"HAKMEM_HEAP_PROFILE": str(path), "HAKMEM_HEAP_PROFILE_RATE": "1"})
    assert done.status == 0, done.report()
    assert run(path, "--html", page).exit_code == 0
    done = run(path, "--json")
    sites = {site["name"]: site for site in json.loads(done.stdout)["sites"]}
    keep, burn = sites["barn::keep_hay(unsigned long)"], sites["barn::burn_straw(unsigned long)"]
    assert (keep["flat"]["inuse_objects"], keep["flat"]["inuse_space"]) == (COUNT, COUNT * BLOCK)
    assert (burn["flat"]["alloc_objects"], burn["flat"]["alloc_space"]) == (4 * COUNT, 4 * COUNT * BLOCK)
    assert burn["flat"]["inuse_space"] == 0 and burn["lifetimes"]["freed"] == 4 * COUNT
    assert sites["main"]["cum"]["inuse_space"] >= keep["flat"]["inuse_space"]
    lines = run(path, "-n", 1).stdout.splitlines()
    assert "barn::keep_hay" in lines[-1] and "unsigned" not in lines[-1]
    assert "barn::keep_hay" in page.read_text()
