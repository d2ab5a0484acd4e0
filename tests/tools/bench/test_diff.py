"""Protects hakmem bench diff, and results that are stored compressed."""

import gzip
import json
import lzma
import re
import shutil

import blackbox
import pytest
import tool

ONE = ("--rows", "^random-mixed-256$", "--rows", "^tiny-16B-1$", "--scale", "0.002", "--warm", 1)


@pytest.fixture(scope="module")
def old(library, tmp_path_factory):
    """A library with other bytes than the build's: nobody reads bytes behind the sections of an ELF file."""
    file = tmp_path_factory.mktemp("old") / "lib/libhakmem.so"
    file.parent.mkdir()
    shutil.copyfile(library, file)
    with open(file, "ab") as more:
        more.write(b"old")
    return file


@pytest.fixture(scope="module")
def measured(old, tmp_path_factory):
    """(the output, the result, its file) of a comparison of two rows in two rounds. A build's folder has the old
    one."""
    folder = tmp_path_factory.mktemp("diff")
    done = tool.run(folder, "bench", "diff", old.parent.parent, blackbox.LIBRARY, *ONE, "--rounds", 2,
                    "--peers", "glibc", "--out",
                    folder)
    assert done.status == 0, done.report()
    (file,) = folder.glob("*-diff.json.xz")
    return done.stdout, tool.only_result(folder), file


def test_old_and_new_are_measured_in_turns(measured, old, library):
    printed, result, _ = measured
    assert list(result["allocators"]) == ["old", "new", "glibc", "new-again"] and result["subject"] == "new"
    assert result["allocators"]["old"]["library"] == str(old)
    assert result["allocators"]["new"]["library"] == str(library)
    assert len(result["samples"]) == 2 * 2 * 4 and {sample["status"] for sample in result["samples"]} == {"ok"}
    ratio = result["summary"]["rows"]["tiny-16B-1"]["old"]["ratios"]["time"]
    line = re.search(r"^tiny-16B-1 .*$", printed, re.MULTILINE)[0]
    assert f"{ratio['median']:.3f} ({ratio['low']:.3f}-{ratio['high']:.3f})" in line
    mean = result["summary"]["overall"]["old"]["time"]
    means = printed.split("Geometric means")[1]
    assert f"{mean['median']:.3f} ({mean['low']:.2f}\N{EN DASH}{mean['high']:.2f})" in means
    assert "new-again" in printed


def test_a_compressed_result_is_shown(measured, tmp_path):
    _, result, file = measured
    shown = tool.run(tmp_path, "bench", "show", file)
    assert shown.status == 0 and "tiny-16B-1" in shown.stdout, shown.report()
    for name, content in (("r.json.gz", gzip.compress(
            json.dumps(result).encode())), ("r.json", json.dumps(result).encode())):
        (tmp_path / name).write_bytes(content)
        again = tool.run(tmp_path, "bench", "show", tmp_path / name)
        assert again.stdout == shown.stdout, again.report()


def test_a_damaged_result_is_refused(measured, tmp_path):
    _, result, file = measured
    whole = file.read_bytes()
    for name, content in (("cut.json.xz", whole[:-100]), ("wrong.json.xz", whole[:200] + b"?" * 100 + whole[300:]),
                          ("cut.json.gz", gzip.compress(json.dumps(result).encode())[:-100])):
        (tmp_path / name).write_bytes(content)
        status, said = tool.refused(tmp_path, "bench", "show", tmp_path / name)
        assert status == 1 and str(tmp_path / name) in said, said


def test_counted_instructions_are_shown(tmp_path):
    entry = {"row": "r", "allocator": "hakmem", "total": 10, "per_op": 5.25, "library_per_op": 2.5}
    content = {
        "format": "hakmem-instructions 1", "subject": "hakmem", "allocators": {"hakmem": {}}, "instructions": [entry]
    }
    file = tmp_path / "counts.json.xz"
    file.write_bytes(lzma.compress(json.dumps(content).encode()))
    shown = tool.run(tmp_path, "bench", "show", file)
    assert shown.status == 0 and re.search(r"^r +5.25$", shown.stdout, re.MULTILINE), shown.report()
    assert tool.refused(tmp_path, "bench", "show", file, "--csv")[0] == 2
    del content["subject"]
    file.write_bytes(json.dumps(content).encode())
    status, said = tool.refused(tmp_path, "bench", "show", file)
    assert status == 1 and str(file) in said and "subject" in said, said


def test_the_grid_is_a_set_of_rows(tmp_path, old):
    done = tool.run(tmp_path, "bench", "diff", old, "--batches", "--quick", "--list")
    assert done.status == 0 and "64KiB-100-fifo" in done.stdout and "shuffled" not in done.stdout, done.report()


@pytest.mark.parametrize("arguments, status, message", [
    (["/nowhere.so"], 2, "/nowhere.so"),
    (["OLD", "/bin"], 1, "/bin"),
    (["NEW", "NEW"], 1, "NEW"),
    (["OLD", "NEW", "--peers", "nosuch"], 2, "nosuch"),
    (["OLD", "--rows", "nosuch"], 2, "nosuch"),
    (["OLD", "--name", "a/b"], 2, "--name a/b"),
])
def test_mistakes_are_named(tmp_path, library, old, arguments, status, message):
    names = {"OLD": old, "NEW": library}
    found, said = tool.refused(tmp_path, "bench", "diff", "--rounds", 1, "--out", tmp_path,
                               *(names.get(word, word) for word in arguments))
    assert found == status and str(names.get(message, message)) in said, said
